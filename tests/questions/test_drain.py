"""What happens to the runs on a drained node: what will happen, what happens, and what has."""

from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace
from tests.questions.played import SCENARIOS, Played

from leasehold.core.placement.drain import spares_to_drop
from leasehold.shell.queries.query import BadQuestion
from leasehold.sim.machines import NodeIs

# scenario, until, node, and for each run there: way, state, end of the sentence
ROWS = [
    (
        "maintenance-the-spare-takes-over",
        "59m",
        "a-00",
        ["r/train wait stays stays, because the node is not being drained"],
    ),
    (
        "maintenance-the-spare-takes-over",
        "1h1s",
        "a-00",
        ["r/train swap going is stopping, to move to its spare"],
    ),
    (
        "maintenance-the-spare-takes-over",
        "1h1m",
        "a-00",
        ["r/train swap gone swapped to its spare on a-02"],
    ),
    (
        "maintenance-a-run-with-a-checkpoint-moves",
        "1h1s",
        "a-00",
        ["r/train requeue going is stopping, to be requeued"],
    ),
    (
        "maintenance-a-run-with-a-checkpoint-moves",
        "1h1m",
        "a-00",
        ["r/train requeue gone requeued"],
    ),
    (
        "maintenance-a-run-with-a-checkpoint-moves",
        "2h40m",
        "a-00",
        ["r/train requeue gone requeued"],
    ),
    (
        "maintenance-what-cannot-move-ends-by-itself",
        "1h",
        "a-00",
        [
            "r/fixed wait stays stays until it ends by itself: it has no runtime.checkpoint, "
            "and no spare to move to"
        ],
    ),
    (
        "maintenance-what-cannot-move-ends-by-itself",
        "2h",
        "a-00",
        ["r/fixed end gone ended (Completed)"],
    ),
    (
        "maintenance-a-restart-in-every-pause",
        "1h3s",
        "a-00",
        ["r/train swap going moves to its spare on a-01 as soon as that spare is clear"],
    ),
    (
        "maintenance-spares-and-fillers-on-the-node",
        "1h1m",
        "a-01",
        [
            "o/plain wait stays stays until it ends by itself: it has no runtime.checkpoint, "
            "and no spare to move to",
            "o/saves requeue gone requeued",
            "r/train spare gone gave up its spare",
        ],
    ),
    (
        "maintenance-an-elastic-run-gives-up-the-group",
        "1h",
        "a-01",
        ["r/stretch shrink gone gave up group 1 and continued"],
    ),
    ("maintenance-one-group-of-a-sweep", "1h", "a-01", ["r/sweep requeue gone requeued"]),
    (
        "maintenance-two-nodes-and-one-spare",
        "1h1m",
        "a-01",
        [
            "r/plain wait stays stays until it ends by itself: it has no runtime.checkpoint, "
            "and too few spares to move to"
        ],
    ),
    (
        "maintenance-a-silent-node-is-left-alone",
        "1h30m",
        "a-00",
        [
            "r/saves wait stays stays until it ends by itself: it also runs on node a-01, whose "
            "agent does not answer"
        ],
    ),
    (
        "maintenance-a-silent-node-is-left-alone",
        "2h30m",
        "a-00",
        [
            "r/saves wait stays stays until it ends by itself: the agent of node a-00 does not "
            "answer"
        ],
    ),
    (
        "maintenance-two-groups-and-one-spare",
        "2h",
        "b-00",
        ["r/stretch shrink gone gave up group 1 and continued"],
    ),
]


@pytest.mark.parametrize(("story", "until", "node", "told"), ROWS, ids=lambda each: str(each)[:14])
def test_drain_shows_way_and_state_of_each_run_on_the_node(
    story: str, until: str, node: str, told: list[str]
) -> None:
    played = Played(SCENARIOS / f"{story}.yaml", until)
    answer = played.ask("drain", node=node, since="2h")
    rows = msgspec.convert(answer["items"], list[dict[str, object]])
    assert [" ".join(str(row[key]) for key in ("run", "way", "state", "says"))
            for row in rows] == told  # fmt: skip
    open_gpus = [lease.gpus for lease in played.world.leases.values()
                 if lease.node == node and lease.is_open]  # fmt: skip
    assert answer["gpus"] == sum(open_gpus) == sum(int(str(row["gpus"])) for row in rows)


def test_drain_without_since_shows_only_runs_still_on_the_node() -> None:
    played = Played(SCENARIOS / "maintenance-spares-and-fillers-on-the-node.yaml", "1h1m")
    answer = played.ask("drain", node="a-01")
    assert (answer["draining"], answer["askedBy"], answer["gpus"]) == (True, "the story", 4)
    assert [row["run"] for row in msgspec.convert(answer["items"], list[dict[str, object]])] == [
        "o/plain"
    ]


def test_drain_names_the_group_of_a_sweep() -> None:
    played = Played(SCENARIOS / "maintenance-one-group-of-a-sweep.yaml", "1h")
    rows = msgspec.convert(played.ask("drain", node="a-01", since="1h")["items"], list[dict])
    assert [row["group"] for row in rows] == [1]


def test_drain_of_an_unknown_node_is_not_found() -> None:
    played = Played(SCENARIOS / "maintenance-the-spare-takes-over.yaml", "1m")
    with pytest.raises(BadQuestion, match="'z-00' not found"):
        played.ask("drain", node="z-00")


# scenario, until, run, text of explain
EXPLAINED = [
    (
        "maintenance-the-spare-takes-over",
        "1h1s",
        "r/train",
        "node a-00 was drained by the story: group 0 pod 0 moves to its spare.",
    ),
    (
        "maintenance-the-spare-takes-over",
        "1h1m",
        "r/train",
        "At 2026-01-01T01:00:00Z node a-00 was drained by the "
        "story: group 0 pod 0 moved to its spare on a-02.",
    ),
    (
        "maintenance-the-spare-takes-over",
        "2h",
        "r/train",
        "node a-00 was drained: group 0 pod 0 moved",
    ),
    (
        "maintenance-a-run-with-a-checkpoint-moves",
        "1h1m",
        "r/train",
        "node a-00 was drained by the story: it was stopped, with "
        "16 GPUs, and requeued at its old place.",
    ),
    (
        "maintenance-spares-and-fillers-on-the-node",
        "1h1m",
        "r/train",
        "node a-01 was drained by the story: it gave up spares of 8 GPUs.",
    ),
    (
        "maintenance-an-elastic-run-gives-up-the-group",
        "1h1m",
        "r/stretch",
        "it gave up group 1 and continued.",
    ),
    (
        "maintenance-one-group-of-a-sweep",
        "1h1m",
        "r/sweep",
        "group 1 was stopped, with 4 GPUs, and requeued",
    ),
    (
        "maintenance-two-groups-and-one-spare",
        "2h",
        "r/stretch",
        "group 0 pod 0 moved to its spare on b-01 and it gave up group 1 and continued.",
    ),
]


@pytest.mark.parametrize(("story", "until", "run", "says"), EXPLAINED)
def test_explain_names_the_drained_node_and_what_happened(
    story: str, until: str, run: str, says: str
) -> None:
    played = Played(SCENARIOS / f"{story}.yaml", until)
    namespace, name = run.split("/")
    told = played.ask("explain", namespace=namespace, run=name)
    words = " ".join(msgspec.convert(told["sentences"], list[str]))
    assert says in words
    assert "was lost" not in words


def test_explain_counts_the_attempt_as_requeued_and_not_as_failed() -> None:
    played = Played(SCENARIOS / "maintenance-a-run-with-a-checkpoint-moves.yaml", "1h1m")
    attempts = msgspec.convert(
        played.ask("explain", namespace="r", run="train")["attempts"], list[dict[str, object]]
    )
    assert [(row["attempt"], row["outcome"], row["cause"]) for row in attempts] == [
        (1, "Swap", ""), (2, "", ""),
    ]  # fmt: skip


STOPPING = """\
title: Four ways of stopping, seen in the middle
fleet:
  - {domain: a, nodes: 3, gpus: 8, flavor: H, region: r, cluster: c}
budgets:
  r/r: {owner: "r:team", envelopes: [{name: e, flavor: H, concurrency: 24}]}
  o/o: {owner: "o:team", envelopes: [{name: e, flavor: H, concurrency: 8}]}
steps:
  - at: 0s
    submit:
      r/stretch:
        owner: "r:team"
        resources: {gpuType: H, totalGPUs: 8, gpusPerPod: 4}
        locality: {groupGPUs: 4}
        malleable: {minTotalGPUs: 4, maxTotalGPUs: 8, desiredTotalGPUs: 8}
      r/spared: {owner: "r:team", resources: {gpuType: H, totalGPUs: 4, gpusPerPod: 4},
                 sparesPerGroup: 4}
    work: {stops: 10s}
  - at: 2h
    submit: {o/fill: {owner: "o:team", resources: {gpuType: H, totalGPUs: 4, gpusPerPod: 4}}}
    work: {stops: 10s}
  - {at: 3h, cancel: o/fill}
"""


def test_drain_shows_runs_that_stop_and_runs_not_asked_to_leave(tmp_path: Path) -> None:
    file = tmp_path / "story.yaml"
    file.write_text(STOPPING)
    played = Played(file, "3h")
    places = {
        (lease.run, str(lease.role)): lease.node
        for lease in played.world.leases.values()
        if lease.is_open
    }
    spare = places["spared", "Spare"]

    def told(node: str) -> dict[str, str]:
        rows = msgspec.convert(played.ask("drain", node=node)["items"], list[dict[str, object]])
        return {str(row["run"]): f"{row['way']} {row['state']} {row['says']}" for row in rows}

    assert told(spare)["r/spared"] == "spare stays holds a spare there"
    assert told(places["fill", "Active"])["o/fill"] == "end going is ending (Canceled)"
    stretch = places["stretch", "Active"]
    played.stage.fleet.set_node(stretch, NodeIs.DRAINING)
    played.stage.settle()
    assert told(stretch)["r/stretch"] == "shrink going gives up group 1 and continues"


def test_drained_node_keeps_its_run_while_the_binder_is_off() -> None:
    played = Played(SCENARIOS / "maintenance-a-run-with-a-checkpoint-moves.yaml", "59m")
    world = played.world
    played.stage.fleet.set_node("a-00", NodeIs.DRAINING)
    world.policy = replace(world.policy, binder_enabled=False)
    played.stage.settle()
    rows = msgspec.convert(played.ask("drain", node="a-00")["items"], list[dict[str, object]])
    assert [row["says"] for row in rows] == [
        "stays until it ends by itself: binder.enabled is false"
    ]
    assert all(spares_to_drop(world, uid) == [] for uid in world.runs)
