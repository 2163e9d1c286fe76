"""A server for the fixed story, and the command line that uses it, in this process."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from tests.cli_runs.facade import Facade, kubeconfig, served
from tests.questions.played import Played

from leasehold.cli.runs.command import command

STORY = Path(__file__).parent / "story.yaml"
Cli = Callable[..., Result]


@pytest.fixture(autouse=True)
def _in_utc(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Use UTC, as the golden files do, and ignore a kubeconfig of the machine."""
    monkeypatch.setenv("TZ", "UTC")
    monkeypatch.delenv("KUBECONFIG", raising=False)
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.fixture
def facade() -> Facade:
    """Return a new facade with a new story, so that tests do not affect each other."""
    return Facade(Played(STORY))


@pytest.fixture
def config(facade: Facade, tmp_path: Path) -> Iterator[Path]:
    with served(facade) as url:
        yield kubeconfig(tmp_path, url)


@pytest.fixture
def cli(config: Path) -> Cli:
    """Return a function that runs `kubectl runs`; a failure must be a message, not a traceback."""

    def run(*words: str, stdin: str | bytes | None = None) -> Result:
        env = {"KUBECONFIG": str(config)}
        result = CliRunner().invoke(command, list(words), env=env, input=stdin)
        told = result.exception is None or isinstance(result.exception, SystemExit)
        assert told, result.exception
        return result

    return run
