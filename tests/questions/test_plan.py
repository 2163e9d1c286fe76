"""A plan changes nothing, and predicts what then happens."""

from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from tests.questions.photograph import photograph
from tests.questions.played import FIRST_DAY, SCENARIOS, Played

from leasehold.control.reservations import present
from leasehold.core.facts import Opened
from leasehold.core.names import API_VERSION, Wire
from leasehold.core.reservations import State
from leasehold.core.units import format_instant, format_span
from leasehold.core.world.width import open_leases
from leasehold.sim.scenario.ledger import digest_of_store, objects_of
from leasehold.sim.scenario.parse import load_story

# Gangs, sweeps, spares and fillers, loans, windows, lotteries, reservations of all confidences.
STORIES = [
    FIRST_DAY,
    *(
        SCENARIOS / f"{name}.yaml"
        for name in (
            "R3-a-fixed-and-an-elastic-run-make-way",
            "R3-spares-then-groups-then-the-lottery",
            "A5-a-checkpoint-keeps-the-place-in-the-queue",
            "R6-only-one-node-of-work-is-lost",
            "R4-a-sweep-has-a-bundle-for-each-group",
            "R5-owners-are-drawn-before-runs",
            "F1-a-filler-keeps-the-slot-of-a-spare-that-ends",
            "Q11-money-for-one-group-of-two",
            "P4-a-gang-over-two-locations",
            "C2-sponsors-in-order-then-their-parents",
            "Q4-window-aligned-starts",
            "C4-an-aggregate-cap-is-the-reason",
            "Q11-budgets-could-never-pay",
            "G1-groups-start-as-money-suffices",
            "Q9-a-depth-for-each-owner",
            "Q5-a-site-keeps-its-free-gpus",
            "Q4-a-plan-holds-hours-and-concurrency",
            "Q4-windows-and-ends",
            "Q4-behind-a-start-by-cuts",
            "api-the-binder-is-off",
            "G1-groups-start-as-they-fit",
            "G2-a-sweep-below-its-minimum-is-planned",
            "api-a-gang-too-large-for-a-batch",
            "Q11-short-of-cpu-or-memory",
            "Q11-the-fleet-could-never-hold-it",
            "P1-spares-apart-from-their-group",
        )
    ),
]


def candidates(played: Played) -> Iterator[Wire]:
    """Yield a copy of every Run of the story, under another name."""
    for number, wire in enumerate(objects_of(played.stage.store, "Run")):
        metadata = msgspec.convert(wire["metadata"], dict[str, object])
        yield {
            "apiVersion": API_VERSION,
            "kind": "Run",
            "metadata": {"name": f"new-{number}", "namespace": metadata["namespace"]},
            "spec": wire["spec"],
        }


@pytest.mark.parametrize("file", STORIES, ids=lambda file: file.stem[:10])
def test_questions_change_neither_world_nor_ledger(file: Path) -> None:
    played = Played(file)
    world = played.world
    before, ledger = photograph(world), digest_of_store(played.stage.store)
    verdicts = set()
    for body in candidates(played):
        verdicts.add(played.ask("plan", body)["verdict"])
        played.ask("cover", body)
    for run in list(world.runs.values()):
        for question in ("plan", "cover", "explain", "who-pays", "sponsors"):
            played.ask(question, namespace=run.namespace, run=run.name)
    for question in ("runs", "budgets", "leases", "reservations", "report", "audit"):
        played.ask(question)
    assert verdicts
    assert photograph(world) == before
    assert digest_of_store(played.stage.store) == ledger
    played.stage.settle()
    assert photograph(played.world) == before


def test_world_photograph_of_the_test_shows_a_changed_account() -> None:
    played = Played(FIRST_DAY, "1h")
    before = photograph(played.world)
    played.world.accounts.of("vision/vision/west").gpus += 1
    assert photograph(played.world) != before


@pytest.mark.parametrize("file", STORIES, ids=lambda file: file.stem[:10])
def test_plan_of_a_new_run_predicts_what_happens_on_submission(file: Path) -> None:
    count = len(list(candidates(Played(file))))
    for number in range(count):
        played = Played(file)
        body = list(candidates(played))[number]
        planned = played.ask("plan", body)
        stage = played.stage
        stage.kernel.complete(stage.store.create(body), process=stage.user)
        stage.settle()
        assert actual_start(played, body) == predicted_start(planned), planned["sentences"]


@pytest.mark.parametrize("file", STORIES, ids=lambda file: file.stem[:10])
def test_plan_of_a_waiting_run_equals_its_reservation(file: Path) -> None:
    last = load_story(file).steps[-1].at
    for at in {step.at for step in load_story(file).steps} | {last}:
        played = Played(file, format_span(at))
        for uid in list(played.world.work.pending):
            run = played.world.runs.get(uid)
            reservation = present(played.world, run) if run is not None else None
            if run is None or reservation is None or reservation.state is State.ACTIVATING:
                continue
            if open_leases(played.world, uid):
                continue  # a sweep, of which some groups run
            planned = played.ask("plan", namespace=run.namespace, run=run.name)
            blocked = reservation.state is State.BLOCKED
            starts = None if blocked else format_instant(reservation.starts)
            assert planned["start"] == starts, (run.key, planned["sentences"])


def predicted_start(planned: Wire) -> Wire:
    places = msgspec.convert(planned["places"], list[dict[str, object]])
    payers = msgspec.convert(planned["payers"], list[dict[str, object]])
    if planned["verdict"] == "StartsNow":
        return {
            "starts": "now",
            "payers": {str(each["envelope"]): each["gpus"] for each in payers},
            "nodes": sorted({str(each["node"]) for each in places}),
        }
    return {
        "starts": planned["start"],
        "confidence": planned["confidence"] if planned["start"] else "",
        "reason": planned["reason"],
        "odds": planned["odds"],
    }


def actual_start(played: Played, body: Wire) -> Wire:
    world = played.world
    metadata = msgspec.convert(body["metadata"], dict[str, str])
    run = world.runs[world.uid_of[f"{metadata['namespace']}/{metadata['name']}"]]
    leases = [each for each in open_leases(world, run.uid) if each.reason is Opened.START]
    reservation = present(world, run)
    if leases and reservation is None:
        payers: dict[str, int] = {}
        for lease in leases:
            payers[lease.payer] = payers.get(lease.payer, 0) + lease.gpus
        return {
            "starts": "now",
            "payers": payers,
            "nodes": sorted({lease.node for lease in leases}),
        }
    refused = world.memory.refusals.get(run.uid)
    planned = reservation is not None and reservation.state is not State.BLOCKED
    return {
        "starts": format_instant(reservation.starts) if reservation and planned else None,
        "confidence": str(reservation.confidence) if reservation and planned else "",
        "reason": "" if refused is None else str(refused.reason),
        "odds": [{"run": key, "percent": percent} for key, percent in reservation.odds]
        if reservation
        else [],
    }
