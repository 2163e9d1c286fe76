"""Every expression of the alerts and of the Grafana dashboard, parsed by Prometheus' own parser,
uses metrics and labels that a control plane on a real API server has exported."""

import json
import re
import subprocess
import urllib.request
from typing import Any

import pytest
import yaml
from tests.apiserver.server import program
from tests.kubernetes.plane import API, Controller, Plane, job

from leasehold.adapters.kubernetes.install.dashboard import ROWS, expressions
from leasehold.adapters.kubernetes.install.monitoring import alerts_text
from leasehold.core.facts import Closed
from leasehold.sim.machines import NodeIs

Exported = dict[str, dict[str, set[str]]]  # metric -> label -> values
SAMPLE = re.compile(r"^(\w+)(?:\{(.*)\})? [^ ]+$", re.MULTILINE)
LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')
OF_SCRAPES = {"up": {"job": {"leasehold"}}}  # the metric that Prometheus adds by itself
OF_TARGETS = {"pod", "namespace", "job"}  # the labels that Prometheus adds by itself


def _rules() -> list[str]:
    [group] = yaml.safe_load(alerts_text())["groups"]
    return [rule["expr"] for rule in group["rules"]]


def _parse(texts: list[str]) -> list[Any]:
    assert not [text for text in texts if "\n" in text]
    done = subprocess.run(
        [program("promql")], input="\n".join(texts) + "\n", capture_output=True, text=True,
        timeout=60, check=True,
    )  # fmt: skip
    found: list[Any] = json.loads(done.stdout)
    assert [each["expression"] for each in found] == texts
    return found


@pytest.fixture
def exported(plane: Plane) -> Exported:
    """The metrics that a controller exported while Runs completed, failed and were preempted."""
    found: Exported = {}
    plane.kubelets.add("n1", "n2", "n3")
    controller = plane.controller()
    lending = {"allow": True, "to": ["org:*"], "maxConcurrency": 8, "maxGPUHours": 1000}
    budgets = [
        _budget("org:team", 16),
        _budget("org:rich", 24, lending=lending, maxGPUHours=9000, sharing="none"),
    ]
    plane.kubectl.ok("apply", "-f", plane.kubectl.file(*budgets))
    borrows = {"allowBorrow": True, "sponsors": ["org:rich"]}
    plane.kubectl.ok("apply", "-f", plane.kubectl.file(job("good", 8), job("bad", 8)))
    for name, code in (("good", 0), ("bad", 3)):
        run = plane.until_phase(name, "Running")
        plane.exit_all(run["metadata"]["uid"], code)
    plane.until_phase("bad", "Failed")
    # This Run is paid by two budgets and then preempted for another owner's Run.
    shared = job("shared", 24, funding=borrows, runtime={"checkpoint": "1m"})
    plane.kubectl.ok("apply", "-f", plane.kubectl.file(shared))
    plane.until_phase("shared", "Running")
    _scrape(controller, found)
    urgent: Any = job("urgent", 8)
    urgent["spec"]["owner"] = "org:rich"
    plane.kubectl.ok("apply", "-f", plane.kubectl.file(urgent))
    plane.until_phase("urgent", "Running")
    plane.until(lambda: _is_planned(plane, "shared"))  # again
    _scrape(controller, found)
    node = next(pod["spec"]["nodeName"] for pod in plane.pods()
                if pod["metadata"]["labels"]["rq.davidlangworthy.io/run"] == "urgent"
                and "nodeName" in pod["spec"])  # fmt: skip
    plane.kubelets.to_machines(lambda fleet: fleet.set_node(node, NodeIs.DEAD))
    plane.until_phase("urgent", "Failed")
    _scrape(controller, found)
    return found


def _scrape(controller: Controller, found: Exported) -> None:
    with urllib.request.urlopen(
        f"http://127.0.0.1:{controller.port}/metrics", timeout=30
    ) as answer:
        text = bytes(answer.read()).decode()
    for name, labels in SAMPLE.findall(text):
        known = found.setdefault(name, {})
        for label, value in LABEL.findall(labels):
            known.setdefault(label, set()).add(value)


def _is_planned(plane: Plane, run: str) -> bool:
    return any(each["spec"]["runRef"]["name"] == run for each in plane.all("reservations"))


def _budget(owner: str, gpus: int, **more: object) -> dict[str, object]:
    envelope = {"name": "west", "flavor": "H100-80GB", "concurrency": gpus, **more}
    return {
        "apiVersion": API,
        "kind": "Budget",
        "metadata": {"name": owner.replace(":", "-"), "namespace": "team"},
        "spec": {"owner": owner, "envelopes": [envelope]},
    }


def test_rules_and_panels_use_only_exported_metrics_and_labels(exported: Exported) -> None:
    exported = {**exported, **OF_SCRAPES}
    legal = {"reason": {str(each) for each in Closed}}
    for each in _parse([*_rules(), *expressions()]):
        words = each["expression"]
        assert each["error"] == "", words
        assert each["selectors"], words
        known: set[str] = set(OF_TARGETS)
        for selector in each["selectors"]:
            assert selector["name"] in exported, f"{words}: no metric {selector['name']}"
            labels = exported[selector["name"]]
            known |= set(labels)
            assert set(selector["labels"]) <= set(labels), words
            for label, value in selector["matchers"].items():
                assert value in labels[label] | legal.get(label, set()), f"{words}: {label}"
        assert set(each["grouped"]) <= known, words


def test_panel_legends_name_only_labels_of_their_series(exported: Exported) -> None:
    panels = [panel for _, row in ROWS for panel in row]
    for panel, each in zip(panels, _parse([panel.expression for panel in panels]), strict=True):
        named = set(re.findall(r"\{\{(\w+)\}\}", panel.legend))
        kept = set(each["grouped"]) or {label for selector in each["selectors"]
                                        for label in exported[selector["name"]]}  # fmt: skip
        assert named <= kept | OF_TARGETS, panel.title


def test_parser_refuses_malformed_expression() -> None:
    [found] = _parse(["sum by (le) (rate(x_bucket[5m])"])
    assert "unclosed" in found["error"]
