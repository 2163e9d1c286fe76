"""Past use by time and owner: exact for any period, and equal from live and archived leases."""

import asyncio
from fractions import Fraction
from pathlib import Path
from typing import Any, TypedDict

import msgspec
import pytest
from tests.questions.archived import Shelf, compacted
from tests.questions.played import ADMIN, FIRST_DAY, SCENARIOS, Played

from leasehold.control.questions.report import GROUPINGS
from leasehold.core.names import Wire
from leasehold.core.units import DAY, HOUR, MINUTE, format_instant

STORY = Path(__file__).parents[1] / "cli_runs" / "story.yaml"
FILES = [
    STORY,
    FIRST_DAY,
    SCENARIOS / "R3-a-fixed-and-an-elastic-run-make-way.yaml",
    SCENARIOS / "A5-a-checkpoint-keeps-the-place-in-the-queue.yaml",
]


def rows(answer: Wire, key: str = "items") -> list[dict[str, object]]:
    return msgspec.convert(answer[key], list[dict[str, object]])


def total(answer: Wire) -> int:
    return msgspec.convert(answer["total"], dict[str, object])["gpuMs"]  # type: ignore[return-value]


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem[:10])
@pytest.mark.parametrize("by", GROUPINGS)
def test_rows_uses_and_adjoining_periods_of_a_report_add_up_to_its_total(
    file: Path, by: str
) -> None:
    played = Played(file)
    whole = played.ask("report", by=by)
    # A second count: second by second would be too slow, so by exact areas.
    area = sum(
        Fraction(lease.gpus * ((played.now if lease.end is None else lease.end) - lease.start))
        for lease in played.world.leases.values()
    )
    assert total(whole) == area > 0
    assert sum(int(str(row["gpuMs"])) for row in rows(whole)) == area
    cuts = [0, played.start + 31 * MINUTE + 1, played.start + 2 * HOUR + 7, played.now]
    parts = [
        played.ask("report", by=by, from_=format_instant(one), to=format_instant(two))
        for one, two in zip(cuts, cuts[1:])
    ]
    assert sum(map(total, parts)) == area
    assert total(parts[0]) > 0
    # The uses add up as well, in each row and in the total.
    for row in [*rows(whole), whole["total"]]:
        uses = msgspec.convert(row, Used)["uses"]
        assert sum(each["gpuMs"] for each in uses.values()) == msgspec.convert(row, Used)["gpuMs"]


class Used(TypedDict):
    gpuMs: int
    uses: dict[str, dict[str, Any]]


LOSSES = ("NodeFailure", "Fail", "RandomPreempt", "ReclaimedBySpare")


def uses_of(played: Played, **params: str) -> dict[str, int]:
    total = played.ask("report", **params)["total"]
    return {use: each["gpuMs"] for use, each in msgspec.convert(total, Used)["uses"].items()}


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem[:10])
def test_uses_in_a_report_follow_from_how_leases_ended(file: Path) -> None:
    """Compare with the leases themselves: no work is reported as lost for another reason."""
    played = Played(file)
    found = uses_of(played)
    ended: dict[str, int] = {}
    for lease in played.world.leases.values():
        why = "Spare" if lease.role == "Spare" else str(lease.why.reason) if lease.why else "open"
        whole = lease.gpu_ms(played.now)
        often = played.world.runs[lease.uid].spec.checkpoint
        lost = whole if often is None or why not in LOSSES else min(whole, lease.gpus * often)
        ended[why] = ended.get(why, 0) + lost
        ended["saved"] = ended.get("saved", 0) + whole - lost
    assert found["spare"] == ended.pop("Spare", 0)
    assert found["failed"] == ended.pop("NodeFailure", 0) + ended.pop("Fail", 0)
    assert found["cut"] == ended.pop("RandomPreempt", 0) + ended.pop("ReclaimedBySpare", 0)
    assert found["work"] + found["starting"] == sum(ended.values()) > 0


def test_report_separates_gpu_time_used_by_an_owner_from_gpu_time_it_paid() -> None:
    played = Played(STORY)
    (row,) = rows(played.ask("report", by="owner", owner="org:ai:mm:vision"))
    leases = list(played.world.leases.values())
    used = [each for each in leases if each.owner == "org:ai:mm:vision"]
    paid = [each for each in leases if each.payer_owner == "org:ai:mm:vision"]
    assert row["gpuMs"] == sum(each.gpu_ms(played.now) for each in used)
    assert row["paidGpuMs"] == sum(each.gpu_ms(played.now) for each in paid)
    assert row["gpuMs"] != row["paidGpuMs"]
    by_payer = played.ask("report", by="payer", owner="org:ai:mm:vision")
    assert total(by_payer) == row["paidGpuMs"]


def test_lease_over_several_days_counts_in_each_day() -> None:
    played = Played(STORY)
    played.stage.advance_to(played.start + 3 * DAY)
    days = rows(played.ask("report", by="day", owner="org:ai:mm:audio"))
    assert [day["day"] for day in days][:2] == ["2026-11-02", "2026-11-03"]
    assert all(int(str(day["gpuMs"])) <= 20 * DAY for day in days)
    assert days[1]["gpuMs"] == sum(
        lease.gpus * (min(lease.end or played.now, end) - max(lease.start, start))
        for start, end in [(played.start + 12 * HOUR, played.start + 36 * HOUR)]
        for lease in played.world.leases.values()
        if lease.owner == "org:ai:mm:audio" and lease.start < end and (lease.end or end) > start
    )


QUESTIONS: list[tuple[str, dict[str, str]]] = [
    ("leases", {"node": "b-02", "since": "12h"}),  # who used it last night?
    ("report", {"by": "owner", "owner": "org:ai:mm:vision"}),  # how much did they spend?
    ("leases", {"since": "100m"}),
    ("leases", {"at": "2026-11-02T13:30:00Z"}),
    ("leases", {"closed": "true", "payer": "speech/speech/west"}),
    ("leases", {"namespace": "speech", "run": "decode"}),
    ("leases", {"namespace": "vision", "run": "train"}),
    ("leases", {"closed": "true", "limit": "3"}),
    ("who-pays", {"namespace": "vision", "run": "train"}),
    ("who-pays", {"namespace": "text", "run": "pretrain"}),
    *(("report", {"by": by, "from": "2026-11-02T12:30:00Z"}) for by in GROUPINGS),
]


@pytest.mark.parametrize("asked", QUESTIONS, ids=str)
def test_archived_leases_give_the_same_answers_as_live_ones(
    asked: tuple[str, dict[str, str]],
) -> None:
    played = Played(STORY)
    live = asyncio.run(played.questions().ask(ADMIN, asked[0], asked[1], None))
    then = asyncio.run(compacted(played).ask(ADMIN, asked[0], asked[1], None))
    assert then == live


@pytest.mark.parametrize("asked", QUESTIONS, ids=str)
def test_lease_both_live_and_archived_counts_once(asked: tuple[str, dict[str, str]]) -> None:
    played = Played(STORY)
    live = asyncio.run(played.questions().ask(ADMIN, asked[0], asked[1], None))
    closed = [lease for lease in played.world.leases.values() if not lease.is_open]
    shelf = Shelf(closed, played.world.resolutions.values())
    both = asyncio.run(played.questions(archive=shelf).ask(ADMIN, asked[0], asked[1], None))
    assert both == live


def test_run_with_only_archived_leases_can_be_explained() -> None:
    played = Played(STORY)
    questions = compacted(played)
    decode = {"namespace": "speech", "run": "decode"}
    paid = asyncio.run(questions.ask(ADMIN, "who-pays", decode, None))
    assert paid["gpuHours"] == "24"
    drawn = {"namespace": "text", "run": "pretrain"}
    told = asyncio.run(questions.ask(ADMIN, "explain", drawn, None))
    live = played.ask("explain", **drawn)
    # All but the odds, which the beneficiary's reservation had announced.
    (cut,), (known,) = rows(told, "cuts"), rows(live, "cuts")
    for each in ("resolution", "beneficiary", "seed", "draws", "leases", "gpus", "at"):
        assert cut[each] == known[each]
    assert cut["seed"]


def test_seed_of_a_draw_is_known_without_the_resolution() -> None:
    played = Played(STORY)
    live = played.ask("explain", namespace="text", run="pretrain")
    world = played.world
    for name in list(world.victims):
        del world.victims[name]
    world.resolution_of_seed.clear()
    told = played.ask("explain", namespace="text", run="pretrain")
    (cut,), (known,) = rows(told, "cuts"), rows(live, "cuts")
    assert cut["seed"] == known["seed"]
    assert cut["leases"] == known["leases"]
    assert str(known["seed"]) in str(cut["sentences"])


def test_explain_tells_why_a_run_was_preempted() -> None:
    told = Played(STORY).ask("explain", namespace="text", run="pretrain")
    (cut,) = rows(told, "cuts")
    words = " ".join(map(str, msgspec.convert(told["sentences"], list[str])))
    assert cut["beneficiary"] == "speech/decode"
    assert cut["odds"] == 100
    for each in ("drawn in a lottery", "speech/decode", "100 %", str(cut["seed"]), "requeued",
                 str(cut["resolution"])):  # fmt: skip
        assert each in words


def test_leases_are_filtered_by_node_time_and_state() -> None:
    played = Played(STORY)
    for lease in rows(played.ask("leases", node="b-02", since="12h")):
        assert lease["node"] == "b-02"
    everything = rows(played.ask("leases", since="12h"))
    assert len(everything) == len(played.world.leases)
    assert rows(played.ask("leases", since="12h", limit="2")) == everything[-2:]
    recent = rows(played.ask("leases", since="80m"))  # exactly when a run was preempted
    assert 0 < len(recent) < len(everything)
    assert all(row["end"] is None or str(row["end"]) > "2026-11-02T13:15:00.000Z" for row in recent)
    is_open = rows(played.ask("leases"))
    assert {row["lease"] for row in is_open} == {
        name for names in played.world.open_by_run.values() for name in names
    }
    assert all(row["end"] for row in rows(played.ask("leases", closed="true")))
    at = "2026-11-02T13:15:00Z"
    starts = {str(row["start"])[:19] + "Z" for row in rows(played.ask("leases", at=at))}
    ends = {str(row["end"])[:19] + "Z" for row in rows(played.ask("leases", at=at))}
    assert at in starts  # [start, end): a lease is open at its start
    assert at not in ends  # and no longer at its end


def test_deleted_envelope_is_shown_while_it_still_pays() -> None:
    played = Played(SCENARIOS / "O1-a-budget-is-deleted.yaml", "2h10m")
    [row] = rows(played.ask("budgets", form="usage"))
    assert (row["envelope"], row["state"], row["used"]) == ("t/new/e", "Gone", 8)
