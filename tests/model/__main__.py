"""Compares the model with the product on random stories, or on files.

python -m tests.model --seeds 0..99 [--profile money] [--shrink] [--keep DIR] [--plans]
python -m tests.model FILE…
"""

import argparse
import multiprocessing
import sys
import time
from pathlib import Path

import yaml
from tests.model.compare import Difference, compare
from tests.model.seeds import Job, ask, profile_of
from tests.model.smaller import smallest
from tests.model.stories import PROFILES, story_of
from tests.model.story import NotCovered


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.model", description=__doc__)
    parser.add_argument("files", nargs="*", metavar="FILE", help="scenario files to compare on")
    parser.add_argument("--seeds", help="A..B, both included: random stories")
    parser.add_argument("--profile", choices=PROFILES, help="default: all of them in turn")
    parser.add_argument("--shrink", action="store_true", help="make each difference small")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="leave stories that differ there")
    parser.add_argument("--plans", action="store_true", help="compare reservations as well")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--quiet", action="store_true", help="name the seeds only")
    asked = parser.parse_args(arguments)
    if bool(asked.files) == bool(asked.seeds):
        parser.error("name files, or --seeds A..B")
    if asked.files:
        return _files(asked)
    first, _, last = asked.seeds.partition("..")
    seeds = range(int(first), int(last or first) + 1)
    return _seeds(asked, [(s, asked.profile or profile_of(s), asked.plans) for s in seeds])


def _files(asked: argparse.Namespace) -> int:
    worst = 0
    for file in asked.files:
        try:
            found = compare(Path(file).read_text(encoding="utf-8"), with_plans=asked.plans)
        except NotCovered as why:
            print(f"{file}: not in the model's language: {why}")
            continue
        print(f"{file}: {found or 'both agree'}")
        worst = max(worst, int(found is not None))
    return worst


def _seeds(asked: argparse.Namespace, jobs: list[Job]) -> int:
    began = time.monotonic()
    if asked.workers > 1:
        with multiprocessing.get_context("spawn").Pool(asked.workers) as pool:
            answers = list(pool.imap(ask, jobs, chunksize=8))
    else:
        answers = [ask(job) for job in jobs]
    refused = [(job, found) for job, found in answers if isinstance(found, str)]
    different = [(job, found) for job, found in answers if isinstance(found, Difference)]
    for (seed, profile, _), why in refused:
        print(f"seed {seed} ({profile}) is no valid story: {why}")
    for (seed, profile, plans), found in different:
        print(f"seed {seed} ({profile}) differs " + (found.what if asked.quiet else str(found)))
        if asked.keep or asked.shrink:
            _leave(asked, seed, profile, plans=plans)
    agreeing = len(jobs) - len(refused) - len(different)
    spent = time.monotonic() - began
    print(
        f"{len(jobs)} stories in {spent:.0f} s: {agreeing} agree, {len(different)} differ, "
        f"{len(refused)} invalid"
    )
    if different:
        print("seeds that differ: " + " ".join(str(seed) for (seed, _, _), _ in different))
    return int(bool(different or refused))


def _leave(asked: argparse.Namespace, seed: int, profile: str, *, plans: bool) -> None:
    document = story_of(seed, profile)
    if asked.shrink:
        document = smallest(document, with_plans=plans)
    text = yaml.safe_dump(document, sort_keys=False, default_flow_style=None, width=120)
    if asked.keep is None:
        print(text)
        return
    asked.keep.mkdir(parents=True, exist_ok=True)
    file = asked.keep / f"{profile}-{seed}.yaml"
    file.write_text(text, encoding="utf-8")
    print(f"  left in {file}")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
