"""Template fields that this machine cannot honour are refused by path; all others are accepted."""

import pytest

from leasehold.adapters.agent.template import problems_of_template
from leasehold.core.names import Wire

PATH = "spec.template.spec"
FIRST = f"{PATH}.containers[0]"


def run(container: Wire | None = None, **spec: object) -> Wire:
    first = {"name": "main", "command": ["train"], **(container or {})}
    return {"kind": "Run", "spec": {"template": {"spec": {"containers": [first], **spec}}}}


SOURCE = f"{FIRST}.env[0].valueFrom"
OF_NAME = {"fieldRef": {"fieldPath": "metadata.name"}}


def sourced(source: object) -> Wire:
    return run({"env": [{"name": "A", "valueFrom": source}]})


def test_template_that_a_process_can_honour_is_accepted() -> None:
    made = run(
        {
            "image": "nvcr.io/torch:24",
            "imagePullPolicy": "Always",
            "args": ["--fast"],
            "workingDir": "/srv",
            "env": [
                {"name": "A", "value": "1"},
                {"name": "B", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
                {"name": "C", "valueFrom": {"resourceFieldRef": {"resource": "limits.cpu"}}},
            ],
            "resources": {"limits": {"cpu": 2, "memory": "1Gi"}},
            "ports": [{"containerPort": 80}],
            "securityContext": {},
            "tty": False,
        },
        restartPolicy="Never",
        terminationGracePeriodSeconds=30,
        tolerations=[{"key": "x"}],
        volumes=[],
    )

    assert problems_of_template(made) == []


@pytest.mark.parametrize(
    ("made", "path"),
    [
        (run(containers=[{"name": "a", "command": ["x"]}, {"name": "b"}]), f"{PATH}.containers[1]"),
        (run(initContainers=[{"name": "i"}]), f"{PATH}.initContainers"),
        (run(volumes=[{"name": "v"}]), f"{PATH}.volumes"),
        (run(hostNetwork=True), f"{PATH}.hostNetwork"),
        (run(imagePullSecrets=[{"name": "s"}]), f"{PATH}.imagePullSecrets"),
        (run(restartPolicy="Always"), f"{PATH}.restartPolicy"),
        (run(somethingNew=1), f"{PATH}.somethingNew"),
        (run({"command": None}), f"{FIRST}.command"),
        (run({"command": []}), f"{FIRST}.command"),
        (run({"command": "train"}), f"{FIRST}.command"),
        (run({"args": [1]}), f"{FIRST}.args"),
        (run({"workingDir": "here"}), f"{FIRST}.workingDir"),
        (run({"volumeMounts": [{"name": "v"}]}), f"{FIRST}.volumeMounts"),
        (run({"securityContext": {"runAsUser": 0}}), f"{FIRST}.securityContext"),
        (run({"livenessProbe": {"exec": {}}}), f"{FIRST}.livenessProbe"),
        (run({"lifecycle": {"preStop": {}}}), f"{FIRST}.lifecycle"),
        (run({"envFrom": [{}]}), f"{FIRST}.envFrom"),
        (run({"tty": True}), f"{FIRST}.tty"),
        (run({"env": [{"name": "A", "value": 1}]}), f"{FIRST}.env[0].value"),
        (run({"env": [{"name": "A=B", "value": ""}]}), f"{FIRST}.env[0].name"),
        (
            run({"env": [{"name": "A", "valueFrom": {"secretKeyRef": {"name": "s"}}}]}),
            f"{FIRST}.env[0].valueFrom.secretKeyRef",
        ),
        (
            run({"env": [{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "spec.x"}}}]}),
            f"{FIRST}.env[0].valueFrom.fieldRef.fieldPath",
        ),
        (sourced({}), SOURCE),
        (sourced("metadata.name"), SOURCE),
        (sourced([]), SOURCE),
        (sourced({"fieldRef": None}), SOURCE),
        (sourced({"resourceFieldRef": None}), SOURCE),
        (sourced({"fieldRef": "metadata.name"}), f"{SOURCE}.fieldRef"),
        (sourced({"resourceFieldRef": 7}), f"{SOURCE}.resourceFieldRef"),
        (sourced({**OF_NAME, "resourceFieldRef": {"resource": "limits.cpu"}}), SOURCE),
        (
            sourced({"resourceFieldRef": {"resource": "limits.cpu", "divisor": "x"}}),
            f"{SOURCE}.resourceFieldRef.divisor",
        ),
        (run({"env": [{"name": "A", "value": "1", "valueFrom": OF_NAME}]}), SOURCE),
        (
            run({"resources": {"limits": {"ephemeral-storage": "1Gi"}}}),
            f"{FIRST}.resources.limits.ephemeral-storage",
        ),
    ],
)
def test_field_that_cannot_be_honoured_is_refused_by_path(made: Wire, path: str) -> None:
    assert [found for found, _ in problems_of_template(made)] == [path]


ODD: list[Wire] = [
    {},
    {"kind": "Run"},
    {"kind": "Run", "spec": {"template": 7}},
    {"kind": "Run", "spec": {"template": {"spec": {"containers": [7]}}}},
    {"kind": "Budget", "spec": {"template": {"spec": {"x": 1}}}},
]


@pytest.mark.parametrize("odd", ODD)
def test_malformed_document_raises_no_error(odd: Wire) -> None:
    assert problems_of_template(odd) == []


@pytest.mark.parametrize("spec", [{"owner": "t:a"}, {"owner": "t:a", "template": None}])
def test_run_without_template_is_refused(spec: Wire) -> None:
    found = problems_of_template({"kind": "Run", "spec": spec})
    assert [path for path, _ in found] == ["spec.template"]
