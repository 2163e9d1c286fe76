"""Plants each bug of `of_simulations.py` in a copy of the source, and counts the seeds until one
notices.

`make test-mutants-sim` runs it; names on the command line select bugs. What is asked is the same
mixture of seeds that CI plays, from 0 on, until one fails that holds without the bug; if none does,
the plans that CI plays beside them (`tests/sim/test_found.py`). A bug that none of all these
notices is a hole in the checks or in the faults. `SEEDS_MAX` and `WORKERS` ask for more or less.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from tests.mutants.mutant import Mutant  # noqa: E402 - the path above comes first
from tests.mutants.of_simulations import STORM  # noqa: E402 - the path above comes first
from tests.mutants.of_tenure import TENURE  # noqa: E402
from tests.mutants.run import misplaced  # noqa: E402

PLANS = ROOT / "tests" / "sim" / "test_found.py"
SEEDS = int(os.environ.get("SEEDS_MAX", "200"))
WORKERS = int(os.environ.get("WORKERS", "2"))
LIMIT_S = 3600
# What only tenure's own tests can see. An epoch is one holder's for ever, so that in a simulation
# nobody ever has the epoch of a stranger to release.
BY_TESTS_ALONE = frozenset({
    "tenure taken a millisecond early", "tenure believed too long by one",
    "tenure's waiting disturbed by annotations", "tenure of a deleted record is free",
    "tenure's epoch below the head's", "keeper that waits out a free record",
    "tenure's lost answer taken for a no", "tenure of an older start of ours",
    "tenure released by a stranger",
})  # fmt: skip
MUTANTS = (*STORM, *(each for each in TENURE if each.name not in BY_TESTS_ALONE))


def main(names: list[str]) -> int:
    unknown = sorted(set(names) - {mutant.name for mutant in MUTANTS})
    if unknown:
        print(f"no such planted bug: {', '.join(unknown)}")
        return 2
    chosen = [mutant for mutant in MUTANTS if not names or mutant.name in names]
    with tempfile.TemporaryDirectory(prefix="leasehold-mutants-") as folder:
        sound = Path(shutil.copytree(ROOT / "src", Path(folder) / "sound"))
        problems = [each for mutant in chosen for each in misplaced(mutant, sound)]
        if problems:
            print("\n".join(problems))
            return 2
        with ThreadPoolExecutor(WORKERS) as pool:
            caught = sum(pool.map(lambda mutant: is_caught(mutant, sound), chosen))
    print(f"{caught} of {len(chosen)} planted bugs caught by simulation")
    return 0 if caught == len(chosen) else 1


def is_caught(mutant: Mutant, sound: Path) -> bool:
    copy = Path(shutil.copytree(sound, sound.parent / re.sub(r"\W+", "-", mutant.name)))
    file = copy / "leasehold" / mutant.file
    file.write_text(file.read_text(encoding="utf-8").replace(mutant.old, mutant.new), "utf-8")
    env = {**os.environ, "PYTHONPATH": str(copy)}
    first = 0
    while (failed := _first_failure(copy, first)) is not None:
        seed, profile, rule = failed
        if _first_failure(sound, seed, seed) is None:
            shutil.rmtree(copy)
            told = f"caught after {seed + 1:3} seeds ({profile}): {mutant.name}: {rule[:90]}"
            print(told, flush=True)
            return True
        first = seed + 1
    return _is_caught_by_plans(mutant.name, copy, env)


def _first_failure(source: Path, first: int, last: int = SEEDS - 1) -> tuple[int, str, str] | None:
    """The seed, its profile and what it says, by the simulator as it is in that folder."""
    command = [
        sys.executable, "-c", "from leasehold.cli.main import main; main()", "sim",
        "--seeds", f"{first}..{last}", "--first", "--keep", str(source / "plans"),
    ]  # fmt: skip
    if first > last:
        return None
    env = {**os.environ, "PYTHONPATH": str(source)}
    done = subprocess.run(
        command, env=env, capture_output=True, text=True, timeout=LIMIT_S, check=False
    )
    said = re.search(r"seed (\d+) \((\w+)\) failed at \d+ ms:\n\s*(.*)", done.stdout)
    if said is None:
        assert done.returncode == 0, done.stderr[-2000:]
        return None
    return int(said.group(1)), said.group(2), said.group(3)


def _is_caught_by_plans(name: str, copy: Path, env: dict[str, str]) -> bool:
    command = [
        sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", str(PLANS),
    ]  # fmt: skip
    done = subprocess.run(
        command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=LIMIT_S, check=False
    )
    shutil.rmtree(copy)
    said = re.search(r"FAILED \S+::(\S+)", done.stdout)
    if said is None:
        print(f"SURVIVED {name}\n{done.stdout[-500:]}", flush=True)
        return False
    print(f"caught after {SEEDS} seeds by a plan: {name}: {said.group(1)}", flush=True)
    return True


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
