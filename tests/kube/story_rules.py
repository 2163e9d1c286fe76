"""Every expression of the alerts and of the dashboard, read by Prometheus' own parser, asks for
metrics and labels that a control plane on a real API server really told."""

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

Told = dict[str, dict[str, set[str]]]  # of each metric the labels, and of these the values
SAMPLE = re.compile(r"^(\w+)(?:\{(.*)\})? [^ ]+$", re.MULTILINE)
LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')
OF_SCRAPES = {"up": {"job": {"leasehold"}}}  # what Prometheus adds by itself
OF_TARGETS = {"pod", "namespace", "job"}  # labels, too


def _rules() -> list[str]:
    [group] = yaml.safe_load(alerts_text())["groups"]
    return [rule["expr"] for rule in group["rules"]]


def _asked(texts: list[str]) -> list[Any]:
    assert not [text for text in texts if "\n" in text]
    done = subprocess.run(
        [program("promql")], input="\n".join(texts) + "\n", capture_output=True, text=True,
        timeout=60, check=True,
    )  # fmt: skip
    found: list[Any] = json.loads(done.stdout)
    assert [each["expression"] for each in found] == texts
    return found


@pytest.fixture
def told(plane: Plane) -> Told:
    """What was told on a busy day."""
    found: Told = {}
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
    # Paid by two, and then cut for somebody else.
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


def _scrape(controller: Controller, found: Told) -> None:
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


def test_rules_and_panels_ask_for_what_is_told(told: Told) -> None:
    told = {**told, **OF_SCRAPES}
    legal = {"reason": {str(each) for each in Closed}}
    for each in _asked([*_rules(), *expressions()]):
        words = each["expression"]
        assert each["error"] == "", words
        assert each["selectors"], words
        known: set[str] = set(OF_TARGETS)
        for selector in each["selectors"]:
            assert selector["name"] in told, f"{words}: nobody tells {selector['name']}"
            labels = told[selector["name"]]
            known |= set(labels)
            assert set(selector["labels"]) <= set(labels), words
            for label, value in selector["matchers"].items():
                assert value in labels[label] | legal.get(label, set()), f"{words}: {label}"
        assert set(each["grouped"]) <= known, words


def test_legends_name_labels_that_their_lines_have(told: Told) -> None:
    panels = [panel for _, row in ROWS for panel in row]
    for panel, each in zip(panels, _asked([panel.expression for panel in panels]), strict=True):
        named = set(re.findall(r"\{\{(\w+)\}\}", panel.legend))
        kept = set(each["grouped"]) or {label for selector in each["selectors"]
                                        for label in told[selector["name"]]}  # fmt: skip
        assert named <= kept | OF_TARGETS, panel.title


def test_the_parser_refuses_what_prometheus_would() -> None:
    [found] = _asked(["sum by (le) (rate(x_bucket[5m])"])
    assert "unclosed" in found["error"]
