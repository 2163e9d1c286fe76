"""A pod template is tried for its whole gang; a run that cannot be tried is reported."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
from msgspec.structs import replace
from tests.properties.worlds import a_budget, a_lease, a_node, a_run, a_world

from leasehold.adapters.kubernetes.quotas import quota_problem
from leasehold.core.names import Wire
from leasehold.core.objects.wire import part
from leasehold.core.policy import Policy
from leasehold.core.world.world import World
from leasehold.ports.store import Invalid, StoreError
from leasehold.ports.trial import Trial, TriedPod
from leasehold.shell.loop.dry_runs import DryRuns
from leasehold.shell.loop.informer import News


def _run(**spec: object) -> Wire:
    container = {"name": "main", "image": "none"}
    return {
        "apiVersion": "rq.davidlangworthy.io/v1",
        "kind": "Run",
        "metadata": {"name": "train", "namespace": "team", "uid": "u", "generation": 1},
        "spec": {
            "owner": "org:team",
            "resources": {"gpuType": "H", "totalGPUs": 32, "gpusPerPod": 4},
            "template": {"spec": {"containers": [container]}},
            **spec,
        },
    }


def _tried(
    run: Wire, answer: TriedPod | StoreError, world: World | None = None
) -> tuple[list[Trial], list[str], list[str]]:
    """Return the trials, the reasons of refusals, and the reports about runs not tried."""
    asked: list[Trial] = []
    said: list[str] = []

    async def rehearse(trials: Sequence[Trial]) -> Sequence[TriedPod | StoreError]:
        asked.extend(trials)
        return [answer] * len(trials)

    tryouts = DryRuns(rehearse, lambda run, why: said.append(f"{run.key}: {why}"))
    news = [News(kind="Run", gone=False, obj=run)]
    refused = asyncio.run(tryouts.refused(world or World(Policy()), news, 0))
    return asked, [each.why for each in refused.values()], said


def test_run_that_the_server_cannot_try_is_reported_and_not_refused() -> None:
    error = Invalid([("", "admission webhook does not support dry run")], "Pod", "team", "x")
    _, refused, said = _tried(_run(), error)
    assert refused == []
    assert len(said) == 1
    assert said[0].startswith("team/train: ")
    assert "does not support dry run" in said[0]


def test_run_that_was_tried_is_not_reported() -> None:
    for answer in (TriedPod(pod={}), Invalid([("", "exceeded quota: gpus")], "Pod", "team", "x")):
        assert _tried(_run(), answer)[1:] == ([], [])
    _, refused, said = _tried(_run(), Invalid([("spec", "no")], "Pod", "team", "x"))
    assert (len(refused), said) == (1, [])


def test_running_run_is_tried_only_for_its_volumes_and_never_refused() -> None:
    """A refusal of its template today does not end a run that was admitted yesterday."""
    container = {"name": "main", "image": "none"}
    claim = {"name": "v", "persistentVolumeClaim": {"claimName": "data"}}
    refusal = Invalid([("spec", "no")], "Pod", "team", "x")
    for volumes, asked in (([claim], 1), ([], 0)):
        template = {"spec": {"containers": [container], "volumes": volumes}}
        run = _run(template=template)
        world = a_world([a_node("n0")], [a_budget("t")])
        mine = replace(a_run("train"), uid="u")
        world.put_run(mine)
        assert len(_tried(run, refusal, world)[1]) == 1, "it was not let in yet"
        world.fold_open(a_lease(mine, "n0", range(4), batch=1, index=0))
        trials, refused, _ = _tried(run, refusal, world)
        assert (len(trials), refused) == (asked, [])


def test_refused_run_is_tried_again_after_growing_pauses_until_allowed() -> None:
    answers: list[TriedPod | StoreError] = [Invalid([("spec", "no")], "Pod", "team", "x")]
    world, now, asked = World(Policy()), 0, list[int]()

    async def rehearse(trials: Sequence[Trial]) -> Sequence[TriedPod | StoreError]:
        asked.append(now // 1000)
        return [answers[-1]] * len(trials)

    tryouts = DryRuns(rehearse)
    news = [News(kind="Run", gone=False, obj=_run())]
    while now < 40 * 60_000:
        refused = asyncio.run(tryouts.refused(world, news, now))
        assert [each.is_tried_again for each in refused.values()] == [True]
        assert tryouts.next_try is not None
        now = tryouts.next_try
        assert tryouts.due(now - 1) == []
        news = tryouts.due(now)
    answers.append(TriedPod(pod={}))

    assert asyncio.run(tryouts.refused(world, news, now)) == {}
    assert asked[:8] == [0, 1, 3, 7, 15, 31, 63, 127]
    assert asked[-1] - asked[-2] == 600, "it is never asked about less often"
    assert tryouts.next_try is None


@pytest.mark.parametrize("gone", [True, False])
def test_refused_run_is_not_tried_again_once_deleted_or_stopped(gone: bool) -> None:
    tryouts, refusal = DryRuns(_refusing), World(Policy())
    asyncio.run(tryouts.refused(refusal, [News(kind="Run", gone=False, obj=_run())], 0))
    assert tryouts.next_try == 1000

    last = News(kind="Run", gone=gone, obj=_run() if gone else _run(stop=True))
    asyncio.run(tryouts.refused(refusal, [last], 1))

    assert tryouts.next_try is None


@pytest.mark.parametrize("gone", [True, False])
def test_refused_run_is_not_refused_again_with_its_deletion_in_same_news(gone: bool) -> None:
    """Otherwise its finalizer would stay for ever, or a deleted Run would be considered."""
    tryouts, world = DryRuns(_refusing), World(Policy())
    asyncio.run(tryouts.refused(world, [News(kind="Run", gone=False, obj=_run())], 0))
    deleted = _run()
    part(deleted, "metadata")["deletionTimestamp"] = "2026-11-19T02:25:09Z"

    news = [*tryouts.due(1000), News(kind="Run", gone=gone, obj=deleted)]

    assert len(news) == 2
    assert asyncio.run(tryouts.refused(world, news, 1000)) == {}
    assert tryouts.next_try is None


def test_run_with_too_many_arguments_is_refused_without_a_trial() -> None:
    container = {"name": "main", "image": "none", "args": ["x"] * 4097}
    run = _run(template={"spec": {"containers": [container]}})

    asked, refused, _ = _tried(run, TriedPod(pod={}))

    assert asked == []
    [why] = refused
    assert "spec.template.spec.containers[0].args" in why
    assert "use at most 4096" in why


async def _refusing(trials: Sequence[Trial]) -> Sequence[TriedPod | StoreError]:
    return [Invalid([("spec", "no")], "Pod", "team", "x")] * len(trials)


MALLEABLE = {"minTotalGPUs": 16, "maxTotalGPUs": 32, "stepGPUs": 8, "desiredTotalGPUs": 32}


@pytest.mark.parametrize(
    ("spec", "count", "gpus"),
    [
        ({}, 8, 32),
        ({"locality": {"groupGPUs": 8}, "gang": "Group"}, 2, 8),
        ({"locality": {"groupGPUs": 8}, "malleable": MALLEABLE}, 4, 16),
    ],
)
def test_trial_has_the_pods_and_gpus_that_the_run_needs_to_start(
    spec: dict[str, Any], count: int, gpus: int
) -> None:
    [trial] = _tried(_run(**spec), TriedPod(pod={}))[0]
    assert (trial.count, trial.gpus) == (count, gpus)


def _pod(**resources: object) -> Wire:
    return {"spec": {"containers": [{"name": "main", "resources": resources}]}}


QUOTAS = """
# hard                       what is said
pods=3                       allows 3 of pods, but the 4 pods of the Run need 4 together
count/pods=4                 -
requests.nvidia.com/gpu=16   -
requests.nvidia.com/gpu=15   allows 15 of requests.nvidia.com/gpu, but the 4 pods of the Run need 16
cpu=10                       -
requests.cpu=9               allows 9 of requests.cpu, but the 4 pods of the Run need 10 together
limits.memory=4Gi            -
limits.memory=3Gi            allows 3Gi of limits.memory
services=0                   -
pods=nonsense                -
"""


@pytest.mark.parametrize("row", [each for each in QUOTAS.splitlines() if each and each[0] != "#"])
def test_quota_is_checked_for_the_whole_gang(row: str) -> None:
    hard, said = row.split(maxsplit=1)
    name, _, most = hard.partition("=")
    quota: Wire = {"metadata": {"name": "q"}, "spec": {"hard": {name: most}}}
    trial = Trial(pod={}, count=4, gpus=16, gpu_resource="nvidia.com/gpu")
    answer = _pod(requests={"cpu": "2500m"}, limits={"memory": "1Gi"})
    found = quota_problem([quota], trial, answer)
    assert (found == "") == (said == "-")
    assert said == "-" or said in found
    # A quota whose scope excludes these pods is ignored.
    quota["spec"] = {"hard": {name: most}, "scopes": ["BestEffort"]}
    assert quota_problem([quota], trial, answer) == ""
