"""`make demo` and `make test` in a checkout below a folder that no other user can enter.

They run as root and as a plain user, each in a separate copy, and with a umask that closes all new
files. Without root only the user is tested. The copy shares the interpreter and its packages with
this checkout, but has its own source.
"""

import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.conftest import default_signals

# These tests run whole commands again, so only make test-seeds runs them.
pytestmark = pytest.mark.long

ROOT = Path(__file__).resolve().parents[2]
COPIED = ("src", "demo", "tests", "tools", "docs", "Makefile", "pyproject.toml", "README.md",
          "hatch_build.py", *(path.name for path in ROOT.glob("requirements*.txt")))  # fmt: skip
LEFT_OUT = shutil.ignore_patterns("build", ".hypothesis", ".pytest_cache")
# These once failed there. They compile nothing, because a new home folder has no cache.
SHIM = "tests/agent/test_shim.py::test_start_is_refused_with_reason_if_journal_is_not_writable"
LOG = "tests/agent/test_logs.py"
ESSENTIALS = (SHIM, LOG, "tests/up/test_as_a_user.py")
USERS = ("root", "nobody") if os.geteuid() == 0 else (pwd.getpwuid(os.geteuid()).pw_name,)


class Closed:
    """A copy of the checkout, and the user that owns it and runs commands in it."""

    def __init__(self, root: Path, user: str) -> None:
        self.folder = root / "home" / "leasehold"
        self.folder.mkdir(parents=True)
        for name in COPIED:
            source, copy = ROOT / name, self.folder / name
            if source.is_dir():
                shutil.copytree(source, copy, ignore=LEFT_OUT, symlinks=True)
            else:
                shutil.copy2(source, copy)
        (self.folder / ".venv").symlink_to(ROOT / ".venv")
        uid = pwd.getpwnam(user).pw_uid
        self.command: tuple[str, ...] = ()
        if uid != os.geteuid():
            for each in (root / "home", *(root / "home").rglob("*")):
                os.chown(each, uid, uid, follow_symlinks=False)
            # The interpreter may be in root's home folder: give the right to read, and no other.
            may = "+dac_read_search"
            self.command = (
                "setpriv", "--reuid", str(uid), "--regid", str(uid), "--clear-groups",
                "--inh-caps", may, "--ambient-caps", may, "--",
            )  # fmt: skip
        self.folder.parent.chmod(0o700)

    def make(self, *words: str, **env: str) -> "subprocess.CompletedProcess[str]":
        home = {"HOME": str(self.folder.parent), "PYTHONPATH": str(self.folder / "src")}
        return subprocess.run(
            # -o: the packages are installed, even if file dates disagree. `exec` makes the shell
            # try to run each program, where make would first check the rights of a plain user.
            [*self.command, "make", "-o", ".venv/.installed-run", "-o", ".venv/.installed-test",
             "BIN=exec .venv/bin", *words],
            cwd=self.folder,
            # Without the variables of a make that may have started this test.
            env={
                **{key: os.environ[key] for key in os.environ if "MAKE" not in key},
                **home,
                **env,
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=240,
            check=False,
            preexec_fn=_closing,
        )  # fmt: skip


def _ours() -> dict[str, str]:
    """Return the environment without the variables of a make that may have started this test."""
    return {key: value for key, value in os.environ.items() if "MAKE" not in key}


def _closing() -> None:
    default_signals()
    os.umask(0o077)


@pytest.fixture(params=USERS)
def closed(request: pytest.FixtureRequest) -> Iterator[Closed]:
    with tempfile.TemporaryDirectory(prefix="leasehold-closed-", ignore_cleanup_errors=True) as top:
        Path(top).chmod(0o755)
        yield Closed(Path(top), request.param)


def test_make_demo_succeeds_in_a_closed_folder(closed: Closed) -> None:
    done = closed.make("demo")
    assert done.returncode == 0, done.stdout
    assert "Act 6. Who paid for what" in done.stdout
    assert "audit: ok" in done.stdout


def test_make_test_succeeds_in_a_closed_folder(closed: Closed) -> None:
    chosen = f"-q -p no:cacheprovider {' '.join(ESSENTIALS)}"
    done = closed.make("test", PYTEST_ADDOPTS=chosen)
    last = done.stdout.strip().splitlines()[-1]
    assert done.returncode == 0, done.stdout[-4000:]
    assert "passed" in last
    assert "skipped" not in last
