"""Every command, and where it works: against `leasehold up` and against a cluster it does the
same."""

import json
import os
import re
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tests.kubernetes.asking import answering
from tests.kubernetes.cluster import Cluster
from tests.kubernetes.conftest import SETTINGS
from tests.kubernetes.kubelet_logs import KubeletLogs
from tests.kubernetes.plane import Plane, budget, job, plane_on
from tests.up.server import Up

DOCS = Path(__file__).parents[2] / "docs" / "cli.md"
PATIENCE_S = 120
GROUPS = ("budgets", "report", "sponsors")  # of commands
BOTH, HERE, CLUSTER, NOWHERE = "both", "up", "cluster", "no server"

# Where each command works: with a server of either kind, or only with one of them, or without any.
WORKS = {
    "leasehold audit": BOTH,
    "leasehold backup": HERE,
    "leasehold config show": NOWHERE,
    "leasehold controller": CLUSTER,
    "leasehold crds": NOWHERE,
    "leasehold drain": BOTH,
    "leasehold fence": BOTH,
    "leasehold install": CLUSTER,
    "leasehold ledger compact": BOTH,
    "leasehold ledger export": BOTH,
    "leasehold ledger replay": BOTH,
    "leasehold ledger restore": CLUSTER,
    "leasehold ledger verify": BOTH,
    "leasehold lint": NOWHERE,
    "leasehold lottery verify": BOTH,
    "leasehold restore": HERE,
    "leasehold sim replay": NOWHERE,
    "leasehold sim scenario": NOWHERE,
    "leasehold token create": HERE,  # a cluster has users of its own
    "leasehold token list": HERE,
    "leasehold token revoke": HERE,
    "leasehold ui": BOTH,
    "leasehold up": HERE,
    "kubectl runs budgets balance": BOTH,
    "kubectl runs budgets tree": BOTH,
    "kubectl runs budgets usage": BOTH,
    "kubectl runs cancel": BOTH,
    "kubectl runs cover": BOTH,
    "kubectl runs describe": BOTH,
    "kubectl runs explain": BOTH,
    "kubectl runs grow": BOTH,
    "kubectl runs leases": BOTH,
    "kubectl runs list": BOTH,
    "kubectl runs logs": BOTH,
    "kubectl runs plan": BOTH,
    "kubectl runs pods": BOTH,
    "kubectl runs report gpu-hours": BOTH,
    "kubectl runs reservations": BOTH,
    "kubectl runs run": BOTH,
    "kubectl runs shrink": BOTH,
    "kubectl runs sponsors add": BOTH,
    "kubectl runs sponsors list": BOTH,
    "kubectl runs sponsors remove": BOTH,
    "kubectl runs submit": BOTH,
    "kubectl runs watch": BOTH,
    "kubectl runs who-pays": BOTH,
}


def test_command_table_of_the_test_has_every_documented_command() -> None:
    headings = re.findall(r"^## `((?:leasehold|kubectl) [^`]+)`", DOCS.read_text(), re.MULTILINE)
    assert set(headings) == set(WORKS)


@dataclass(frozen=True)
class Step:
    """One command of the story, the user who runs it, and a part of what it must print."""

    words: str
    says: str
    who: str = "ann"

    @property
    def command(self) -> str:
        """Return the command's key in `WORKS`."""
        every = sorted(WORKS, key=len, reverse=True)
        return next(each for each in every if f"{self.words} ".startswith(f"{each} "))


# In this order: two nodes of 8 GPUs, a budget of 16. `{…}` are files and nodes.
STORY = (
    Step("kubectl runs submit -f {elastic} --wait", "team/elastic: Running"),
    Step("kubectl runs submit -f {bad}", "totalGPUs", who="ann, in vain"),
    Step("kubectl runs list", "elastic"),
    Step("kubectl runs list -A -o json", '"elastic"'),
    Step("kubectl runs explain elastic", "elastic"),
    Step("kubectl runs who-pays elastic", "west"),
    Step("kubectl runs describe elastic", "elastic"),
    Step("kubectl runs leases elastic", "west"),
    Step("kubectl runs pods elastic", "Running"),
    Step("kubectl runs logs elastic", "hello"),
    Step("kubectl runs budgets usage", "west"),
    Step("kubectl runs budgets balance", "west"),
    Step("kubectl runs budgets tree", "org:team"),
    Step("kubectl runs report gpu-hours --by run", "elastic"),
    Step("kubectl runs plan -f {wide}", "team/wide"),
    Step("kubectl runs plan -f {bad}", "totalGPUs", who="ann, in vain"),
    Step("kubectl runs cover -f {wide}", "no envelopes pay for the whole run", who="ann, in vain"),
    Step("kubectl runs shrink elastic --to 8", "16 -> 8 GPUs"),
    Step("kubectl runs grow elastic --to 16", "8 -> 16 GPUs"),
    Step("kubectl runs submit -f {wide}", "team/wide"),
    Step("kubectl runs submit -f {lean}", "team/lean"),
    Step("kubectl runs reservations --past", "RUN"),
    Step("kubectl runs sponsors list wide", "does not borrow"),
    Step("kubectl runs sponsors add wide org:other", "cannot be edited", who="ann, in vain"),
    Step("kubectl runs sponsors add lean org:other", "org:other"),
    Step("kubectl runs sponsors remove lean org:other", "sponsors none"),
    Step("kubectl runs cancel lean", "is being stopped"),
    Step("kubectl runs cancel wide", "is being stopped"),
    Step("kubectl runs cancel elastic", "is being stopped"),
    Step("kubectl runs watch elastic", "Failed", who="ann, in vain"),
    Step("kubectl runs run --name quick --gpus 8 -- sh -c {quick}", "team/quick"),
    Step("leasehold drain {node} --wait 60", "empty", who="system"),
    Step("leasehold drain {node} --undo", "accepts work again", who="system"),
    Step("leasehold fence {node} --force", "is fenced", who="system"),
    Step("leasehold fence {node} --undo", "in service again", who="system"),
    Step("leasehold lottery verify nothing", "nothing", who="system, in vain"),
    Step("leasehold ui --here --port 99999", "99999", who="system, in vain"),
    Step("leasehold audit {ledger}", "audit: ok", who="system"),
    Step("leasehold ledger verify {ledger}", "ledger verify: ok", who="system"),
    Step("leasehold ledger compact {ledger}", "nothing is old enough", who="system"),
    Step("leasehold ledger export {ledger}", '"seq":1', who="system"),
    Step(
        "leasehold ledger replay --at 2100-01-01T00:00:00Z {ledger}",
        "team/money/west",
        who="system",
    ),
)


def test_story_runs_every_command_that_works_with_both_servers() -> None:
    told = {step.command for step in STORY}
    assert told == {command for command, where in WORKS.items() if where == BOTH}


def _files(folder: Path) -> dict[str, str]:
    """Write the manifests of the story and return their paths by name."""
    container = {"name": "main", "image": "none", "command": ["sh", "-c", "echo hello; sleep 600"]}
    template = {"spec": {"containers": [container]}}
    malleable = {"minTotalGPUs": 8, "maxTotalGPUs": 16, "stepGPUs": 8}
    by_eight = {"groupGPUs": 8}
    elastic = job("elastic", 16, malleable=malleable, locality=by_eight, template=template)
    made: dict[str, Any] = {
        "elastic": elastic,
        "wide": job("wide", 16, template=template),
        "lean": job("lean", 16, template=template, funding={"allowBorrow": True}),
        "bad": job("bad", 0, template=template),
    }
    for name, manifest in made.items():
        (folder / f"{name}.json").write_text(json.dumps(manifest), encoding="utf-8")
    return {name: str(folder / f"{name}.json") for name in made}


@dataclass(frozen=True)
class Place:
    """A server: the kubeconfig of each user, and the values of the story's placeholders."""

    kubeconfig: Callable[[str], Path]
    words: dict[str, str]

    def tell(self) -> None:
        for step in STORY:
            who, _, in_vain = step.who.partition(", ")
            program, *words = [each.format_map(self.words) for each in shlex.split(step.words)]
            if program == "kubectl" and "-A" not in words:
                words[2:2] = ["-n", "team"] if words[1] not in GROUPS else []
                words[3:3] = ["-n", "team"] if words[1] in GROUPS else []
            words = [each for word in words for each in word.split("\n")]
            done = subprocess.run(
                [sys.executable, "-m", "leasehold", *words],
                env={**os.environ, "KUBECONFIG": str(self.kubeconfig(who))},
                capture_output=True,
                text=True,
                timeout=PATIENCE_S,
                check=False,
            )
            told = (step.words, done.stdout, done.stderr)
            assert (done.returncode != 0) is bool(in_vain), told
            assert step.says in done.stdout + done.stderr, told
            assert "Traceback" not in done.stderr, told


@pytest.mark.deadline(600)
def test_every_command_works_against_a_cluster(installed: Cluster, tmp_path: Path) -> None:
    settings = f"{SETTINGS}ledger.archive: {tmp_path / 'archive'}\n"
    with plane_on(installed, tmp_path, settings) as plane:
        _tell_on_a_cluster(plane, tmp_path)


def _tell_on_a_cluster(plane: Plane, tmp_path: Path) -> None:
    nodes = ["n1", "n2"]
    plane.kubelets.add(*nodes)
    plane.until(lambda: len(plane.get("/api/v1/nodes")["items"]) == 2)
    logs = KubeletLogs(plane.cluster, tmp_path, nodes)
    try:
        with answering(plane):
            plane.kubectl.ok("apply", "-f", plane.kubectl.file(budget(gpus=16)))
            ledger = f"--kubeconfig\n{plane.cluster.kubeconfig()}"
            words = _files(tmp_path) | {"node": "n2", "ledger": ledger, "quick": "true"}
            Place(plane.cluster.kubeconfig, words).tell()
    finally:
        logs.stop()


FLEET = """
fleet:
  - {domain: n, nodes: 2, gpus: 8, flavor: H100-80GB, region: us, cluster: gpu-a}
"""


@pytest.fixture
def up() -> Iterator[Up]:
    """A server outside pytest's own folder: as root, jobs run as other users, who need access."""
    with tempfile.TemporaryDirectory(prefix="leasehold-up-", ignore_cleanup_errors=True) as root:
        Path(root).chmod(0o755)
        (Path(root) / "fleet.yaml").write_text(FLEET, encoding="utf-8")
        server = Up(Path(root), "--fleet", str(Path(root) / "fleet.yaml"))
        server.start()
        yield server
        server.end()


@pytest.mark.deadline(600)
def test_every_command_works_against_leasehold_up(up: Up, tmp_path: Path) -> None:
    up.submit({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team"}})
    up.submit(budget(gpus=16))
    ledger = f"--data\n{up.data}"
    words = _files(tmp_path) | {"node": "n-01", "ledger": ledger, "quick": "true"}
    people = {"system": up.kubeconfig, "ann": tmp_path / "ann.kubeconfig"}
    up.cli("leasehold", "token", "create", "--data", str(up.data), "--user", "ann",
           "-n", "team", "--spend", "org:team", "--kubeconfig", str(people["ann"]))  # fmt: skip
    Place(people.__getitem__, words).tell()
