"""Plants each bug of `list.py` and `agent.py` in a copy of the source and sees who notices.

`make test-mutants` runs it; names on the command line select bugs. The copy lies before the
installed package on PYTHONPATH, so nothing in the checkout is ever changed.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from hatch_build import PROGRAM, compile_shim, linking  # noqa: E402 - the path above comes first
from tests.mutants import agent  # noqa: E402
from tests.mutants import list as listed  # noqa: E402
from tests.mutants.mutant import Mutant  # noqa: E402

MUTANTS = (*listed.MUTANTS, *agent.MUTANTS)
WORKERS = 2
PASSED, FAILED = 0, 1  # pytest's statuses; any other says that it could not even ask


def main(names: list[str]) -> int:
    """Exit status: 0 when every planted bug was caught."""
    unknown = sorted(set(names) - {mutant.name for mutant in MUTANTS})
    if unknown:
        print(f"no such planted bug: {', '.join(unknown)}")
        return 2
    chosen = [mutant for mutant in MUTANTS if not names or mutant.name in names]
    with tempfile.TemporaryDirectory(prefix="leasehold-mutants-") as folder:
        Path(folder).chmod(0o755)  # some tests start the shim as nobody
        # One copy for all: somebody may be at work on the source meanwhile.
        sound = Path(shutil.copytree(ROOT / "src", Path(folder) / "sound"))
        problems = [each for mutant in chosen for each in misplaced(mutant, sound)]
        problems = problems or failures_without(chosen, sound)
        if problems:
            print("\n".join(problems))
            return 2
        with ThreadPoolExecutor(WORKERS) as pool:
            answers = list(pool.map(lambda mutant: is_caught(mutant, sound), chosen))
    caught = sum(answers)
    print(f"{caught} of {len(chosen)} planted bugs caught")
    return 0 if caught == len(chosen) else 1


def misplaced(mutant: Mutant, sound: Path) -> list[str]:
    """Why it cannot be planted: the source has moved on."""
    text = (sound / "leasehold" / mutant.file).read_text(encoding="utf-8")
    count = text.count(mutant.old)
    return [] if count == 1 else [f"{mutant.name}: {mutant.file} has its text {count} times"]


def failures_without(mutants: Iterable[Mutant], sound: Path) -> list[str]:
    """A test that fails anyway catches nothing."""
    selections = sorted({mutant.tests for mutant in mutants})
    with ThreadPoolExecutor(WORKERS) as pool:
        answers = list(pool.map(lambda tests: run_tests(tests, sound), selections))
    return [
        f"{' '.join(tests)} fails without any planted bug:\n{said}"
        for tests, (status, said) in zip(selections, answers)
        if status != PASSED
    ]


def is_caught(mutant: Mutant, sound: Path) -> bool:
    """Compiled files come along with the copy, being valid for all but one."""
    copy = Path(shutil.copytree(sound, sound.parent / mutant.name.replace(" ", "-")))
    file = copy / "leasehold" / mutant.file
    text = file.read_text(encoding="utf-8")
    file.write_text(text.replace(mutant.old, mutant.new), encoding="utf-8")
    if file.suffix in (".c", ".h"):
        compile_shim(file.parent, file.parent / PROGRAM, *linking())
    status, said = run_tests(mutant.tests, copy)
    shutil.rmtree(copy)
    if status not in (PASSED, FAILED):
        print(f"{mutant.name}: pytest ended with {status}\n{said}")
        return False
    print(f"{'caught  ' if status == FAILED else 'SURVIVED'} {mutant.name}", flush=True)
    return status == FAILED


def run_tests(tests: tuple[str, ...], source: Path) -> tuple[int, str]:
    env = {**os.environ, "PYTHONPATH": str(source), "PYTHONHASHSEED": "0"}
    options = ("-x", "-q", "-p", "no:cacheprovider", "--hypothesis-profile=planted")
    command = [sys.executable, "-m", "pytest", *options, *tests]
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout[-2000:] + done.stderr[-2000:]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
