"""A server over the fixed story, and the command line against it, in this process."""

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
    """Tables show local time; the goldens were made in UTC. And no kubeconfig of the machine."""
    monkeypatch.setenv("TZ", "UTC")
    monkeypatch.delenv("KUBECONFIG", raising=False)
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.fixture
def facade() -> Facade:
    """A story of its own for each test: what one changes no other sees."""
    return Facade(Played(STORY))


@pytest.fixture
def config(facade: Facade, tmp_path: Path) -> Iterator[Path]:
    with served(facade) as url:
        yield kubeconfig(tmp_path, url)


@pytest.fixture
def cli(config: Path) -> Cli:
    """`kubectl runs` with these words; nothing but a sentence may come out of a failure."""

    def run(*words: str, stdin: str | bytes | None = None) -> Result:
        env = {"KUBECONFIG": str(config)}
        result = CliRunner().invoke(command, list(words), env=env, input=stdin)
        told = result.exception is None or isinstance(result.exception, SystemExit)
        assert told, result.exception
        return result

    return run
