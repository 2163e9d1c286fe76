"""Plays the six acts: `python -m demo [--keep]`. `make demo` also installs what they need."""

import argparse
import sys
import time
from pathlib import Path

from demo.stage import RUNS, Gone, Stage

FOLDER = Path("build/demo")
BUDGETS, REDTEAM, SWEEP, EVAL, TRAIN = (
    f"demo/manifests/{name}.yaml" for name in ("budgets", "redteam", "sweep", "eval", "train")
)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m demo")
    parser.add_argument("--keep", action="store_true", help="leave it running afterwards")
    keep = parser.parse_args().keep
    stage = Stage(FOLDER)
    started = time.monotonic()
    try:
        play(stage)
    except Gone as gone:
        print(f"demo: {gone}", file=sys.stderr)
        return 1
    finally:
        if not (keep and stage.is_over):
            stage.close()
    if keep:
        stage.say("")
        stage.say(f"It goes on, pid {stage.pid}; kill {stage.pid} ends it and its jobs.")
        stage.say(f"  export KUBECONFIG={(stage.data / 'kubeconfig').absolute()}")
        typed = " ".join(RUNS)
        stage.say(f"  {typed} list -A; {typed} watch; {typed} explain safety/eval")
        stage.say("The same in a browser, by a link that works once (leasehold ui prints another):")
        stage.say(f"  {stage.printed('ui')}")
    else:
        stage.say("")
        stage.say("To look around in it, also in a browser: make demo KEEP=1")
    stage.say("")
    stage.say(f"That took {time.monotonic() - started:.0f} s, on real processes.")
    return 0


def play(stage: Stage) -> None:
    stage.say("leasehold: every GPU-second on a shared fleet has a payer and a reason.")
    stage.open()
    stage.runs("submit", "-f", BUDGETS)
    gang(stage)
    elastic(stage)
    reservation(stage)
    lottery(stage)
    failure(stage)
    accounts(stage)
    stage.is_over = True


def gang(stage: Stage) -> None:
    stage.act(
        "Act 1. A gang that two teams pay for",
        "Safety owns 4 H100s and needs 8 and a hot spare of 4. Audio has agreed to lend. All of\n"
        "it starts or none; every slice gets one Lease with one payer.",
    )
    stage.runs("submit", "-f", REDTEAM)
    stage.wait("the gang", lambda: stage.phase("safety/redteam") == ("Running", 8))
    stage.runs("leases", "safety/redteam")


def elastic(stage: Stage) -> None:
    stage.act(
        "Act 2. An elastic run grows",
        "Vision's sweep began with 4 A100s and can use 8; safety's eval takes the last four.",
    )
    stage.runs("submit", "-f", SWEEP)
    stage.runs("submit", "-f", EVAL)
    stage.runs("grow", "vision/sweep", "--to", "8")
    stage.wait("the growth", lambda: stage.phase("vision/sweep") == ("Running", 8))
    stage.runs("list", "-A")


def reservation(stage: Stage) -> None:
    stage.act(
        "Act 3. A start that is planned",
        "Audio may use 8 A100s too, and none is free. It gets a reservation: when, at whose cost,\n"
        "and with which odds, announced before anything is drawn.",
    )
    stage.runs("submit", "-f", TRAIN)
    stage.runs("reservations", "-A")


def lottery(stage: Stage) -> None:
    stage.act(
        "Act 4. Its time comes, and the lottery with it",
        "Groups above a minimum go first; for the rest one of two owners is drawn. The seed was\n"
        "committed to beforehand, so anybody can draw again. The loser is requeued and comes back\n"
        "when the training is over; that has a limit, so nobody needs to be cut once more.",
    )
    stage.wait("the activation", lambda: stage.phase("audio/train") == ("Running", 8))
    stage.runs("list", "-A")
    victim, resolution = stage.drawn("safety/eval", "vision/sweep")
    stage.runs("explain", victim)
    stage.leasehold("lottery", "verify", resolution)
    stage.wait("the training", lambda: stage.phase("audio/train")[0] == "Completed")
    stage.wait("the eval", lambda: stage.phase("safety/eval") == ("Running", 4))
    stage.wait(
        "the sweep, as wide as before", lambda: stage.phase("vision/sweep") == ("Running", 8)
    )
    # Each of its pods has 4 GPUs and prints one line.
    stage.wait("what it prints", lambda: stage.lines(victim) == stage.phase(victim)[1] // 4)
    stage.runs("logs", victim)


def failure(stage: Stage) -> None:
    stage.act(
        "Act 5. A machine dies",
        "The gang's second node is declared dead. Its hot spare takes over: the same attempt, the\n"
        "same rank, and the lease says Swap.",
    )
    stage.leasehold("fence", "h-01")
    stage.wait(
        "the swap",
        lambda: (
            "Swap" in str(stage.ask("leases", "safety/redteam"))
            and stage.phase("safety/redteam") == ("Running", 8)
        ),
    )
    stage.runs("leases", "safety/redteam")


def accounts(stage: Stage) -> None:
    stage.act(
        "Act 6. Who paid for what",
        "Three questions, one command each, answered from the ledger alone.",
    )
    stage.runs("leases", "--node", "h-01", "--since", "12h")
    stage.runs("report", "gpu-hours", "--by", "payer")
    stage.runs("who-pays", "safety/redteam")
    stage.runs("budgets", "usage")
    stage.leasehold("ledger", "verify", "--data", str(stage.data), shown=("ledger", "verify"))
    stage.leasehold("audit", "--data", str(stage.data), shown=("audit",))


if __name__ == "__main__":
    sys.exit(main())
