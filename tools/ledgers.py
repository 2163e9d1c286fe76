"""Compares the ledgers of every scenario before and after a change of the program, byte for byte.

    python tools/ledgers.py against main                    compare this tree with a commit
    python tools/ledgers.py export build/ledgers/before     write every ledger of this tree
    python tools/ledgers.py compare build/ledgers/before build/ledgers/after

Every scenario file is played as written and under the faults of the first seeds, on virtual time.
`--stories FOLDER` adds files, `--seeds N` plays more seeds, `--source` plays with another `src`.
Exit status: 0 all ledgers are equal, 1 some differ (each scenario is named), 2 the command is wrong
or nothing could be played. The expectations of a scenario are not checked here.
"""

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import zip_longest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
STORIES = ROOT / "tests" / "scenarios"
SEEDS = 3
EQUAL, DIFFERENT, UNCLEAR = 0, 1, 2

# Runs in a process of its own, because PYTHONPATH must name the tree before anything is imported.
_PLAYER = """\
import sys
from pathlib import Path
from leasehold.sim.scenario.runner import run_scenario
out, seeds, *files = sys.argv[1:]
for file in files:
    for seed in (None, *range(int(seeds))):
        folder = Path(out) / Path(file).stem / ("told" if seed is None else f"seed-{seed}")
        folder.mkdir(parents=True, exist_ok=True)
        try:
            outcome = run_scenario(file, seed=seed, out=folder, echo=lambda _: None)
            said = [str(outcome.code), *(each.partition(": ")[2] for each in outcome.problems)]
        except Exception as error:
            said = [f"a defect: {type(error).__name__}: {error}"]
        (folder / "outcome.txt").write_text("\\n".join(said) + "\\n")
"""


def export(out: Path, files: list[Path], *, seeds: int, source: Path, jobs: int) -> None:
    """Play the files. Write ledger.jsonl, objects.jsonl and outcome.txt of each into
    `out`/NAME/told (as written) and `out`/NAME/seed-N (under faults)."""
    shares = [files[first::jobs] for first in range(jobs)]
    with ThreadPoolExecutor(jobs) as pool:
        statuses = list(pool.map(lambda share: _play(out, share, seeds, source), shares))
    if any(statuses):
        raise SystemExit(UNCLEAR)  # the player has printed the reason


def _play(out: Path, files: list[Path], seeds: int, source: Path) -> int:
    arguments = [sys.executable, "-c", _PLAYER, str(out), str(seeds), *map(str, files)]
    environment = {**os.environ, "PYTHONPATH": str(source)}
    return subprocess.run(arguments, env=environment, check=False).returncode


def compare(before: Path, after: Path, *, objects: bool) -> int:
    """Print each scenario whose ledger or outcome differs, with the first line that differs."""
    names = ("ledger.jsonl", "outcome.txt", *(("objects.jsonl",) if objects else ()))
    played = [_played(top) for top in (before, after)]
    if not all(played):
        print(f"nothing was played in {before if not played[0] else after}", file=sys.stderr)
        return UNCLEAR
    different = 0
    for story in sorted(played[0] | played[1]):
        if not all(story in side for side in played):
            print(f"{story}: only in {before if story in played[0] else after}")
            different += 1
            continue
        found = [each for name in names for each in _differences(before, after, story / name)]
        if found:
            print(f"{story}: {'; '.join(found)}")
            different += 1
    total = len(played[0] | played[1])
    print(f"{different} of {total} differ" if different else f"all {total} are equal")
    return DIFFERENT if different else EQUAL


def _played(top: Path) -> set[Path]:
    return {each.parent.relative_to(top) for each in top.glob("*/*/outcome.txt")}


def _differences(before: Path, after: Path, file: Path) -> Iterator[str]:
    found = [top / file for top in (before, after)]
    lines = [each.read_bytes().splitlines() if each.exists() else [] for each in found]
    for number, (one, two) in enumerate(zip_longest(*lines), start=1):
        if one != two:
            yield f"{file.name} differs from line {number} on"
            return


@contextmanager
def checkout(commit: str) -> Iterator[Path]:
    """Yield a folder with the commit's tree, and remove it afterwards."""
    with tempfile.TemporaryDirectory(prefix="leasehold-ledgers-") as folder:
        tree = Path(folder) / "tree"
        _git("worktree", "add", "--quiet", "--detach", str(tree), commit)
        try:
            yield tree
        finally:
            _git("worktree", "remove", "--force", str(tree))


def _git(*arguments: str) -> None:
    if subprocess.run(["git", "-C", str(ROOT), *arguments], check=False).returncode:
        raise SystemExit(UNCLEAR)  # git has printed the reason


def story_files(folders: list[Path]) -> list[Path]:
    """Return all scenario files in the order of their names, by which stories are known. Two files
    may not have the same name."""
    by_name: dict[str, Path] = {}
    for folder in (STORIES, *folders):
        found = sorted(folder.rglob("*.yaml"))
        if not found:
            print(f"{folder}: no scenario files (*.yaml) in it", file=sys.stderr)
            raise SystemExit(UNCLEAR)
        for file in found:
            if by_name.setdefault(file.stem, file) is not file:
                said = f"{file}: {by_name[file.stem]} has the same name; rename one"
                print(said, file=sys.stderr)
                raise SystemExit(UNCLEAR)
    return [file for _, file in sorted(by_name.items())]


def main(arguments: list[str]) -> int:
    options = _parser().parse_args(arguments)
    if options.command == "compare":
        return compare(options.before, options.after, objects=options.objects)
    files = story_files(options.stories)
    how = {"seeds": options.seeds, "jobs": options.jobs}
    if options.command == "export":
        export(options.out, files, source=options.source, **how)
        return EQUAL
    with tempfile.TemporaryDirectory(prefix="leasehold-ledgers-") as folder:
        before, after = Path(folder) / "before", Path(folder) / "after"
        with checkout(options.commit) as tree:
            export(before, files, source=tree / "src", **how)
        export(after, files, source=options.source, **how)
        return compare(before, after, objects=options.objects)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="ledgers.py", description=(__doc__ or "").splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    export_, compare_, against = (
        commands.add_parser(name) for name in ("export", "compare", "against")
    )
    export_.add_argument("out", type=Path)
    compare_.add_argument("before", type=Path)
    compare_.add_argument("after", type=Path)
    against.add_argument("commit")
    for each in (export_, against):
        each.add_argument("--stories", type=Path, action="append", default=[], metavar="FOLDER")
        each.add_argument("--seeds", type=int, default=SEEDS)
        each.add_argument("--source", type=Path, default=ROOT / "src")
        each.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    for each in (compare_, against):
        each.add_argument("--objects", action="store_true", help="all that is stored, too")
    return parser


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
