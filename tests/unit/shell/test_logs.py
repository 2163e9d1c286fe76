"""A failure is logged with its location, and without the values of variables."""

import io
import json
import logging
from collections.abc import Iterator

import pytest
import structlog

from leasehold.shell.observe.logs import configure

SECRET = "lh_not-for-the-log"


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def _structlog_restored() -> Iterator[None]:
    before = structlog.get_config()
    yield
    structlog.configure(**before)


def fail(token: str) -> None:
    headers = {"authorization": f"Bearer {token}"}
    raise LookupError(f"{len(headers)} header")


@pytest.mark.parametrize("out", [io.StringIO(), Terminal()], ids=["file", "terminal"])
def test_exception_is_logged_without_values_of_variables(out: io.StringIO) -> None:
    configure("info", stream=out)
    token = SECRET
    try:
        fail(token)
    except LookupError:
        structlog.get_logger("test").exception("request failed", method="POST")
    said = out.getvalue()
    assert "request failed" in said
    assert "LookupError" in said
    assert "test_logs.py" in said
    assert SECRET not in said


def test_log_line_in_file_is_json_with_level_and_time() -> None:
    out = io.StringIO()
    configure("warning", stream=out)
    log = structlog.get_logger("test")
    log.info("not worth it")
    log.warning("alert", message="the disk is full")
    [line] = out.getvalue().splitlines()
    said = json.loads(line)
    assert said.pop("timestamp").endswith("Z")
    assert said == {"event": "alert", "level": "warning", "message": "the disk is full"}


def test_uvicorn_errors_are_logged_but_its_warnings_are_not() -> None:
    """uvicorn warns of every request that is not HTTP, so that strangers could fill the log.

    Its errors are defects of leasehold.
    """
    configure("debug", stream=io.StringIO())
    assert not logging.getLogger("uvicorn.error").isEnabledFor(logging.WARNING)
    assert logging.getLogger("uvicorn.error").isEnabledFor(logging.ERROR)
