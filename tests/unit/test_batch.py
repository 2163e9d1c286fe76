"""The codecs of the ledger and its objects: what is written reads back the same."""

import json

import msgspec
import pytest
from tests.unit.records import BUDGET, FACTS, T0, a_lease, lines_of

from leasehold.core.facts import Cause, Closed, Closure, ClosureReason, Ending, Opened, Role
from leasehold.core.ledger.batch import (
    Batch,
    Closing,
    NodeFact,
    batch_from_json,
    batch_from_wire,
    batch_to_wire,
    resolution_digest,
)
from leasehold.core.ledger.chain import canonical
from leasehold.core.objects.lease import (
    cut_run,
    label_value,
    lease_from_wire,
    lease_to_wire,
    leases_from_json,
    pod_name,
)
from leasehold.core.objects.reservation import (
    reservation_from_wire,
    reservation_name,
    reservation_to_wire,
)
from leasehold.core.objects.resolution import (
    resolution_from_wire,
    resolution_name,
    resolution_spec,
    resolution_to_wire,
)
from leasehold.core.reservations import Confidence, Reservation, State
from leasehold.core.resolutions import Bundle, CutCause, Draw, Lottery, Resolution

FULL = Batch(
    seq=2,
    epoch=3,
    instant=T0 + 5,
    facts_budgets=(("team/money", BUDGET), ("gone/money", None)),
    facts_nodes=(
        NodeFact(name="n1", gpus=8, flavor="H100", domain="r/c/a"),
        NodeFact(name="n9", gone=True),
    ),
    announced=(("team/train-2", "77" * 32),),
    opened=(a_lease(2, 0), a_lease(2, 1, role=Role.SPARE, slots=(4, 5))),
    ending=(("train-1-0", "Shrink", T0 + 30_000),),
    closed=(
        Closing(lease="train-1-1", end=T0 + 1, reason="Completed"),
        Closing(lease="train-1-2", end=T0 + 1, reason="Fail", cause=Cause.EXIT),
        Closing(lease="train-1-3", end=T0 + 2, reason="Completed", began=T0 + 1),
        Closing(lease="train-1-4", end=T0 + 2, reason="NodeFailure", saved=T0 + 1),
    ),
    resolutions=(("big-2", "c0" * 32),),
)

RESOLUTION = Resolution(
    name="big-1-7",
    batch=7,
    cause=CutCause.RESERVATION,
    subject="team/big-1",
    beneficiary="team/big",
    beneficiary_uid="u1",
    flavor="H100",
    domains=("r/c/a",),
    envelope="",
    instant=T0,
    deficit=16,
    spares=(("train-1-1", 2),),
    shrunk=(("team/train", 3, 8),),
    lottery=Lottery(
        seed="ab" * 32,
        subject="team/big-1",
        instant=T0,
        ledger_digest="cd" * 32,
        nonce="ef" * 32,
        commitment="01" * 32,
        announced_in=1,
        conflict_set=(
            ("x:one", (Bundle(namespace="x", run="train", uid="", group=None, gpus=16),)),
            ("y:two", (Bundle(namespace="y", run="sweep", uid="", group=3, gpus=8),)),
        ),
        draws=(Draw(owner="y:two", bundle="y/sweep#3", gpus=8),),
    ),
    returned=(("bundle", "x/train", 16), ("group", "team/train#3", 8), ("lease", "train-1-1", 2)),
    victims=("sweep-1-0",),
    need=((0, 16),),
    free=(("n1", 2),),
    losses=(("r/c/a", 8, 0, 0),),
)


def test_batch_reads_back_from_wire_and_json() -> None:
    assert batch_from_wire(batch_to_wire(FULL)) == FULL
    assert batch_from_json(canonical(batch_to_wire(FULL))) == FULL
    assert not FULL.is_empty


def test_empty_batch_is_written_without_empty_fields() -> None:
    empty = Batch(seq=1, epoch=1, instant=T0)
    assert batch_to_wire(empty) == {"seq": 1, "epoch": 1, "instant": T0}
    assert batch_from_wire(batch_to_wire(empty)) == empty
    assert empty.is_empty


def test_exported_ledger_line_has_the_documented_fields() -> None:
    line = lines_of(FACTS, FULL)[1]
    assert list(line) == ["seq", "epoch", "digest", "batch"]
    batch = json.loads(canonical(line["batch"]))
    assert batch["facts"]["budgets"][1] == {"name": "gone/money"}
    assert batch["facts"]["nodes"][1] == {"name": "n9"}
    assert batch["ending"][0] == {"lease": "train-1-0", "reason": "Shrink", "deadline": T0 + 30_000}
    assert batch["closed"][1] == {
        "lease": "train-1-2", "end": T0 + 1, "reason": "Fail", "cause": "Exit",
    }  # fmt: skip
    assert batch["opened"][0]["name"] == "train-2-0"
    assert batch["opened"][0]["spec"]["interval"] == {"start": "2025-11-15T00:00:10.000Z"}
    assert batch["opened"][1]["spec"]["compPath"] == ["SHARD[0]", "SPARE[0]"]


@pytest.mark.parametrize("extra", [{"more": 1}, {"closed": [{"lease": "a", "end": 1.5}]}])
def test_batch_with_unknown_or_inexact_fields_is_refused(extra: dict[str, object]) -> None:
    with pytest.raises(msgspec.ValidationError):
        batch_from_wire({**batch_to_wire(FULL), **extra})


def test_refinance_lease_names_its_pod_in_the_lease_object_but_not_in_the_batch() -> None:
    lease = a_lease(2, 0, reason=Opened.REFINANCE, pod="train-1-g0-p0")
    batch = Batch(seq=2, epoch=1, instant=T0, opened=(lease,))
    assert batch_from_wire(batch_to_wire(batch)).opened[0].pod == ""
    assert lease_from_wire(lease_to_wire(lease)).pod == "train-1-g0-p0"


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"ending": Ending(why=ClosureReason(reason=Closed.SHRINK), deadline=T0 + 9)},
        {
            "closed": Closure(
                why=ClosureReason(reason=Closed.FAIL), at=T0 + 9, cause=Cause.DELETED, batch=4
            )
        },
        {
            "closed": Closure(
                why=ClosureReason(reason=Closed.RANDOM_PREEMPT, detail="ab"), at=T0, batch=4
            )
        },
        {
            "closed": Closure(
                why=ClosureReason(reason=Closed.SWAP), at=T0 + 9, began=T0 + 2, batch=4
            )
        },
        {
            "closed": Closure(
                why=ClosureReason(reason=Closed.FAIL), at=T0 + 9, saved=T0 + 2, batch=4
            )
        },
        {"role": Role.SPARE, "pod": ""},
    ],
)
def test_lease_object_reads_back(changes: dict[str, object]) -> None:
    lease = msgspec.structs.replace(a_lease(2, 0), **changes)
    wire = lease_to_wire(lease)
    assert lease_from_wire(wire) == lease
    assert leases_from_json(msgspec.json.encode(wire)) == lease


def test_lease_with_an_invalid_end_time_is_refused() -> None:
    wire = lease_to_wire(a_lease(2, 0))
    wire["status"] = {"closed": True, "endTime": "yesterday"}
    with pytest.raises(msgspec.ValidationError, match="yesterday"):
        lease_from_wire(wire)


def test_closed_lease_with_an_unknown_reason_is_refused() -> None:
    wire = lease_to_wire(a_lease(2, 0))
    for said in ("", "Retired"):
        wire["status"] = {
            "closed": True, "endTime": "2026-11-02T12:00:00Z", "closureReason": said, "batch": 3,
        }  # fmt: skip
        with pytest.raises(msgspec.ValidationError, match="not a reason why a lease ends"):
            lease_from_wire(wire)


def test_long_names_are_truncated_and_stay_distinct() -> None:
    one, two = "a" * 60 + "-one", "a" * 60 + "-two"
    assert cut_run(one) == "a" * 40
    assert cut_run("a" * 39 + ".b") == "a" * 39
    assert pod_name(one, 7, 0, 1) != pod_name(two, 7, 0, 1)
    assert len(pod_name(one, 7, 0, 1)) == len("-7-g0-p1") + 40
    assert label_value("b" * 63) == "b" * 63
    assert len(label_value("b" * 64)) == 63
    assert label_value("b" * 64) != label_value("b" * 65)


def test_reservation_reads_back() -> None:
    reservation = Reservation(
        namespace="team",
        name=reservation_name("big", 12),
        run="big",
        uid="u1",
        batch=12,
        announced=T0,
        state=State.BLOCKED,
        commitment="77" * 32,
        reason="BindFailing",
        message="five binds were rejected",
        starts=T0 + 60_000,
        confidence=Confidence.CUTS,
        deficit=16,
        domains=("r/c/a",),
        nodes=("n1",),
        payers=("team/money/west",),
        releases=(("train-1-0", T0 + 5),),
        remedies=("drop 2 spares",),
        odds=(("team/train", 50),),
        since=T0,
    )
    assert reservation_from_wire(reservation_to_wire(reservation)) == reservation
    unplanned = msgspec.structs.replace(reservation, starts=0, domains=(), nodes=())
    assert reservation_from_wire(reservation_to_wire(unplanned)) == unplanned
    bare = {**reservation_to_wire(reservation)}
    del bare["status"]
    assert reservation_from_wire(bare).state is State.PENDING


@pytest.mark.parametrize("name", ["big", "big-x"])
def test_reservation_name_without_a_batch_is_refused(name: str) -> None:
    metadata = {"name": name, "namespace": "team"}
    with pytest.raises(msgspec.ValidationError):
        reservation_from_wire({"metadata": metadata, "spec": {"runRef": {"name": "b", "uid": "u"}}})


def test_reservation_with_an_invalid_start_is_refused() -> None:
    wire = {
        "metadata": {"name": "big-1", "namespace": "team"},
        "spec": {"runRef": {"name": "big", "uid": "u"}},
        "status": {"earliestStart": "soon"},
    }
    with pytest.raises(msgspec.ValidationError, match="soon"):
        reservation_from_wire(wire)


def test_resolution_reads_back() -> None:
    assert resolution_from_wire(resolution_to_wire(RESOLUTION)) == RESOLUTION
    assert resolution_name("team/big-1", 7) == RESOLUTION.name


def test_overdraft_resolution_omits_fields_without_a_value() -> None:
    overdraft = Resolution(
        name="west-9",
        batch=9,
        cause=CutCause.OVERDRAFT,
        subject="team/money/west",
        beneficiary="",
        beneficiary_uid="",
        flavor="",
        domains=(),
        envelope="team/money/west",
        instant=T0,
        deficit=2,
    )
    spec = resolution_spec(overdraft)
    assert sorted(spec) == ["cause", "deficitGPUs", "instant", "scope", "subject"]
    assert resolution_from_wire(resolution_to_wire(overdraft)) == overdraft
    assert resolution_digest(overdraft) != resolution_digest(RESOLUTION)


def test_resolution_with_an_invalid_instant_is_refused() -> None:
    wire = resolution_to_wire(RESOLUTION)
    spec = dict(resolution_spec(RESOLUTION), instant="now")
    with pytest.raises(msgspec.ValidationError, match="now"):
        resolution_from_wire({**wire, "spec": spec})
