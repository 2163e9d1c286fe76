"""The chart, rendered and installed by a real helm, gives the manifests of `leasehold install`."""

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner
from tests.apiserver.server import ROOT, program
from tests.kubernetes.cluster import Cluster

from leasehold.cli import install

CHART = ROOT / "charts" / "leasehold"
PLACE = ("--namespace", "leasehold-system")
NEW = ("--kube-version", "v1.36.3")
KEEP = "helm.sh/resource-policy"
POLICIES = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies"


def helm(*words: str, home: Path, kubeconfig: str = "") -> subprocess.CompletedProcess[str]:
    env = {"HOME": str(home), "PATH": os.environ["PATH"], "KUBECONFIG": kubeconfig}
    return subprocess.run(
        [program("helm"), *words], capture_output=True, text=True, env=env, timeout=120, check=False
    )


def rendered(home: Path, *values: str, mutations: bool = True) -> list[Any]:
    known = ("--api-versions", "admissionregistration.k8s.io/v1/MutatingAdmissionPolicy")
    words = (
        "template",
        "leasehold",
        str(CHART),
        *PLACE,
        *NEW,
        *values,
        *(known if mutations else ()),
    )
    found = helm(*words, home=home)
    assert found.returncode == 0, found.stderr
    return [each for each in yaml.safe_load_all(found.stdout) if each]


def printed(*options: str) -> list[Any]:
    words = [sys.executable, "-m", "leasehold", "install", "--dry-run", *options]
    found = subprocess.run(words, capture_output=True, text=True, timeout=60, check=True)
    return list(yaml.safe_load_all(found.stdout))


def by_name(documents: Sequence[Any]) -> dict[tuple[str, str, str], Any]:
    """Return the documents by name, without the two intended differences: helm creates the
    namespace itself, and an annotation tells it to keep definitions, and with them the ledger."""
    found = {}
    for each in documents:
        metadata = each["metadata"]
        if each["kind"] == "CustomResourceDefinition":
            annotations = metadata.get("annotations", {})
            annotations.pop(KEEP, None)
            if not annotations:
                metadata.pop("annotations", None)
        if each["kind"] != "Namespace":
            found[each["kind"], metadata.get("namespace", ""), metadata["name"]] = each
    return found


@pytest.mark.parametrize(
    ("values", "options"),
    [
        ((), ()),
        (("--set", "image=example/leasehold:1"), ("--image", "example/leasehold:1")),
        (
            ("--set", "image=a/b:2,replicas=5,monitoring=true"),
            ("--image", "a/b:2", "--replicas", "5", "--monitoring"),
        ),
        (
            ("--set", "image=a/b:2", "--set", "config.activationLead=3s"),
            ("--image", "a/b:2", "--config", "config.yaml"),
        ),
        (
            ("--set", "image=a/b:2,pages=true", "-f", "doors.yaml"),
            ("--image", "a/b:2", "--pages", "--config", "web.yaml"),
        ),
    ],
)
def test_chart_renders_the_same_manifests_as_install(
    values: tuple[str, ...],
    options: tuple[str, ...],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("config.yaml").write_text("activationLead: 3s\n", encoding="utf-8")
    door = {"web": {"clientCA": "/etc/leasehold-front-door/ca.crt", "identityHeader": "X-User"}}
    Path("web.yaml").write_text(yaml.safe_dump(door), encoding="utf-8")
    Path("doors.yaml").write_text(yaml.safe_dump({"config": door}), encoding="utf-8")
    ours, theirs = by_name(printed(*options)), by_name(rendered(tmp_path, *values))
    assert sorted(ours) == sorted(theirs)
    for name, document in ours.items():
        assert theirs[name] == document


def test_chart_renders_no_mutating_policy_for_server_without_them(tmp_path: Path) -> None:
    kinds = {each["kind"] for each in rendered(tmp_path, mutations=False)}
    assert "ValidatingAdmissionPolicy" in kinds
    assert not [kind for kind in kinds if kind.startswith("Mutating")]


def test_chart_refuses_another_namespace_with_remedy(tmp_path: Path) -> None:
    words = ("template", "leasehold", str(CHART), "--namespace", "gpu", *NEW)
    refused = helm(*words, home=tmp_path)
    assert refused.returncode != 0
    assert "--namespace leasehold-system" in refused.stderr


def test_chart_and_install_refuse_pages_without_identity_header(tmp_path: Path) -> None:
    words = ("template", "leasehold", str(CHART), "--namespace", "leasehold-system", *NEW)
    refused = helm(*words, "--set", "image=a/b:2,pages=true", home=tmp_path)
    assert refused.returncode != 0
    assert "config.web.identityHeader" in refused.stderr
    ours = CliRunner().invoke(install.command, ["--dry-run", "--image", "a/b:2", "--pages"])
    assert ours.exit_code == 2
    assert "web.identityHeader" in ours.output


def test_helm_uninstall_removes_policies_and_keeps_ledger(cluster: Cluster, tmp_path: Path) -> None:
    kubeconfig = str(cluster.kubeconfig())
    ask = cluster.client.ask
    # This cluster already has the definitions.
    words = ("install", "leasehold", str(CHART), *PLACE, "--take-ownership")
    done = helm(*words, "--set", "image=example/leasehold:1", home=tmp_path, kubeconfig=kubeconfig)
    assert done.returncode == 0, done.stderr
    names = {each["metadata"]["name"] for each in ask("GET", POLICIES).json["items"]}
    assert any(name.startswith("leasehold") for name in names)
    place = "/apis/apps/v1/namespaces/leasehold-system/deployments/leasehold-controller"
    assert ask("GET", place).json["spec"]["replicas"] == 3
    # An upgrade to the same version succeeds.
    again = helm("upgrade", *words[1:-1], "--reuse-values", home=tmp_path, kubeconfig=kubeconfig)
    assert again.returncode == 0, again.stderr
    gone = helm("uninstall", "leasehold", *PLACE, home=tmp_path, kubeconfig=kubeconfig)
    assert gone.returncode == 0, gone.stderr
    names = {each["metadata"]["name"] for each in ask("GET", POLICIES).json["items"]}
    assert not any(name.startswith("leasehold") for name in names)
    assert ask("GET", "/apis/rq.davidlangworthy.io/v1/leases").status == 200
