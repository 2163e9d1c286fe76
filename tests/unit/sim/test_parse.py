"""Scenario files: what they may contain; every mistake is reported with its line and remedy."""

from fractions import Fraction
from pathlib import Path

import pytest

from leasehold.core.units import HOUR, MINUTE, SECOND
from leasehold.shell.config.yamlfile import BadFile
from leasehold.sim.machines import NodeIs, Work
from leasehold.sim.scenario.parse import START_DEFAULT, load_story, parse_story
from leasehold.sim.scenario.story import (
    Cancel,
    Deletion,
    EditEnvelope,
    EditRun,
    Expect,
    ExpectedField,
    FailBinds,
    Number,
    PodDoes,
    RestartController,
    RunIs,
    SetForeign,
    SetGpus,
    SetNode,
    Story,
    Submit,
    Unit,
)

HEAD = """\
title: A story
fleet:
  - {domain: a, nodes: 2, gpus: 8, flavor: H, region: r, cluster: c}
budgets:
  t/t: {owner: "t:one", envelopes: [{name: e, flavor: H, concurrency: 8}]}
steps:
  - at: 0s
    submit: {t/x: {owner: "t:one", resources: {gpuType: H, totalGPUs: 8}}}
"""
FIRST = HEAD.count("\n") + 1  # the line after it


def story(*steps: str) -> Story:
    return parse_story(HEAD + "".join(f"  - {{at: 1h, {step}}}\n" for step in steps), "f.yaml")


def mistakes(text: str) -> list[tuple[int, str]]:
    with pytest.raises(BadFile) as caught:
        parse_story(text, "f.yaml")
    return [(each.line, f"{each.problem.value}: {each.problem.remedy}")
            for each in caught.value.mistakes]  # fmt: skip


def test_every_scenario_of_the_suite_can_be_read() -> None:
    files = sorted((Path(__file__).parents[2] / "scenarios").glob("*.yaml"))
    for file in files:
        assert load_story(file).steps, file


def test_second_row_of_a_domain_continues_its_node_numbers() -> None:
    rows = "\n".join(
        f"  - {{domain: {domain}, nodes: 2, gpus: 8, flavor: H, region: r, cluster: c}}"
        for domain in "aba"
    )
    read = parse_story(f"title: t\nfleet:\n{rows}\nsteps: []\n", "f.yaml")
    assert [name for name, _ in read.node_rows()] == [
        "a-00", "a-01", "b-00", "b-01", "a-02", "a-03",
    ]  # fmt: skip
    assert read.start == START_DEFAULT


@pytest.mark.parametrize(
    ("text", "action"),
    [
        ("cancel: t/x", Cancel(run="t/x")),
        ("delete: {budget: t/t}", Deletion(kind="budget", name="t/t")),
        ("delete: {node: a-01}", Deletion(kind="node", name="a-01")),
        ("delete: {run: t/x}", Deletion(kind="run", name="t/x")),
        ("node: {name: a-00, is: dead}", SetNode(name="a-00", state=NodeIs.DEAD)),
        ("node: {name: a-00, gpus: 7}", SetGpus(node="a-00", left=7)),
        ("node: {name: a-00, gpus: 0, exit: 1}", SetGpus(node="a-00", left=0, exit_code=1)),
        ("foreign: {node: a-00, gpus: 0}", SetForeign(node="a-00", gpus=0)),
        ("binds: {fail: 3}", FailBinds(count=3)),
        ("restart: controller", RestartController()),
        ("pod: {run: t/x, group: 1, pod: 3, does: exit 3}",
         PodDoes(run="t/x", group=1, pod=3, exit_code=3)),
        ("pod: {run: t/x, group: 0, pod: 0, does: stick}",
         PodDoes(run="t/x", group=0, pod=0, exit_code=None, stuck=True)),
        ("pod: {run: t/x, group: 0, pod: 0, does: unstick}",
         PodDoes(run="t/x", group=0, pod=0, exit_code=None)),
        ("edit: {run: t/x, spec: {runtime: {maxDuration: 2h}}}",
         EditRun(run="t/x", patch={"runtime": {"maxDuration": "2h"}})),
        ("edit: {run: t/x, spec: {stop: 1}}, refused: [spec.stop]",
         EditRun(run="t/x", patch={"stop": 1}, refused=("spec.stop",))),
        ("edit: {envelope: t/t/e, concurrency: 4}",
         EditEnvelope(envelope="t/t/e", patch={"concurrency": 4})),
    ],
)  # fmt: skip
def test_each_kind_of_step_is_parsed_to_its_action(text: str, action: object) -> None:
    step = story(text).steps[-1]
    assert (step.at, step.line, step.action) == (HOUR, FIRST, action)


@pytest.mark.parametrize(
    ("work", "works"),
    [
        ("{lasts: 3h}", (Work(lasts=3 * HOUR),)),
        ("{exit: 2, stops: 5s}", (Work(exit_code=2, stops=5 * SECOND),)),
        ("[{lasts: 1m, exit: 1}, {}]", (Work(lasts=MINUTE, exit_code=1), Work())),
    ],
)
def test_work_of_a_run_is_parsed_to_one_work_per_attempt(
    work: str, works: tuple[Work, ...]
) -> None:
    spec = '{owner: "t:one", resources: {gpuType: H, totalGPUs: 8}}'
    action = story(f"submit: {{t/y: {spec}}}, work: {work}").steps[-1].action
    assert isinstance(action, Submit)
    assert action.works == works


def test_envelope_is_known_from_any_step_that_defines_it() -> None:
    read = story(
        "budget: {t/u: {owner: u, envelopes: [{name: f, flavor: H, concurrency: 8}]}}",
        "edit: {envelope: t/u/f, name: g}",
        "expect: [{envelope: t/u/f, used: 0}, {envelope: t/u/g, used: 0}]",
    )
    action = read.steps[-1].action
    assert isinstance(action, Expect)
    assert [each.subject for each in action.expectations] == ["envelope t/u/f", "envelope t/u/g"]


@pytest.mark.parametrize(
    ("claim", "low", "high", "unit"),
    [
        ("gpus: 8", 8, 8, Unit.COUNT),
        ("gpus: {min: 1}", 1, None, Unit.COUNT),
        ("gpuHours: {min: 0.1, max: 3}", Fraction(1, 10), 3, Unit.HOURS),
        ("started: 1h10m", 70 * MINUTE, 70 * MINUTE, Unit.SPAN),
        ("ended: {max: 2s}", None, 2000, Unit.SPAN),
    ],
)
def test_expected_number_is_parsed_exactly_and_may_be_a_range(
    claim: str, low: int | Fraction | None, high: int | Fraction | None, unit: Unit
) -> None:
    action = story(f"expect: [{{run: t/x, {claim}}}]").steps[-1].action
    assert isinstance(action, Expect)
    want = Number(
        low=None if low is None else Fraction(low),
        high=None if high is None else Fraction(high),
        unit=unit,
    )
    name = claim.partition(":")[0]
    claims = (ExpectedField(name=name, want=want, line=FIRST),)
    assert action.expectations == (RunIs(line=FIRST, claims=claims, run="t/x"),)


# Each case is one wrong step; the mistake is reported on its line.
@pytest.mark.parametrize(
    ("step", "said"),
    [
        ("cancel: t/x, work: {}", "there is no such field; allowed here: at, cancel"),
        ("cancel: t/x, node: {name: a-00, is: dead}", "cancel, node: use exactly one of"),
        ("", "no action: use exactly one of"),
        ("cancel: x", "use namespace/name"),
        ("cancel: t/y", "there is no such run in this file; it has: t/x"),
        ("edit: {envelope: t/t/q, concurrency: 1}", "no such envelope in this file; it has: t/t/e"),
        ("expect: [{envelope: t/q/e, used: 0}]", "no such envelope in this file; it has: t/t/e"),
        ("expect: [{resolution: t/y, none: true}]", "there is no such run in this file"),
        (f"submit: {{t/{'x' * 254}: {{}}}}", "…: use 1 to 253 lower-case letters"),
        ("node: {name: b-00, is: dead}", "there is no such node in this file; it has: a-00, a-01"),
        ("node: {name: a-00, is: ded}", "use dead or silent or ready or cordoned or uncordoned"),
        ("node: {name: a-00}", "(missing): this field is required"),
        ("node: {name: a-00, gpus: 9}", "use a whole number from 0 to 8"),
        ("node: {name: a-00, gpus: 7, is: dead}", "there is no such field"),
        ("node: {name: a-00, is: dead, exit: 1}", "there is no such field"),
        ("attack: {harm: crash, who: leader}", "say what trouble there is: trouble: {seed"),
        ("foreign: {node: a-00, gpus: -1}", "use a whole number from 0"),
        ("pod: {run: t/x, does: exit 256}", "use exit with a code from 0 to 255"),
        ("pod: {run: t/x, does: die}", "use exit with a code from 0 to 255"),
        ("binds: {fail: yes}", "use a whole number"),
        ("binds: 3", "use a mapping of fields"),
        ("restart: nodes", "use controller"),
        ("delete: {}", "use one of {budget: namespace/name}"),
        ("delete: {lease: x}", "use one of {budget: namespace/name}"),
        ("edit: {spec: {}}", "use {run: namespace/name, spec: {…}} or {envelope: …, fields}"),
        ("edit: {envelope: t/t/e}", "name the fields of the envelope that change"),
        ("edit: {envelope: t/e, concurrency: 3}", "use namespace/budget/envelope"),
        ("submit: {t/z: {owner: t, resources: {gpuType: H, totalGPU: 8}}}", "mean totalGPUs?"),
        ("submit: {t/z: null}", "add its spec"),
        ("submit: {z: {}}, refused: [spec]", "use namespace/name"),
        ("submit: {t/z: {}}, refused: []", "name the JSON paths that the refusal names"),
        ("submit: {t/z: {}}, refused: [a], work: {lasts: 1}", "use a duration of at most"),
        ("submit: {t/z: {}}, refused: [a], work: [{last: 1s}]", "did you mean lasts?"),
        ("budget: {t/z: {owner: t, envelopes: [{name: e}]}}", "(missing): this field is required"),
        ("expect: {run: t/x}", "use a list"),
        ("expect: [{}]", "no subject: name exactly one of run, runs"),
        ("expect: [{run: t/x}]", "the expectation has no claim: add one of phase"),
        ("expect: [{run: t/x, fase: Running}]", "there is no such field; did you mean phase?"),
        ("expect: [{run: t/x, phase: Runing}]", "use Pending or Running or Completed or Failed"),
        ("expect: [{run: t/x, gpus: 8.5}]", "use a whole number, or bounds"),
        ("expect: [{run: t/x, gpus: {min: 3, max: 2}}]", "min is over max"),
        ("expect: [{run: t/x, gpus: {least: 3}}]", "or bounds such as {min: …, max: …}"),
        ("expect: [{run: t/x, started: 5}]", "use a duration since the start"),
        ("expect: [{run: t/x, says: []}]", "use a list of strings"),
        ("expect: [{runs: [t/x], phase: Running}]", "add count, and phase or because or both"),
        ("expect: [{leases: {closed: Gone}, count: 1}]", "use Completed or Fail or NodeFailure"),
        ("expect: [{leases: {rn: t/x}, count: 1}]", "did you mean run?"),
        ("expect: [{envelope: t/t, used: 1}]", "use namespace/budget/envelope"),
        ("expect: [{reservation: t/x, none: true, state: Pending}]", "no other claim is possible"),
        ("expect: [{reservation: t/x, none: false}]", "use true, or leave it out"),
        ("expect: [{resolution: t, spares: 1}]", "use namespace/run or namespace/budget/env"),
        ("expect: [{cover: t/x, walk: [t/t/e]}]", "use a list of pairs"),
        ("expect: [{ledger: fine}]", "use ok"),
        ("expect: [{reservation: t/x, odds: {t/x: high}}]", "use a whole number"),
    ],
)
def test_wrong_step_is_reported_with_line_and_remedy(step: str, said: str) -> None:
    found = mistakes(HEAD + f"  - {{at: 1h, {step}}}\n")
    assert [line for line, _ in found] == [FIRST] * len(found)
    assert said in " | ".join(text for _, text in found)


def test_all_mistakes_of_a_file_are_reported_at_once_in_line_order() -> None:
    found = mistakes(
        """\
titel: x
start: yesterday
config: {activationLead: 15, nonsense: 1}
fleet: [{domain: A, nodes: 0, gpus: 8, flavor: H, region: r, cluster: c}]
budgets: {t/t: {owner: "t:one", envelopes: [{name: e, flavor: H, concurrency: 0}]}}
steps:
  - {at: 1h, expect: [{run: t/x, gpus: x}]}
  - {at: 5m, cancel: t/x}
  - hello
"""
    )
    assert [line for line, _ in found] == [1, 1, 2, 3, 3, 4, 4, 5, 7, 7, 8, 8, 9]


# Each case is a file that is broken as a whole, a line, and a message on that line.
@pytest.mark.parametrize(
    ("text", "line", "said"),
    [
        ("", 1, "an empty file"),
        ("- a\n- b\n", 1, "add title, fleet and steps"),
        ("title: x\nsteps: []\n", 1, "fleet: (missing)"),
        ("title: x\nfleet: []\n", 1, "steps: (missing)"),
        ("title: x\nfleet: []\nsteps: []\n---\ntitle: y\n", 5, "put one scenario in each file"),
        ("title: x\ntitle: y\n", 2, "the key is given twice"),
        ("title: [x\n", 2, "correct the YAML"),
        ("title: x\nfleet: []\nsteps: !!set {a}\n", 3, "leave the tag out"),
        ("title: x\nstart: 1969-12-31T00:00:00Z\n", 2, "use a time from 1970 to 9000"),
        ("title: x\nstart: 9999-12-31T00:00:00Z\n", 2, "use a time from 1970 to 9000"),
        ("title: x\nfleet: []\nsteps:\n  - at: 3651d\n", 4, "of at most 3650 days"),
        ("title: x\nfleet: []\nsteps:\n  - at: 1:30\n", 4, "put it in quotes"),
    ],
)
def test_file_that_is_not_a_story_is_reported_with_line(text: str, line: int, said: str) -> None:
    found = mistakes(text)
    assert any(at == line and said in what for at, what in found), found


def test_budgets_with_cyclic_parents_are_reported() -> None:
    both = "".join(
        f"  t/{name}: {{owner: {name}, parents: [{parent}], envelopes: []}}\n"
        for name, parent in ("pq", "qp")
    )
    found = mistakes(f"title: x\nfleet: []\nsteps: []\nbudgets:\n{both}")
    assert [line for line, _ in found] == [5, 6]


def test_owners_with_colons_stay_text_and_start_is_parsed() -> None:
    text = HEAD.replace('"t:one"', "t:one").replace(
        "steps:", 'start: "2026-11-02T00:00:00Z"\nsteps:'
    )
    read = parse_story(text, "f.yaml")
    assert read.budgets[0][1]["owner"] == "t:one"
    assert read.start == 1_793_577_600_000
