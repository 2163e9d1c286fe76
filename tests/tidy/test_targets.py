"""Every test belongs to a target of the Makefile, and CI runs every target to its end."""

import itertools
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")
MARKS = ("kube", "long", "seeds")


def chosen(target: str) -> str:
    """Return the -m expression of a target's pytest."""
    (found,) = re.findall(
        rf'^{target}:.*\n(?:[\t@#].*\n)*?.*-m "?([^"\n]+?)"?$', MAKEFILE, re.MULTILINE
    )
    return str(found)


def test_every_test_belongs_to_a_target() -> None:
    expressions = [chosen(target) for target in ("test", "test-seeds", "test-kube")]
    for values in itertools.product((False, True), repeat=len(MARKS)):
        marks = dict(zip(MARKS, values))
        assert any(eval(each, {}, marks) for each in expressions), marks
        assert sum(eval(each, {}, marks) for each in expressions) == 1 + (
            marks["seeds"] and not marks["long"] and not marks["kube"]
        ), "a test is in two targets, and the second does not play more seeds"


def test_target_test_all_runs_every_test_target_except_rare_ones() -> None:
    (listed,) = re.findall(r"^test-all: (.*)$", MAKEFILE, re.MULTILINE)
    every = set(re.findall(r"^(test(?:-[a-z]+)*):", MAKEFILE, re.MULTILINE))
    # These take long or need programs that PyPI does not have; they are run before a release.
    rare = {"test-kills", "test-torch", "test-mutants", "test-mutants-sim"}
    assert set(listed.split()) == {"check", *every} - rare - {"test-all"}


GOOD = "===== 7 passed in 3.21s ====="


@pytest.mark.parametrize(
    ("said", "ends", "status", "told"),
    [
        (GOOD, 0, 0, GOOD),
        ("7 passed, 2 deselected in 3.21s", 0, 0, "7 passed, 2 deselected in 3.21s"),
        ("===== 7 passed, 1 skipped in 3.21s =====", 0, 1, "skipped a test"),
        ("===== 1 failed in 3.21s =====", 2, 1, "ended with exit status 2"),
        ("25 of 25 as expected", 0, 0, "25 of 25 as expected"),
    ],
)
def test_ci_prints_the_result_of_each_target(
    said: str, ends: int, status: int, told: str, tmp_path: Path
) -> None:
    make = tmp_path / "make"
    make.write_text(
        f'#!/bin/sh\n[ "$1" = test-kube ] && echo "{said}" && exit {ends}\necho "{GOOD}"\n'
    )
    make.chmod(0o755)

    done = subprocess.run(
        [ROOT / ".ci" / "run"],
        env={**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == status, done.stdout
    assert told in done.stdout + done.stderr
    (targets,) = re.findall(r"^test-all: (.*)$", MAKEFILE, re.MULTILINE)
    last = done.stdout.splitlines()[-len(targets.split()) :]
    assert [line.split(",")[0] for line in last] == [f"make {each}" for each in targets.split()]
    assert last[0].endswith(GOOD)


def test_tests_that_mount_file_systems_are_deselected_for_plain_user(tmp_path: Path) -> None:
    """Only a mount gives a test its own disk, and `make test` must work without root."""
    may = "+dac_read_search"  # Python may be in root's home folder
    nobody = ("setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups",
              "--inh-caps", may, "--ambient-caps", may, "--")  # fmt: skip
    collect = (sys.executable, "-m", "pytest", "--collect-only", "-p", "no:cacheprovider")
    done = subprocess.run(
        [*(nobody if os.geteuid() == 0 else ()), *collect, "tests/up/test_full_disk.py"],
        cwd=ROOT,
        env={**os.environ, "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert "5 deselected" in done.stdout, done.stdout + done.stderr
    assert "not root: tests that mount a file system are left out" in done.stdout


def test_build_of_kube_programs_is_refused_without_the_mark_kube() -> None:
    """This test has no mark. A program in the developer's cache must not be used either."""
    done = subprocess.run(
        [ROOT / "tools" / "kube" / "build", "kubectl"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert "a test that has not the mark kube wants kubectl" in done.stderr
