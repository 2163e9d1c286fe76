"""What all tests share: hypothesis' settings, deadlines, default signals, and a summary of counts.

In a suite that a script starts in the background SIGINT is ignored, and without a reset all
processes that tests start would ignore it, too.
"""

import contextlib
import os
import signal
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings
from tests.deadlines import deadline, keep_screen
from tests.kubernetes.cluster import Cluster
from tests.seeds import Budget

# A slow machine must not make a property flaky, and a failure in CI must be repeatable on any
# other machine.
settings.register_profile(
    "leasehold",
    deadline=None,
    derandomize=True,
    max_examples=100,
    suppress_health_check=[HealthCheck.too_slow],  # which measures wall-clock time
)
settings.load_profile("leasehold")
# For planted bugs the first failure is enough: shrinking it would take minutes.
settings.register_profile(
    "planted", settings.get_profile("leasehold"), phases=(Phase.explicit, Phase.generate)
)

DEADLINE_S = 300.0  # for each phase of a test without a mark deadline(SECONDS)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--few-seeds", action="store_true", help="stop at each test's budget of seeds")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "deadline(seconds): how long a phase of this test may take")
    for line in (
        "kube: needs a program that tools/kube/build builds",
        "seeds: plays random seeds; with --few-seeds as many as fit into its budget",
        "long: takes long, and is left to make test-seeds",
        "root: mounts a file system, and is left out where the caller is not root",
    ):
        config.addinivalue_line("markers", line)
    # Jobs of other users need access to the files of tests, whatever the caller's umask is. Tests
    # that start the product under another umask show that it sets the modes it needs.
    os.umask(0o022)
    keep_screen()
    default_signals()


def default_signals() -> None:
    """Handle or unblock signals: a child process inherits ignored and blocked signals, but not
    handlers."""
    signal.pthread_sigmask(signal.SIG_UNBLOCK, signal.valid_signals())
    for number in (signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1):
        if signal.getsignal(number) is signal.SIG_IGN:
            # The signal still has no effect here, as nohup or a shell's & has requested.
            signal.signal(number, _do_nothing)


def _do_nothing(_number: int, _frame: FrameType | None) -> None:
    return


def _deadline(item: pytest.Item) -> contextlib.AbstractContextManager[None]:
    mark = item.get_closest_marker("deadline")
    return deadline(float(mark.args[0]) if mark is not None else DEADLINE_S)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup(item: pytest.Item) -> Iterator[None]:
    # Otherwise `make test` would need Go, or programs that were built before.
    os.environ["LEASEHOLD_BUILDS"] = "yes" if item.get_closest_marker("kube") else "no"
    with _deadline(item):
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    with _deadline(item):
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item) -> Iterator[None]:
    with _deadline(item):
        return (yield)


@pytest.fixture
def open_tmp() -> Iterator[Path]:
    """A temporary folder that other users can enter, unlike pytest's own.

    As root, jobs run as the users of their namespaces. A shim that was just killed may write its
    last record while the folder is removed.
    """
    with tempfile.TemporaryDirectory(prefix="leasehold-", ignore_cleanup_errors=True) as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


@pytest.fixture
def budget(
    request: pytest.FixtureRequest, record_property: Callable[[str, object], None]
) -> Iterator[Budget]:
    """The random seeds that this test plays."""
    found = Budget(is_limited=request.config.getoption("--few-seeds"))
    yield found
    record_property("seeds", (found.played, found.left_out))


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A real API server for this worker, started for the first test that needs it."""
    cluster = Cluster(tmp_path_factory.mktemp("cluster"))
    yield cluster
    cluster.stop()


@pytest.fixture
def own_cluster(tmp_path: Path) -> Iterator[Cluster]:
    """An API server for one test, without leasehold installed."""
    cluster = Cluster(tmp_path / "cluster")
    yield cluster
    cluster.stop()


# These fixtures, and the tests of these folders, start a program that tools/kube/build builds.
_KUBE_FIXTURES = {"cluster", "own_cluster", "real", "kubectl_path", "go_client"}
_KUBE_FOLDERS = {"kube", "kubelets"}


def pytest_itemcollected(item: pytest.Item) -> None:
    """Mark a test by its direct and indirect fixtures."""
    fixtures = set(getattr(item, "fixturenames", ()))
    if fixtures & _KUBE_FIXTURES or item.path.parent.name in _KUBE_FOLDERS:
        item.add_marker("kube")
    if "budget" in fixtures:
        item.add_marker("seeds")


def pytest_report_header() -> str | None:
    """Report that tests are left out if the caller is not root."""
    return None if os.geteuid() == 0 else "not root: tests that mount a file system are left out"


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Run the tests that compare stores first, and deselect tests that need root if there is none.

    Later tests install leasehold on the worker's cluster. With leasehold's policies an API server
    does more than the stores with which it is compared.
    """
    items.sort(key=lambda item: "harness" not in getattr(item, "fixturenames", ()))
    if os.geteuid() != 0:
        left_out = [item for item in items if item.get_closest_marker("root")]
        items[:] = [item for item in items if item not in left_out]
        config.hook.pytest_deselected(items=left_out)


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Print the texts that tests have recorded with `record_property("counts", …)`, and the seeds.

    This also works on a worker of xdist, whose own output is not shown.
    """
    reports = [each for kind in ("passed", "failed") for each in terminalreporter.getreports(kind)]
    played = left_out = 0
    for report in reports:
        for name, value in getattr(report, "user_properties", ()):
            if name == "counts":
                terminalreporter.write_line(str(value))
            elif name == "seeds":
                played, left_out = played + value[0], left_out + value[1]
    if left_out:
        said = f"{played} random seeds played; make test-seeds plays {left_out} more"
        terminalreporter.write_line(said)
