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
        stage.say(f"The control plane keeps running; kill {stage.pid} ends it and its jobs.")
        stage.say(f"  export KUBECONFIG={(stage.data / 'kubeconfig').absolute()}")
        typed = " ".join(RUNS)
        stage.say(f"  {typed} list -A; {typed} watch; {typed} explain safety/eval")
        stage.say("The same in a browser; this link works once, `leasehold ui` prints another:")
        stage.say(f"  {stage.printed('ui')}")
    else:
        stage.say("")
        stage.say("To explore the control plane, also in a browser: make demo KEEP=1")
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
        "Safety owns 4 H100s. Its run needs 8, and 4 more as a hot spare; audio lends 8 of these.\n"
        "All 12 GPUs start together, or none does. Each slice gets one Lease with one payer.",
    )
    stage.runs("submit", "-f", REDTEAM)
    stage.wait("the gang", lambda: stage.phase("safety/redteam") == ("Running", 8))
    stage.runs("leases", "safety/redteam")


def elastic(stage: Stage) -> None:
    stage.act(
        "Act 2. An elastic run grows",
        "Vision's sweep starts with 4 A100s and can use 8. Safety's eval takes the last four.",
    )
    stage.runs("submit", "-f", SWEEP)
    stage.runs("submit", "-f", EVAL)
    stage.runs("grow", "vision/sweep", "--to", "8")
    stage.wait("the growth", lambda: stage.phase("vision/sweep") == ("Running", 8))
    stage.runs("list", "-A")


def reservation(stage: Stage) -> None:
    stage.act(
        "Act 3. A start that is planned",
        "Audio may use 8 A100s too, but none is free. So its run gets a reservation. It announces\n"
        "the start, and the odds with which each other run may be preempted for it.",
    )
    stage.runs("submit", "-f", TRAIN)
    stage.runs("reservations", "-A")


def lottery(stage: Stage) -> None:
    stage.act(
        "Act 4. The planned start is due, and a lottery decides who makes room",
        "An elastic run first gives up its groups above the minimum. Then a lottery draws one of\n"
        "two owners. The seed was fixed beforehand, so anyone can repeat the draw. The drawn run\n"
        "is requeued, and starts again when the training is over. The training has a limit, so\n"
        "this start is known, and no run is preempted for it.",
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
        "The gang's second node is declared dead. The hot spare takes over, with the same attempt\n"
        "and the same rank: its Spare lease ends with Swap, and an Active one begins.",
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
        "Who used a node, who paid, what is left: each answer comes from the ledger alone.",
    )
    stage.runs("leases", "--node", "h-01", "--since", "12h")
    stage.runs("report", "gpu-hours", "--by", "payer")
    stage.runs("who-pays", "safety/redteam")
    stage.runs("budgets", "usage")
    stage.leasehold("ledger", "verify", "--data", str(stage.data), shown=("ledger", "verify"))
    stage.leasehold("audit", "--data", str(stage.data), shown=("audit",))


if __name__ == "__main__":
    sys.exit(main())
