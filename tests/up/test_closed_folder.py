"""The two commands in a checkout that lies below a folder that nobody else can enter.

As root and as a plain user, each in a copy of its own, and with a umask that closes whatever is
made. Without root there is only the user. The copy shares the interpreter and its packages with
this checkout; its source is its own.
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

# They play both commands again; make test-seeds has time for that.
pytestmark = pytest.mark.long

ROOT = Path(__file__).resolve().parents[2]
COPIED = ("src", "demo", "tests", "tools", "docs", "Makefile", "pyproject.toml", "README.md",
          "hatch_build.py", *(path.name for path in ROOT.glob("requirements*.txt")))  # fmt: skip
LEFT_OUT = shutil.ignore_patterns("build", ".hypothesis", ".pytest_cache")
# What once failed there; it compiles nothing, for which there is no cache in a new home.
SHIM = "tests/agent/test_shim.py::test_start_is_refused_with_reason_if_journal_is_not_writable"
LOG = "tests/agent/test_logs.py"
ESSENTIALS = (SHIM, LOG, "tests/up/test_as_a_user.py")
USERS = ("root", "nobody") if os.geteuid() == 0 else (pwd.getpwuid(os.geteuid()).pw_name,)


class Closed:
    """A copy of the checkout, and its owner, who works in it."""

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
            # The interpreter may lie in root's own folder: it is read by right, and no more.
            may = "+dac_read_search"
            self.command = (
                "setpriv", "--reuid", str(uid), "--regid", str(uid), "--clear-groups",
                "--inh-caps", may, "--ambient-caps", may, "--",
            )  # fmt: skip
        self.folder.parent.chmod(0o700)

    def make(self, *words: str, **env: str) -> "subprocess.CompletedProcess[str]":
        home = {"HOME": str(self.folder.parent), "PYTHONPATH": str(self.folder / "src")}
        return subprocess.run(
            # -o: the packages are there, whatever the dates of the files say. And a shell that
            # simply tries, where make would ask first whether a plain user could.
            [*self.command, "make", "-o", ".venv/.installed-run", "-o", ".venv/.installed-test",
             "BIN=exec .venv/bin", *words],
            cwd=self.folder,
            # Not as a part of the make that may have started this test.
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
    """Not as a part of the make that may have started this test."""
    return {key: value for key, value in os.environ.items() if "MAKE" not in key}


def _closing() -> None:
    default_signals()
    os.umask(0o077)


@pytest.fixture(params=USERS)
def closed(request: pytest.FixtureRequest) -> Iterator[Closed]:
    with tempfile.TemporaryDirectory(prefix="leasehold-closed-", ignore_cleanup_errors=True) as top:
        Path(top).chmod(0o755)
        yield Closed(Path(top), request.param)


def test_make_demo(closed: Closed) -> None:
    done = closed.make("demo")
    assert done.returncode == 0, done.stdout
    assert "Act 6. Who paid for what" in done.stdout
    assert "audit: ok" in done.stdout


def test_make_test(closed: Closed) -> None:
    chosen = f"-q -p no:cacheprovider {' '.join(ESSENTIALS)}"
    done = closed.make("test", PYTEST_ADDOPTS=chosen)
    last = done.stdout.strip().splitlines()[-1]
    assert done.returncode == 0, done.stdout[-4000:]
    assert "passed" in last
    assert "skipped" not in last
