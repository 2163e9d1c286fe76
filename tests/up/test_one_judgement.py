"""`submit`, `plan` and `lint` give the same verdict on the same manifest."""

import json
import re
from pathlib import Path

from tests.up.conftest import Servers
from tests.up.server import Up

GOOD: dict[str, object] = {
    "apiVersion": "rq.davidlangworthy.io/v1",
    "kind": "Run",
    "metadata": {"name": "r", "namespace": "default"},
    "spec": {
        "owner": "lab",
        "resources": {"gpuType": "virtual", "totalGPUs": 1},
        "template": {"spec": {"containers": [{"name": "m", "command": ["true"]}]}},
    },
}
BUDGET = {
    "apiVersion": "rq.davidlangworthy.io/v1",
    "kind": "Budget",
    "metadata": {"name": "lab", "namespace": "default"},
    "spec": {
        "owner": "lab",
        "envelopes": [{"name": "e", "flavor": "virtual", "concurrency": 8}],
    },
}
CONFIG = "gracePeriod.max: 1m\n"
_POD = "spec.template.spec"
_MAIN = f"{_POD}.containers[0]"
MISTAKES = {
    f"{_POD}.volumes": {"volumes": [{"name": "v", "emptyDir": {}}]},
    f"{_POD}.initContainers": {"initContainers": [{"name": "i", "command": ["true"]}]},
    f"{_POD}.containers[1]": {
        "containers": [{"name": "m", "command": ["true"]}, {"name": "n", "command": ["true"]}]
    },
    f"{_MAIN}.command": {"containers": [{"name": "m", "image": "x"}]},
    f"{_MAIN}.volumeMounts": {
        "containers": [{"name": "m", "command": ["true"], "volumeMounts": [{"name": "v"}]}]
    },
    f"{_MAIN}.env[0].valueFrom.secretKeyRef": {
        "containers": [
            {"name": "m", "command": ["true"],
             "env": [{"name": "A", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}]}
        ]
    },
    f"{_POD}.nodeSelector": {"nodeSelector": {"a": "b"}},
}  # fmt: skip


def with_pod(pod: dict[str, object]) -> dict[str, object]:
    spec = dict(GOOD["spec"])  # type: ignore[call-overload]
    whole = {"containers": [{"name": "m", "command": ["true"]}], **pod}
    return {**GOOD, "spec": {**spec, "template": {"spec": whole}}}


def judged(server: Up, manifest: dict[str, object]) -> list[set[str]]:
    """Return the paths named by each of the three commands that refuses the manifest."""
    file = server.folder / "judged.yaml"
    file.write_text(json.dumps(manifest))
    config = server.folder / "config.yaml"
    said = [
        server.runs("submit", "-f", str(file), ok=False),
        server.runs("plan", "-f", str(file), ok=False),
        server.cli("leasehold", "lint", "--config", str(config), str(file), ok=False),
    ]
    return [
        {found.rstrip(":.") for found in re.findall(r"(?:spec|metadata)\.[\w.\[\]]+(?=:)",
                                                     done.stdout + done.stderr)}
        for done in said
        if done.returncode
    ]  # fmt: skip


def test_submit_plan_and_lint_refuse_same_paths(up: Servers) -> None:
    server = up("--gpus", "8", config=CONFIG).start()
    server.submit(BUDGET)

    assert judged(server, GOOD) == []
    grace = {**GOOD["spec"], "runtime": {"gracePeriod": "10m"}}  # type: ignore[dict-item]
    wrong = {**GOOD["spec"], "resources": {"gpuType": "virtual"}}  # type: ignore[dict-item]
    bare = {key: value for key, value in GOOD["spec"].items() if key != "template"}  # type: ignore[attr-defined]
    cases = {path: with_pod(pod) for path, pod in MISTAKES.items()} | {
        "spec.runtime.gracePeriod": {**GOOD, "spec": grace},
        "spec.resources.totalGPUs": {**GOOD, "spec": wrong},
        "spec.template": {**GOOD, "spec": bare},
    }
    for path, manifest in cases.items():
        assert (
            judged(server, {**manifest, "metadata": {"name": "x", "namespace": "default"}})
            == [{path}] * 3
        ), path


def test_plan_refuses_missing_namespace_like_submit(up: Servers) -> None:
    server = up().start()
    file = server.folder / "run.yaml"
    file.write_text(json.dumps({**GOOD, "metadata": {"name": "r", "namespace": "nowhere"}}))

    assert "nowhere" in server.runs("submit", "-f", str(file), ok=False).stderr
    planned = server.runs("plan", "-f", str(file), ok=False)
    assert planned.returncode == 1
    assert "there is no such namespace" in planned.stderr


def test_lint_accepts_namespaces_and_objects_without_namespace(up: Servers, tmp_path: Path) -> None:
    server = up().start()
    space = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "lab"}}
    run = {**GOOD, "metadata": {"name": "r"}}
    budget = {**BUDGET, "metadata": {"name": "b"}}
    file = tmp_path / "all.yaml"
    file.write_text("\n---\n".join(json.dumps(each) for each in (space, budget, run)))

    assert server.runs("submit", "-n", "lab", "-f", str(file)).returncode == 0
    assert server.cli("leasehold", "lint", str(file)).stdout == "3 objects ok\n"
