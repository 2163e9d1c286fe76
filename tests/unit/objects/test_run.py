"""Runs: every rule with its path, defaults, and decoding."""

import pytest

from leasehold.core.facts import Funding, Gang, Malleable, Run, RunSpec, Selector, Toleration
from leasehold.core.objects.problems import InvalidManifest
from leasehold.core.objects.run import check_run, run_from_wire

LEGAL = {"owner": "t:team", "resources": {"gpuType": "H100", "totalGPUs": 32, "gpusPerPod": 4}}
GROUPS = {**LEGAL, "locality": {"groupGPUs": 8}}
ELASTIC = {"minTotalGPUs": 16, "maxTotalGPUs": 64, "stepGPUs": 16, "desiredTotalGPUs": 48}


def run(spec: object) -> dict[str, object]:
    return {"metadata": {"namespace": "t", "name": "r"}, "spec": spec}


def resources(**changes: object) -> dict[str, object]:
    return {**LEGAL, "resources": {**LEGAL["resources"], **changes}}  # type: ignore[dict-item]


def elastic(**changes: object) -> dict[str, object]:
    return {**GROUPS, "malleable": {**ELASTIC, **changes}}


def template(**pod: object) -> dict[str, object]:
    return {**LEGAL, "template": {"spec": {"containers": [{"name": "main"}], **pod}}}


def container(**fields: object) -> dict[str, object]:
    return template(containers=[{"name": "main", **fields}])


C0 = "spec.template.spec.containers[0]"
RULES: tuple[tuple[str, object, list[str]], ...] = (
    ("legal", LEGAL, []),
    ("with groups", GROUPS, []),
    ("nothing", None, ["spec"]),
    ("empty", {}, ["spec.owner", "spec.resources"]),
    ("resources that are a text", {"owner": "t", "resources": "x"}, ["spec.resources"]),
    ("no flavor", {"owner": "t", "resources": {"totalGPUs": 8}}, ["spec.resources.gpuType"]),
    (
        "a typo",
        {"owner": "t", "resources": {"gpuType": "H100", "totalGPU": 8}},
        ["spec.resources.totalGPUs", "spec.resources.totalGPU"],
    ),
    ("a bad owner", {**LEGAL, "owner": "Ünit"}, ["spec.owner"]),
    ("an unknown field", {**LEGAL, "priority": 9}, ["spec.priority"]),
    ("no GPUs", resources(totalGPUs=0), ["spec.resources.totalGPUs"]),
    ("far too many", resources(totalGPUs=2**70), ["spec.resources.totalGPUs"]),
    ("a float", resources(totalGPUs=8.5), ["spec.resources.totalGPUs"]),
    ("pods off the total", resources(gpusPerPod=5), ["spec.resources.gpusPerPod"]),
    (
        "pods off the group",
        {**resources(gpusPerPod=16), "locality": {"groupGPUs": 8}},
        ["spec.resources.gpusPerPod"],
    ),
    (
        "the most groups",
        {**resources(totalGPUs=4096, gpusPerPod=1), "locality": {"groupGPUs": 1}},
        [],
    ),
    (
        "too many groups",
        {**resources(totalGPUs=4097, gpusPerPod=1), "locality": {"groupGPUs": 1}},
        ["spec.locality.groupGPUs"],
    ),
    (
        "too many groups after growth",
        elastic(minTotalGPUs=8, maxTotalGPUs=8 * 4097, stepGPUs=8),
        ["spec.locality.groupGPUs"],
    ),
    ("the most pods", resources(totalGPUs=16_384 * 8, gpusPerPod=8), []),
    (
        "too many pods",
        resources(totalGPUs=16_384 * 8 + 8, gpusPerPod=8),
        ["spec.resources.gpusPerPod"],
    ),
    (
        "possibly too many pods",
        {"owner": "t", "resources": {"gpuType": "H100", "totalGPUs": 16_385}},
        ["spec.resources.gpusPerPod"],
    ),
    (
        "too many spares",
        {**resources(totalGPUs=8, gpusPerPod=1), "sparesPerGroup": 16_384},
        ["spec.resources.gpusPerPod"],
    ),
    (
        "a pod that no node holds",
        resources(totalGPUs=2048, gpusPerPod=2048),
        ["spec.resources.gpusPerPod"],
    ),
    ("groups off the total", {**LEGAL, "locality": {"groupGPUs": 12}}, ["spec.locality.groupGPUs"]),
    (
        "a group over the total",
        {**LEGAL, "locality": {"groupGPUs": 64}},
        ["spec.locality.groupGPUs"],
    ),
    (
        "groups and pods off",
        {**resources(gpusPerPod=5), "locality": {"groupGPUs": 12}},
        ["spec.locality.groupGPUs"],
    ),
    ("a bad group", {**LEGAL, "locality": {"groupGPUs": "8"}}, ["spec.locality.groupGPUs"]),
    (
        "a bad spread",
        {**LEGAL, "locality": {"allowCrossGroupSpread": "no"}},
        ["spec.locality.allowCrossGroupSpread"],
    ),
    (
        "a bad selector",
        {**LEGAL, "locality": {"selector": {"rack": "r1"}}},
        ["spec.locality.selector.rack"],
    ),
    (
        "a bad domain",
        {**LEGAL, "locality": {"selector": {"fabric.domain": 5}}},
        ["spec.locality.selector[fabric.domain]"],
    ),
    ("a bad gang", {**LEGAL, "gang": "Pod"}, ["spec.gang"]),
    (
        "a bad flag",
        {**LEGAL, "stop": "yes", "opportunistic": 1},
        ["spec.opportunistic", "spec.stop"],
    ),
    (
        "a bad runtime",
        {
            **LEGAL,
            "runtime": {
                "maxDuration": "0s",
                "checkpoint": 5,
                "retries": -1,
                "gracePeriod": "x",
                "limit": 1,
            },
        },
        [
            "spec.runtime.maxDuration",
            "spec.runtime.checkpoint",
            "spec.runtime.retries",
            "spec.runtime.gracePeriod",
            "spec.runtime.limit",
        ],
    ),
    ("elastic", elastic(), []),
    ("elastic with gang Group", {**elastic(), "gang": "Group"}, []),
    ("elastic by default", {**GROUPS, "malleable": {"minTotalGPUs": 8, "maxTotalGPUs": 64}}, []),
    (
        "an empty malleable",
        {**GROUPS, "malleable": {}},
        ["spec.malleable.minTotalGPUs", "spec.malleable.maxTotalGPUs"],
    ),
    ("min over max", elastic(minTotalGPUs=80), ["spec.malleable.minTotalGPUs"]),
    ("min off the group", elastic(minTotalGPUs=12), ["spec.malleable.minTotalGPUs"]),
    ("max off the group", elastic(maxTotalGPUs=60), ["spec.malleable.maxTotalGPUs"]),
    ("step off the group", elastic(stepGPUs=12), ["spec.malleable.stepGPUs"]),
    ("max off the grid", elastic(maxTotalGPUs=72), ["spec.malleable.maxTotalGPUs"]),
    (
        "total off the grid",
        {**elastic(), "resources": {"gpuType": "H100", "totalGPUs": 40}},
        ["spec.resources.totalGPUs"],
    ),
    (
        "total over the grid",
        {**elastic(), "resources": {"gpuType": "H100", "totalGPUs": 80}},
        ["spec.resources.totalGPUs"],
    ),
    ("desired off the grid", elastic(desiredTotalGPUs=40), ["spec.malleable.desiredTotalGPUs"]),
    ("desired under the grid", elastic(desiredTotalGPUs=8), ["spec.malleable.desiredTotalGPUs"]),
    ("desired over the grid", elastic(desiredTotalGPUs=80), ["spec.malleable.desiredTotalGPUs"]),
    ("a bad step", elastic(stepGPUs=0), ["spec.malleable.stepGPUs"]),
    (
        "elastic over a bad group",
        {**elastic(), "locality": {"groupGPUs": 5}},
        ["spec.locality.groupGPUs"],
    ),
    ("elastic typo", elastic(maxGPUs=5), ["spec.malleable.maxGPUs"]),
    ("spares", {**GROUPS, "sparesPerGroup": 4}, []),
    ("half a spare", {**GROUPS, "sparesPerGroup": 6}, ["spec.sparesPerGroup"]),
    ("negative spares", {**GROUPS, "sparesPerGroup": -4}, ["spec.sparesPerGroup"]),
    (
        "sponsors, no borrowing",
        {**LEGAL, "funding": {"sponsors": ["x:y"]}},
        ["spec.funding.sponsors"],
    ),
    ("no sponsors, no borrowing", {**LEGAL, "funding": {"sponsors": [], "maxBorrowGPUs": 0}}, []),
    (
        "a cap, no borrowing",
        {**LEGAL, "funding": {"maxBorrowGPUs": 8}},
        ["spec.funding.maxBorrowGPUs"],
    ),
    (
        "a bad sponsor",
        {**LEGAL, "funding": {"allowBorrow": True, "sponsors": ["x:*"]}},
        ["spec.funding.sponsors[0]"],
    ),
    (
        "allowBorrow that is a text",
        {**LEGAL, "funding": {"allowBorrow": "yes", "sponsors": ["x"]}},
        ["spec.funding.allowBorrow"],
    ),
    ("borrowing all", {**LEGAL, "funding": {"allowBorrow": True, "maxBorrowGPUs": 32}}, []),
    (
        "borrowing more",
        {**LEGAL, "funding": {"allowBorrow": True, "maxBorrowGPUs": 33}},
        ["spec.funding.maxBorrowGPUs"],
    ),
    (
        "borrowing up to the widest",
        {**elastic(), "funding": {"allowBorrow": True, "maxBorrowGPUs": 64}},
        [],
    ),
    (
        "borrowing over the widest",
        {**elastic(), "funding": {"allowBorrow": True, "maxBorrowGPUs": 65}},
        ["spec.funding.maxBorrowGPUs"],
    ),
    (
        "borrowing spares too",
        {**GROUPS, "sparesPerGroup": 4, "funding": {"allowBorrow": True, "maxBorrowGPUs": 48}},
        [],
    ),
    (
        "borrowing over spares",
        {**GROUPS, "sparesPerGroup": 4, "funding": {"allowBorrow": True, "maxBorrowGPUs": 49}},
        ["spec.funding.maxBorrowGPUs"],
    ),
    (
        "borrowing, total unknown",
        {**resources(totalGPUs=0), "funding": {"allowBorrow": True, "maxBorrowGPUs": 49}},
        ["spec.resources.totalGPUs"],
    ),
    (
        "borrowing, max unknown",
        {**elastic(maxTotalGPUs=0), "funding": {"allowBorrow": True, "maxBorrowGPUs": 49}},
        ["spec.malleable.maxTotalGPUs"],
    ),
    (
        "borrowing, spares unknown",
        {**GROUPS, "sparesPerGroup": 3, "funding": {"allowBorrow": True, "maxBorrowGPUs": 49}},
        ["spec.sparesPerGroup"],
    ),
    (
        "borrowing, groups unknown",
        {
            **LEGAL,
            "locality": {"groupGPUs": 0},
            "sparesPerGroup": 4,
            "funding": {"allowBorrow": True, "maxBorrowGPUs": 49},
        },
        ["spec.locality.groupGPUs"],
    ),
    ("a template", template(), []),
    ("a disk requested", container(resources={"limits": {"ephemeral-storage": "1Gi"}}), []),
    ("a port", container(ports=[{"containerPort": 80}]), []),
    ("nulls", container(args=None, image=None), []),
    (
        "no container",
        {**LEGAL, "template": {"spec": {"containers": []}}},
        ["spec.template.spec.containers"],
    ),
    ("no pod spec", {**LEGAL, "template": {}}, ["spec.template.spec"]),
    ("a pod spec that is a text", {**LEGAL, "template": {"spec": "x"}}, ["spec.template.spec"]),
    ("a template that is a list", {**LEGAL, "template": []}, ["spec.template"]),
    (
        "an unknown template field",
        {**LEGAL, "template": {"specs": {}, "spec": {"containers": [{"name": "a"}]}}},
        ["spec.template.specs"],
    ),
    ("containers that are a mapping", template(containers={}), ["spec.template.spec.containers"]),
    ("a container without a name", template(containers=[{}]), [f"{C0}.name"]),
    (
        "two containers of a name",
        template(containers=[{"name": "a"}, {"name": "a"}]),
        ["spec.template.spec.containers[1].name"],
    ),
    ("affinity", template(affinity={"x": 1}), ["spec.template.spec.affinity"]),
    ("nodeName", template(nodeName="n"), ["spec.template.spec.nodeName"]),
    ("nodeSelector", template(nodeSelector={"a": "b"}), ["spec.template.spec.nodeSelector"]),
    ("resourceClaims", template(resourceClaims=[]), ["spec.template.spec.resourceClaims"]),
    ("schedulerName", template(schedulerName="x"), ["spec.template.spec.schedulerName"]),
    ("schedulingGates", template(schedulingGates=[]), ["spec.template.spec.schedulingGates"]),
    (
        "topologySpreadConstraints",
        template(topologySpreadConstraints=[]),
        ["spec.template.spec.topologySpreadConstraints"],
    ),
    ("a priority", template(priorityClassName="x"), ["spec.template.spec.priorityClassName"]),
    ("a deadline", template(activeDeadlineSeconds=1), ["spec.template.spec.activeDeadlineSeconds"]),
    ("restarts", template(restartPolicy="OnFailure"), ["spec.template.spec.restartPolicy"]),
    ("a host port", container(ports=[{"hostPort": 80}]), [f"{C0}.ports[0].hostPort"]),
    ("a claim", container(resources={"claims": [{}]}), [f"{C0}.resources.claims"]),
    (
        "GPUs requested",
        container(resources={"limits": {"nvidia.com/gpu": 1}}),
        [f"{C0}.resources.limits[nvidia.com/gpu]"],
    ),
    (
        "other GPUs requested",
        container(resources={"requests": {"amd.com/gpu": 1}}),
        [f"{C0}.resources.requests[amd.com/gpu]"],
    ),
    (
        "GPUs of an init container",
        template(initContainers=[{"name": "i", "resources": {"limits": {"nvidia.com/gpu": 1}}}]),
        ["spec.template.spec.initContainers[0].resources.limits[nvidia.com/gpu]"],
    ),
    (
        "a bad CPU",
        container(resources={"requests": {"cpu": "lots"}}),
        [f"{C0}.resources.requests.cpu"],
    ),
    (
        "a bad memory",
        container(resources={"limits": {"memory": "-1Gi"}}),
        [f"{C0}.resources.limits.memory"],
    ),
    ("a variable without a name", container(env=[{"value": "x"}]), [f"{C0}.env[0].name"]),
    (
        "a variable that is a number",
        container(env=[{"name": "A", "value": 0}]),
        [f"{C0}.env[0].value"],
    ),
    ("an image that is a number", container(image=5), [f"{C0}.image"]),
    ("a folder that is a number", container(workingDir=0), [f"{C0}.workingDir"]),
    ("a folder that is a list", container(workingDir=[]), [f"{C0}.workingDir"]),
    ("a pull policy that is a number", container(imagePullPolicy=0), [f"{C0}.imagePullPolicy"]),
    ("a command that is a text", container(command="train"), [f"{C0}.command"]),
    ("an argument that is a number", container(args=["-n", 4]), [f"{C0}.args"]),
    (
        "a grace period that is a text",
        template(terminationGracePeriodSeconds="30"),
        ["spec.template.spec.terminationGracePeriodSeconds"],
    ),
    (
        "a label that is a number",
        {
            **LEGAL,
            "template": {"metadata": {"labels": {"a": 1}}, "spec": {"containers": [{"name": "a"}]}},
        },
        ["spec.template.metadata.labels.a"],
    ),
    (
        "a label that is nothing",
        {
            **LEGAL,
            "template": {
                "metadata": {"labels": {"a": None}},
                "spec": {"containers": [{"name": "a"}]},
            },
        },
        ["spec.template.metadata.labels.a"],
    ),
    ("a number too long", container(args=[2**64]), [f"{C0}.args[0]"]),
    ("not a number", container(args=[float("nan")]), [f"{C0}.args[0]"]),
    ("half a surrogate pair", container(args=["\ud800"]), [f"{C0}.args[0]"]),
    ("a key that is a number", container(args=[{1: 2}]), [f"{C0}.args[0][1]"]),
    ("a set", container(args=[{1}]), [f"{C0}.args[0]"]),
)


@pytest.mark.parametrize(
    ("spec", "expected"), [row[1:] for row in RULES], ids=[r[0] for r in RULES]
)
def test_check_run_reports_path_of_each_problem(spec: object, expected: list[str]) -> None:
    assert [problem.path for problem in check_run(run(spec))] == expected


def test_too_deeply_nested_template_is_refused() -> None:
    deep: object = "x"
    for _ in range(5000):
        deep = [deep]

    found = check_run(run(container(args=deep)))

    assert [problem.remedy for problem in found] == ["nest at most 32 deep"]


def test_missing_template_is_reported_if_required() -> None:
    found = check_run(run(LEGAL), require_template=True)

    assert [problem.path for problem in found] == ["spec.template"]


def test_remedy_names_the_nearest_legal_widths() -> None:
    wrong = {20: "16 or 32", 8: "16", 80: "64"}

    for desired, choice in wrong.items():
        [problem] = check_run(run(elastic(stepGPUs=16, desiredTotalGPUs=desired)))

        assert problem.remedy.endswith(f"use {choice}")


def test_remedy_for_too_many_groups_states_number_and_limit() -> None:
    spec = {**resources(totalGPUs=1_000_000, gpusPerPod=1), "locality": {"groupGPUs": 1}}

    [problem] = check_run(run(spec))

    assert (problem.path, problem.value) == ("spec.locality.groupGPUs", "1")
    assert problem.remedy == (
        "this makes 1000000 groups; a Run has at most 4096; use 245 or more, or submit several Runs"
    )


def test_run_with_possibly_too_many_pods_must_state_gpus_per_pod() -> None:
    [problem] = check_run(
        run({"owner": "t", "resources": {"gpuType": "H100", "totalGPUs": 100_000}})
    )

    assert problem.remedy == (
        "without gpusPerPod a pod may have one GPU: this makes up to 100000 pods, spares "
        "included; a Run has at most 16384; use 7 or more, or submit several Runs"
    )


def test_stored_run_with_too_many_groups_is_not_decoded() -> None:
    spec = {**resources(totalGPUs=1_000_000, gpusPerPod=1), "locality": {"groupGPUs": 1}}

    with pytest.raises(InvalidManifest, match="a Run has at most 4096"):
        run_from_wire(run(spec))


def test_run_without_optional_fields_gets_defaults() -> None:
    got = run_from_wire(run({"owner": "t", "resources": {"gpuType": "H100", "totalGPUs": 8}}))

    assert got == Run(
        namespace="t",
        name="r",
        uid="",
        created=0,
        finalizers=(),
        spec=RunSpec(owner="t", flavor="H100", total_gpus=8, group_gpus=8),
    )


def test_elastic_run_gets_default_step_and_desired_width() -> None:
    got = run_from_wire(run({**GROUPS, "malleable": {"minTotalGPUs": 8, "maxTotalGPUs": 64}}))

    assert got.spec.malleable == Malleable(min_gpus=8, max_gpus=64, step_gpus=8, desired_gpus=32)


FULL_POD: dict[str, object] = {
    "containers": [
        {
            "name": "main",
            "image": "i",
            "resources": {"requests": {"cpu": "500m", "memory": "1Gi"}},
        },
        {"name": "side", "resources": {"limits": {"cpu": 1, "memory": "1k"}}},
    ],
    "initContainers": [{"name": "first", "resources": {"requests": {"cpu": "100m"}}}],
    "tolerations": [{"key": "k", "operator": "Exists", "effect": "NoSchedule"}, {}],
}
FULL_SPEC = {
    **elastic(),
    "locality": {
        "groupGPUs": 8,
        "allowCrossGroupSpread": False,
        "selector": {"region": "w", "cluster": "a", "fabric.domain": "d"},
    },
    "gang": "Group",
    "sparesPerGroup": 4,
    "opportunistic": True,
    "stop": True,
    "runtime": {"maxDuration": "6h", "checkpoint": "30m", "retries": 2, "gracePeriod": "0s"},
    "funding": {"allowBorrow": True, "maxBorrowGPUs": 8, "sponsors": ["x:y"]},
    "template": {"spec": FULL_POD},
}


def test_full_run_is_decoded_with_all_fields() -> None:
    metadata = {
        "namespace": "t",
        "name": "r",
        "uid": "u",
        "resourceVersion": "7",
        "creationTimestamp": "1970-01-01T00:00:01.000Z",
        "deletionTimestamp": "1970-01-01T00:00:02Z",
        "finalizers": ["rq.davidlangworthy.io/leases-closed"],
    }

    got = run_from_wire({"metadata": metadata, "spec": FULL_SPEC, "status": {"boundAttempt": 3}})

    assert got == Run(
        namespace="t",
        name="r",
        uid="u",
        created=1000,
        version=7,
        deleting=True,
        finalizers=("rq.davidlangworthy.io/leases-closed",),
        seen_running=3,
        spec=RunSpec(
            owner="t:team",
            flavor="H100",
            total_gpus=32,
            group_gpus=8,
            gpus_per_pod=4,
            spread=False,
            selector=Selector(region="w", cluster="a", domain="d"),
            gang=Gang.GROUP,
            malleable=Malleable(min_gpus=16, max_gpus=64, step_gpus=16, desired_gpus=48),
            spares_per_group=4,
            opportunistic=True,
            stop=True,
            max_duration=6 * 3_600_000,
            checkpoint=30 * 60_000,
            retries=2,
            grace=0,
            funding=Funding(allow_borrow=True, max_borrow_gpus=8, sponsors=("x:y",)),
            cpu_milli=1500,
            memory_bytes=2**30 + 1000,
            tolerations=(
                Toleration(key="k", operator="Exists", effect="NoSchedule"),
                Toleration(),
            ),
            template=got.spec.template,
        ),
    )
    assert got.spec.template.startswith(b'{"spec":{"containers":[{"image":"i","name":"main"')


def test_decoding_an_invalid_run_raises() -> None:
    with pytest.raises(ValueError, match=r"spec\.owner"):
        run_from_wire(run({}))
