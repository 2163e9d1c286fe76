"""No question names another tenant to a caller who may not read that tenant's objects."""

import asyncio
import json
import re
from collections.abc import Iterator

import pytest
from msgspec.structs import replace
from tests.questions.archived import compacted
from tests.questions.played import Played
from tests.questions.test_rights import RUN
from tests.questions.test_the_past import STORY

from leasehold.control.questions.parameters import PARAMETERS, WITH_BODY
from leasehold.control.questions.report import GROUPINGS
from leasehold.core.facts import Cause, Closed, ClosureReason
from leasehold.core.names import Wire
from leasehold.core.objects.access import Caller
from leasehold.core.world.world import World
from leasehold.shell.queries.query import QUESTIONS, BadQuestion, Questions

# The caller that `adapters.kubernetes.reviews` makes of a researcher with one namespace.
ANN = Caller(user="ann", namespaces=("vision",))
_NODES = ("a-01", "a-03", "b-01", "b-02", "b-03", "b-04")
_VALUES: dict[str, tuple[str, ...]] = {
    "form": ("usage", "balance", "tree"),
    "by": GROUPINGS,
    "node": _NODES,
    "at": ("10m", "1h", "2h25m"),
    "since": ("12h",),
    "from": ("12h",),
    "to": ("1m",),
    "closed": ("true",),
    "past": ("true",),
    "limit": ("1000",),
    "phase": ("Running,Pending", "Completed"),
    "owner": ("org:ai:mm:vision",),
    "payer": ("org:ai:mm:vision", "vision/vision/west"),
    "tz": ("Europe/Berlin",),
    "resolution": ("decode-1",),
}
_OF_ONE_RUN = {"namespace": "vision", "run": "train"}


def forms(question: str) -> Iterator[dict[str, str]]:
    """Yield parameters: none, each value of each parameter, and some combinations."""
    names = PARAMETERS[question]
    base = _OF_ONE_RUN if "run" in names else {}
    yield {}
    yield base
    if "namespace" in names:
        yield {"namespace": "vision"}
    for name in names:
        for value in _VALUES.get(name, ()):
            yield {name: value}
            yield {**base, name: value}
            if "since" in names:
                yield {"since": "12h", name: value}
            if name == "node" and "at" in names:
                yield from ({"at": at, name: value} for at in _VALUES["at"])


def foreign_names(world: World) -> re.Pattern[str]:
    """Return a pattern for the names of other tenants, as words or as parts of other names."""
    found = {lease.name for lease in world.leases.values() if lease.namespace != "vision"}
    found |= {lease.pod for lease in world.leases.values() if lease.namespace != "vision"}
    for run in world.runs.values():
        if run.namespace != "vision":
            found |= {run.name, run.namespace, run.spec.owner}
    for budget in world.budgets.values():
        if budget.namespace != "vision":
            found |= {budget.namespace, budget.owner}
    found |= {each.name for each in world.resolutions.values()} | {"secret-image"}
    words = "|".join(re.escape(each) for each in sorted(found - {""}, key=len, reverse=True))
    return re.compile(rf"(?<![A-Za-z0-9])({words})(?![A-Za-z0-9])")


def ask(questions: Questions, question: str, params: dict[str, str]) -> str:
    """Return what the researcher reads: the answers, or the refusals."""
    told: list[str] = []
    bodies: list[Wire | None] = [None, *([RUN] if question in WITH_BODY else [])]
    for body in bodies:
        try:
            told.append(json.dumps(asyncio.run(questions.ask(ANN, question, params, body))))
        except BadQuestion as bad:
            told.append(bad.message)
    return "\n".join(told)


@pytest.fixture(scope="module", params=["1h", "2h25m", "2h35m", "archived"])
def asked(request: pytest.FixtureRequest) -> tuple[Questions, re.Pattern[str]]:
    until = "2h35m" if request.param == "archived" else request.param
    played = Played(STORY, until)
    world = played.world
    names = foreign_names(world)
    for name, lease in list(world.leases.items()):
        # Another team's pod could not be started: the closure quotes the kubelet.
        if lease.closed is not None and lease.namespace == "speech":
            why = ClosureReason(reason=Closed.FAIL, detail="there is no image secret-image")
            closed = replace(lease.closed, why=why, cause=Cause.UNSTARTED)
            world.leases[name] = replace(lease, closed=closed)
    for pod in [each for each in world.pods.values() if each.namespace != "vision"]:
        world.drop_pod(pod.key)  # so that the audit reports something
    if request.param == "archived":
        return compacted(played, hide_tenants=True), names
    return played.questions(hide_tenants=True), names


@pytest.mark.parametrize("question", QUESTIONS)
def test_no_answer_to_a_researcher_of_one_namespace_names_another_tenant(
    asked: tuple[Questions, re.Pattern[str]], question: str
) -> None:
    questions, foreign = asked
    answers = {}
    for params in forms(question):
        answers[json.dumps(params)] = ask(questions, question, params)
    assert answers
    for params_text, told in answers.items():
        found = foreign.search(told)
        assert found is None, (params_text, told[max(0, found.start() - 200) : found.end() + 50])


def test_same_questions_name_all_tenants_where_nothing_is_hidden() -> None:
    """Show that the test above would notice a name: each kind of name is in some answer."""
    played = Played(STORY, "2h35m")
    foreign = foreign_names(played.world)
    told = "\n".join(
        ask(played.questions(), question, params)
        for question in QUESTIONS
        for params in forms(question)
    )
    assert {"sweep", "org:ai:text", "speech", "decode", "pretrain"} <= set(foreign.findall(told))


def test_researcher_reads_own_names_and_totals_over_all_tenants() -> None:
    played = Played(STORY, "2h35m")
    questions = played.questions(hide_tenants=True)

    usage = asyncio.run(questions.ask(ANN, "budgets", {"form": "usage"}, None))
    report = asyncio.run(questions.ask(ANN, "report", {"by": "owner"}, None))
    leases = asyncio.run(questions.ask(ANN, "leases", {"owner": "org:ai:mm:vision"}, None))

    assert "vision/vision/west" in json.dumps(usage)
    assert "org:ai:mm:vision" in json.dumps(report)
    assert report["total"] == played.ask("report", by="owner")["total"]
    assert "vision/train" in json.dumps(leases)
