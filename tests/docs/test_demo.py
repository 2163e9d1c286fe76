"""The demo prints what the README shows, and `make demo` plays that demo."""

import os
import re
import subprocess
import sys
from pathlib import Path

from demo.stage import RUNS
from tests.docs.examples import first_difference

ROOT = Path(__file__).resolve().parents[2]
DEMO_S = 120.0


def test_demo_prints_what_the_readme_shows(open_tmp: Path) -> None:
    readme = (
        (ROOT / "README.md").read_text(encoding="utf-8").replace("kubectl runs", " ".join(RUNS))
    )
    (shown,) = re.findall(r"^```text\n(Act 1.*?)^```$", readme, re.MULTILINE | re.DOTALL)
    folder = open_tmp
    (folder / "demo").symlink_to(ROOT / "demo")  # the demo writes to ./build

    done = subprocess.run(
        [sys.executable, "-m", "demo"],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(folder)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=DEMO_S,
        check=False,
    )

    assert done.returncode == 0, done.stdout
    # The README is shortened: its lines must appear in this order, with others between them.
    lines = [each for line in shown.splitlines() for each in ("…", line)]
    difference = first_difference([*lines, "…"], done.stdout.splitlines())
    assert difference is None, f"{difference!r} is not in\n{done.stdout}"
    assert "taken by lottery" not in done.stdout, "the demo has no second lottery"
    assert done.stdout.count("Resolution ") == 1, done.stdout


def test_make_demo_plays_the_demo() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    recipe = makefile.partition("\ndemo:")[2].partition("\n\n")[0]

    assert "-m demo" in recipe
