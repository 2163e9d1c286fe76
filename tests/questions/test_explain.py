"""Explanations of a run's state, for every kind of reason."""

import msgspec
import pytest
from tests.questions.played import FIRST_DAY, SCENARIOS, Played
from tests.questions.test_the_past import STORY, rows

# scenario, until, run, texts that the explanation must contain
TOLD = [
    (
        "A5-a-checkpoint-keeps-the-place-in-the-queue",
        "1h5m",
        "z/z",
        ["planned to start at 2026-01-01T02:00:00Z, in 55m", "x/x with 100 % and y/y with 100 %"],
    ),
    (
        "A5-a-checkpoint-keeps-the-place-in-the-queue",
        "2h5m",
        "x/x",
        ["drawn in a lottery", "for z/z", "not requeued", "set runtime.checkpoint"],
    ),
    (
        "A5-a-checkpoint-keeps-the-place-in-the-queue",
        "2h5m",
        "y/y",
        ["requeued at its old place", "is Pending"],
    ),
    (
        "A5-a-checkpoint-keeps-the-place-in-the-queue",
        "3h1m",
        "y/y",
        ["requeued and started again from its checkpoint"],
    ),
    ("A5-a-checkpoint-keeps-the-place-in-the-queue", "2h50m", "w/w", ["is Blocked"]),
    (
        "F3-a-gang-of-fillers-ends-whole",
        None,
        "o/gang",
        ["the spare that it used was needed", "needed it back"],
    ),
    (
        "O2-refinanced-then-cut",
        None,
        "t/plain",
        ["brought b/b/e back within", "raise the caps of b/b/e"],
    ),
    ("O2-refinanced-then-cut", None, "t/elastic", ["groups given up", "needed no lottery"]),
    (
        "C2-sponsors-in-order-then-their-parents",
        "2h",
        "v/s",
        [
            "it cannot start without a change",
            "q/q/e (Borrowed) pays for nothing: it does not lend",
            "p/p/e (Borrowed) pays for 3 GPUs, and no more: "
            "0 of the 3 GPUs that it may lend were lent",
        ],
    ),
    (
        "Q4-window-aligned-starts",
        "0s",
        "v/twelve",
        ["its window opens at", "a budget window opens"],
    ),
    ("C2-who-may-spend-as-an-owner", "0s", "*", ["OwnerNotAllowed"]),
    (
        "runs-three-attempts",
        None,
        "t/never",
        ["no retries are left", "kubectl runs logs never -n t"],
    ),
    (
        "S3-a-run-with-a-checkpoint-is-requeued",
        None,
        "p/p",
        ["node a-00 was lost, and there was no spare"],
    ),
    ("api-the-binder-is-off", None, "*", ["BinderDisabled"]),
    ("B4-a-gpu-is-free-when-its-pod-is-gone", "50m", "t/old", ["giving up", "are killed"]),
    ("api-a-gang-too-large-for-a-batch", None, "*", ["GangTooLarge"]),
    (
        "O1-a-window-closes-under-running-work",
        "1h",
        "w/r",
        [
            "The window of w/w/nov ends at 2026-12-01T00:00:00Z, before its "
            "limit at 2026-12-01T18:00:00Z"
        ],
    ),
    (
        "O1-a-window-closes-under-running-work",
        "1h",
        "v/r",
        ["The window of v/v/nov ends at", "and it has no limit"],
    ),
    (
        "O1-a-window-closes-under-running-work",
        "2h1m",
        "w/q",
        [
            "Its payer w/w/nov has been overdrawn since 2026-12-01T00:00:00Z",
            "are preempted from 2026-12-01T00:15:00Z on",
        ],
    ),
    (
        "runs-three-attempts",
        "15m",
        "t/third",
        [
            "tried again at 2026-01-01T00:15:30.000Z, and 1 more of 2 retries after that",
            "runs logs third -n t",
        ],
    ),
    (
        "runs-three-attempts",
        "30m30s",
        "t/third",
        ["tried again at 2026-01-01T00:31:30.000Z, and 0 more of"],
    ),
    (
        "E1-a-shrink-waits-for-the-interval-too",
        "1h6m",
        "e/e",
        [
            "should have 16 GPUs and has 32",
            "resize.interval (10m)",
            "at 2026-01-01T01:10:00Z at the earliest",
        ],
    ),
    ("B2-the-back-off-doubles", "5s", "*", ["was rejected; tried again at 2026-01-01T00:00:"]),
    (
        "R4-a-sweep-has-a-bundle-for-each-group",
        "2h5m",
        "g/sweep",
        ["32 GPUs bound, shrunk by resolver (z1-", "drawn"],
    ),
    (
        "R4-a-sweep-has-a-bundle-for-each-group",
        "2h35m",
        "g/sweep",
        ["8 GPUs bound, shrunk by resolver (z1-", ", z2-"],
    ),
]


@pytest.mark.parametrize(("story", "until", "run", "says"), TOLD, ids=lambda each: str(each)[:12])
def test_explanation_contains_the_reasons_for_a_runs_state(
    story: str, until: str | None, run: str, says: list[str]
) -> None:
    played = Played(SCENARIOS / f"{story}.yaml", until)
    keys = sorted(played.world.uid_of) if run == "*" else [run]
    words = ""
    for key in keys:
        namespace, name = key.split("/")
        told = played.ask("explain", namespace=namespace, run=name)
        words += " ".join(msgspec.convert(told["sentences"], list[str]))
        words += " ".join(msgspec.convert(told["remedies"], list[str]))
    for each in says:
        assert each in words


def test_explain_names_the_swap_and_the_payers_in_order() -> None:
    told = Played(STORY).ask("explain", namespace="vision", run="train")
    words = " ".join(msgspec.convert(told["sentences"], list[str]))
    assert "node a-01 was lost; its pod moved to the spare on a-03" in words
    first, second = (
        words.index(f"{name} (") for name in ("vision/vision/west", "speech/speech/west")
    )
    assert first < second
    assert [place["node"] for place in rows(told, "places")] == ["a-00", "a-02", "a-03"]


def test_who_pays_matches_the_leases() -> None:
    played = Played(FIRST_DAY, "3h")
    for key, uid in played.world.uid_of.items():
        namespace, name = key.split("/")
        told = played.ask("who-pays", namespace=namespace, run=name)
        mine = [lease for lease in played.world.leases.values() if lease.uid == uid]
        assert told["gpuMs"] == sum(lease.gpu_ms(played.now) for lease in mine)
        assert told["gpus"] == sum(lease.gpus for lease in mine if lease.is_open)
        for row in rows(told, "payers"):
            theirs = [lease for lease in mine if lease.payer == row["envelope"]]
            assert row["gpuMs"] == sum(lease.gpu_ms(played.now) for lease in theirs)
            assert {lease.payer_owner for lease in theirs} == {row["payerOwner"]}


def test_budgets_match_the_leases() -> None:
    played = Played(STORY)
    leases = [lease for lease in played.world.leases.values() if lease.is_open]
    usage = played.ask("budgets")
    for row in rows(usage):
        paid = [lease for lease in leases if lease.payer == row["envelope"]]
        assert row["used"] == sum(lease.gpus for lease in paid)
        assert row["lent"] == sum(each.gpus for each in paid if each.relation == "Borrowed")
    for row in rows(usage, "owners"):
        held = [lease for lease in leases if lease.owner == row["owner"]]
        assert row["gpus"] == sum(lease.gpus for lease in held)
        assert row["borrowed"] == sum(each.gpus for each in held if each.relation == "Borrowed")
    (vision,) = rows(played.ask("budgets", form="balance", owner="org:ai:mm:vision"))
    spent = {key: msgspec.convert(vision[key], dict[str, object])["gpuMs"]
             for key in ("limit", "used", "committed", "left")}  # fmt: skip
    assert spent["left"] == spent["limit"] - spent["used"] - spent["committed"]  # type: ignore[operator]
    tree = {str(row["owner"]): row for row in rows(played.ask("budgets", form="tree"))}
    below = [msgspec.convert(tree[name]["below"], dict[str, object])["used"]
             for name in ("org:ai", "org:ai:mm", "org:ai:text")]  # fmt: skip
    assert below[0] == below[1] + below[2] == 44  # type: ignore[operator]


def test_reused_name_refers_to_the_newest_run() -> None:
    played = Played(SCENARIOS / "api-deleted-and-submitted-again.yaml")
    keys = {lease.run_key for lease in played.world.leases.values()}
    for key in keys:
        namespace, name = key.split("/")
        newest = max(
            (each for each in played.world.leases.values() if each.run_key == key),
            key=lambda each: each.batch,
        )
        told = played.ask("leases", namespace=namespace, run=name)
        assert {row["attempt"] for row in rows(told)}
        assert newest.name in {row["lease"] for row in rows(told)}
        uids = {played.world.leases[str(row["lease"])].uid for row in rows(told)}
        assert len(uids) == 1
