"""Environment variables of pods: their names, and which values stay when a pod moves."""

from msgspec.structs import replace

from leasehold.control.running.pods import environment
from leasehold.core.facts import Gang, Lease, Malleable, Opened, Relation, Role, Run, RunSpec

SPEC = RunSpec(owner="t", flavor="H", total_gpus=16, group_gpus=8, gpus_per_pod=8)
RUN = Run(namespace="n", name="train", uid="uid-7", created=0, spec=SPEC)
FIXED = ("MASTER_ADDR", "MASTER_PORT", "WORLD_SIZE", "RANK", "NNODES", "NODE_RANK")


def lease(group: int, node: str, first_slot: int = 0) -> Lease:
    return Lease(
        name=f"train-1-{group}",
        owner="t",
        namespace="n",
        run="train",
        uid="uid-7",
        attempt=2,
        group=group,
        index=0,
        node=node,
        slots=tuple(range(first_slot, first_slot + 8)),
        role=Role.ACTIVE,
        start=0,
        payer="n/b/e",
        payer_owner="t",
        relation=Relation.OWNED,
        reason=Opened.START,
        batch=1,
        pod=f"train-1-g{group}-p0",
    )


GANG = [[lease(0, "a-00", 8)], [lease(1, "a-01")]]


def test_pod_of_a_fixed_run_gets_ranks_of_the_whole_run() -> None:
    told = environment(RUN, GANG[1], GANG)
    assert told == {
        "MASTER_ADDR": "a-00",
        "MASTER_PORT": "29508",
        "WORLD_SIZE": "16",
        "RANK": "8",
        "NNODES": "2",
        "NODE_RANK": "1",
        "NPROC_PER_NODE": "8",
        "PET_MASTER_ADDR": "a-00",
        "PET_MASTER_PORT": "29508",
        "PET_NNODES": "2",
        "PET_NODE_RANK": "1",
        "PET_NPROC_PER_NODE": "8",
        "LEASEHOLD_RUN": "n/train",
        "LEASEHOLD_GROUP": "1",
        "LEASEHOLD_LEASES": "train-1-1",
        "LEASEHOLD_ATTEMPT": "2",
    }


def test_separate_group_has_a_rank_world_of_its_own() -> None:
    sweep = replace(RUN, spec=replace(SPEC, gang=Gang.GROUP))
    told = environment(sweep, GANG[1], GANG)
    assert [told[name] for name in FIXED] == ["a-01", "29500", "8", "0", "1", "0"]


def test_elastic_run_keeps_its_rendezvous_endpoint_when_a_pod_moves() -> None:
    grid = Malleable(min_gpus=8, max_gpus=32, step_gpus=8, desired_gpus=16)
    elastic = replace(RUN, spec=replace(SPEC, malleable=grid))
    told = environment(elastic, GANG[1], GANG)
    assert not set(FIXED) & set(told)
    assert told["PET_NNODES"] == "1:4"
    assert told["PET_RDZV_BACKEND"] == "c10d"
    assert told["PET_RDZV_ID"] == "uid-7-2"
    assert told["PET_RDZV_ENDPOINT"].startswith("train.n:")
    # Pod 0 has moved to its spare's slots: pods started now must use the same endpoint.
    moved = [[lease(0, "a-02", 0)], GANG[1]]
    assert environment(elastic, moved[0], moved)["PET_RDZV_ENDPOINT"] == told["PET_RDZV_ENDPOINT"]
    spared = replace(RUN, spec=replace(SPEC, spares_per_group=8))
    assert environment(spared, GANG[0], GANG)["PET_NNODES"] == "2:2"
