"""Budgets: every rule with its path, decoding, warnings, and cycles of parents."""

import pytest

from leasehold.core.facts import Aggregate, Budget, Envelope, Lending, Sharing
from leasehold.core.objects.budget import (
    budget_from_wire,
    budget_warnings,
    check_budget,
    check_parent_cycles,
    parent_cycles,
)
from leasehold.core.units import HOUR, parse_instant

E = {"name": "e", "flavor": "H100", "concurrency": 8}

CAP = {"name": "all", "flavor": "H100", "envelopes": ["e"], "maxConcurrency": 4}


def budget(spec: object, **metadata: object) -> dict[str, object]:
    return {"metadata": {"namespace": "t", "name": "b", **metadata}, "spec": spec}


def paths(spec: object) -> list[str]:
    return [problem.path for problem in check_budget(budget(spec))]


def with_envelope(**changes: object) -> dict[str, object]:
    return {"owner": "t:team", "envelopes": [{**E, **changes}]}


def with_cap(**changes: object) -> dict[str, object]:
    return {"owner": "t:team", "envelopes": [E], "aggregateCaps": [{**CAP, **changes}]}


RULES: tuple[tuple[str, object, list[str]], ...] = (
    ("the smallest", {"owner": "t"}, []),
    ("one envelope", with_envelope(), []),
    ("no spec", None, ["spec"]),
    ("a spec that is a list", [], ["spec"]),
    ("no owner", {}, ["spec.owner"]),
    ("a bad owner", {"owner": "t::x"}, ["spec.owner"]),
    ("an unknown field", {"owner": "t", "ownr": 1}, ["spec.ownr"]),
    ("parents that are no list", {"owner": "t", "parents": "org"}, ["spec.parents"]),
    ("a bad parent", {"owner": "t", "parents": ["a", "b:"]}, ["spec.parents[1]"]),
    ("a parent twice", {"owner": "t", "parents": ["a", "a"]}, ["spec.parents[1]"]),
    ("an owner that is its own parent", {"owner": "t", "parents": ["t"]}, ["spec.parents"]),
    ("a bad namespace", {"owner": "t", "namespaces": ["A"]}, ["spec.namespaces[0]"]),
    ("envelopes that are no list", {"owner": "t", "envelopes": {}}, ["spec.envelopes"]),
    ("an envelope that is a text", {"owner": "t", "envelopes": ["e"]}, ["spec.envelopes[0]"]),
    ("zero concurrency", with_envelope(concurrency=0), ["spec.envelopes[0].concurrency"]),
    ("negative concurrency", with_envelope(concurrency=-1), ["spec.envelopes[0].concurrency"]),
    ("true concurrency", with_envelope(concurrency=True), ["spec.envelopes[0].concurrency"]),
    ("null concurrency", with_envelope(concurrency=None), ["spec.envelopes[0].concurrency"]),
    ("zero hours", with_envelope(maxGPUHours=0), ["spec.envelopes[0].maxGPUHours"]),
    ("a bad name", with_envelope(name="a/b"), ["spec.envelopes[0].name"]),
    ("a bad flavor", with_envelope(flavor=5), ["spec.envelopes[0].flavor"]),
    ("a bad sharing", with_envelope(sharing="all"), ["spec.envelopes[0].sharing"]),
    ("a bad start", with_envelope(start="today"), ["spec.envelopes[0].start"]),
    (
        "an end at the start",
        with_envelope(start="2026-01-01T00:00:00Z", end="2026-01-01T00:00:00Z"),
        ["spec.envelopes[0].end"],
    ),
    (
        "a bad start hides the order",
        with_envelope(start="never", end="1960-01-01T00:00:00Z"),
        ["spec.envelopes[0].start"],
    ),
    (
        "a third selector key",
        with_envelope(selector={"region": "w", "rack": "r"}),
        ["spec.envelopes[0].selector.rack"],
    ),
    (
        "a bad place",
        with_envelope(selector={"cluster": "-"}),
        ["spec.envelopes[0].selector.cluster"],
    ),
    (
        "lending",
        with_envelope(lending={"allow": 1, "to": ["a::*"], "maxConcurrency": 0, "maxGPUHours": 0}),
        [
            "spec.envelopes[0].lending.allow",
            "spec.envelopes[0].lending.to[0]",
            "spec.envelopes[0].lending.maxConcurrency",
            "spec.envelopes[0].lending.maxGPUHours",
        ],
    ),
    (
        "two envelopes of one name",
        {"owner": "t", "envelopes": [E, E]},
        ["spec.envelopes[1].name"],
    ),
    ("a cap", with_cap(), []),
    ("a cap over nothing", with_cap(envelopes=[]), ["spec.aggregateCaps[0].envelopes"]),
    (
        "a cap over an unknown envelope",
        with_cap(envelopes=["e", "x"]),
        ["spec.aggregateCaps[0].envelopes[1]"],
    ),
    ("a cap of another flavor", with_cap(flavor="A100"), ["spec.aggregateCaps[0].envelopes[0]"]),
    ("a cap of zero", with_cap(maxConcurrency=0), ["spec.aggregateCaps[0].maxConcurrency"]),
    ("a cap's typo", with_cap(maxConcurency=4), ["spec.aggregateCaps[0].maxConcurency"]),
    ("a cap's bad member", with_cap(envelopes=[5]), ["spec.aggregateCaps[0].envelopes[0]"]),
    ("a cap that is a text", {"owner": "t", "aggregateCaps": ["x"]}, ["spec.aggregateCaps[0]"]),
    (
        "two caps of one name",
        {**with_cap(), "aggregateCaps": [CAP, CAP]},
        ["spec.aggregateCaps[1].name"],
    ),
)


@pytest.mark.parametrize(
    ("spec", "expected"), [row[1:] for row in RULES], ids=[r[0] for r in RULES]
)
def test_check_budget_reports_path_of_each_problem(spec: object, expected: list[str]) -> None:
    assert paths(spec) == expected


def test_all_mistakes_are_reported_at_once() -> None:
    spec = {"envelopes": [{"name": "e", "flavour": "H100", "concurrency": 0}]}

    assert sorted(paths(spec)) == [
        "spec.envelopes[0].concurrency",
        "spec.envelopes[0].flavor",
        "spec.envelopes[0].flavour",
        "spec.owner",
    ]


def test_unknown_field_gets_a_suggestion() -> None:
    problems = check_budget(budget({"owner": "t", "envelope": []}))

    assert [each.remedy for each in problems] == ["there is no such field; did you mean envelopes?"]


def test_full_budget_is_decoded_with_all_fields() -> None:
    spec = {
        "owner": "org:ai:mm",
        "namespaces": ["batch"],
        "envelopes": [
            {
                **E,
                "selector": {"region": "w", "cluster": "a"},
                "maxGPUHours": 0.5,
                "start": "2026-11-01T00:00:00Z",
                "end": "2026-12-01T00:00:00Z",
                "sharing": "none",
                "lending": {"allow": True, "to": ["x:*"], "maxConcurrency": 2, "maxGPUHours": 1},
            }
        ],
        "aggregateCaps": [
            {"name": "all", "flavor": "H100", "envelopes": ["e"], "maxConcurrency": 4}
        ],
    }
    wire = budget(spec, uid="u1", resourceVersion="17")

    got = budget_from_wire(wire)

    assert got == Budget(
        namespace="t",
        name="b",
        owner="org:ai:mm",
        parents=("org:ai",),
        namespaces=("batch",),
        envelopes=(
            Envelope(
                key="t/b/e",
                owner="org:ai:mm",
                flavor="H100",
                concurrency=8,
                region="w",
                cluster="a",
                max_gpu_ms=HOUR // 2,
                start=parse_instant("2026-11-01T00:00:00Z") or 0,
                end=parse_instant("2026-12-01T00:00:00Z") or 0,
                sharing=Sharing.NONE,
                lending=Lending(allow=True, to=("x:*",), max_concurrency=2, max_gpu_ms=HOUR),
            ),
        ),
        aggregates=(
            Aggregate(key="t/b/all", flavor="H100", members=("t/b/e",), max_concurrency=4),
        ),
        uid="u1",
        version=17,
        wire_spec=got.wire_spec,
    )
    assert got.wire_spec.startswith(b'{"aggregateCaps":[{"envelopes":["e"],"flavor":"H100"')


def test_empty_list_of_parents_means_no_parents() -> None:
    assert budget_from_wire(budget({"owner": "a:b", "parents": []})).parents == ()


def test_decoding_an_invalid_budget_raises() -> None:
    with pytest.raises(ValueError, match=r"spec\.owner"):
        budget_from_wire(budget({}))


@pytest.mark.parametrize(
    ("changes", "warned"),
    [
        ({"maxGPUHours": 8}, False),
        ({"maxGPUHours": 9}, True),
        ({"maxGPUHours": 9, "end": None}, False),
        ({"maxGPUHours": 9, "start": None}, False),
        ({}, False),
    ],
)
def test_max_gpu_hours_above_concurrency_times_window_get_a_warning(
    changes: dict[str, object], warned: bool
) -> None:
    window = {"start": "2026-01-01T00:00:00Z", "end": "2026-01-01T01:00:00Z"}
    found = budget_warnings(budget(with_envelope(**{**window, **changes})))

    assert [each.path for each in found] == ["spec.envelopes[0].maxGPUHours"] * warned


def record(name: str, owner: str, *parents: str) -> Budget:
    return Budget(namespace="t", name=name, owner=owner, parents=parents)


@pytest.mark.parametrize(
    ("budgets", "expected"),
    [
        ([record("a", "x:a", "x"), record("b", "x:b", "x")], []),
        ([record("a", "a", "b"), record("b", "b", "a")], ["'a -> b -> a'", "'b -> a -> b'"]),
        # The owner between them has no Budget: the parent is derived from its path.
        ([record("a", "x", "x:y:z")], ["'x -> x:y:z -> x:y -> x'"]),
        # Two Budgets of one owner, each harmless alone.
        (
            [record("a", "a", "b"), record("a2", "a", "c"), record("c", "c", "a")],
            ["'a -> c -> a'", "'c -> a -> c'"],
        ),
        ([record("d", "d", "a", "b"), record("e", "e", "a")], []),
        # Two ways up to one ancestor are no cycle.
        ([record("d", "d", "a", "b"), record("a", "a", "z"), record("b", "b", "z", "a")], []),
        # Of two ways round, the shorter one is reported.
        (
            [
                record("a", "a", "b"),
                record("b", "b", "c", "d"),
                record("c", "c", "e"),
                record("d", "d", "e"),
                record("e", "e", "a"),
            ],
            [
                "'a -> b -> c -> e -> a'",
                "'b -> c -> e -> a -> b'",
                "'b -> d -> e -> a -> b'",
                "'c -> e -> a -> b -> c'",
                "'d -> e -> a -> b -> d'",
                "'e -> a -> b -> c -> e'",
            ],
        ),
    ],
)
def test_shortest_path_of_each_parent_cycle_is_reported(
    budgets: list[Budget], expected: list[str]
) -> None:
    assert [problem.value for problem in check_parent_cycles(budgets)] == expected
    assert len(parent_cycles(budgets)) == len(expected)


def test_budget_with_ten_thousand_envelopes_has_one_problem() -> None:
    spec = {
        "owner": "t",
        "envelopes": [
            {**E, "name": f"e{number}", "maxGPUHours": 12.5, "selector": {"region": "w"}}
            for number in range(10_000)
        ],
    }

    # Each envelope is valid; together they are more than one batch of the ledger can hold.
    assert [problem.path for problem in check_budget(budget(spec))] == ["spec"]
