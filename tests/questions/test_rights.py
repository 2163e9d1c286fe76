"""Rights of callers: other namespaces, hidden owners, and invalid questions."""

import json
import re

import pytest
from tests.questions.played import ADMIN, Played
from tests.questions.test_the_past import STORY, rows

from leasehold.core.names import Wire
from leasehold.core.objects.access import Caller, CallerRole
from leasehold.shell.queries.query import QUESTIONS, BadQuestion

VISION = Caller(user="vera", namespaces=("vision",), spend=("org:ai:mm:vision",))
RUN: Wire = {
    "apiVersion": "rq.davidlangworthy.io/v1",
    "kind": "Run",
    "metadata": {"name": "probe", "namespace": "vision"},
    "spec": {"owner": "org:ai:mm:vision", "resources": {"gpuType": "H100-80GB", "totalGPUs": 8}},
}
FOREIGN = re.compile(
    r"audio|text/|org:ai:text|speech|pretrain|sweep|decode|rescore|tags|\blab\b"
)  # names of other tenants


def refused(question: str, body: Wire | None = None, **params: str) -> BadQuestion:
    with pytest.raises(BadQuestion) as caught:
        Played(STORY, "1h").ask(question, body, caller=VISION, **params)
    return caught.value


def test_runs_and_reservations_of_other_namespaces_are_not_listed() -> None:
    played = Played(STORY)
    mine = rows(played.ask("runs", caller=VISION))
    assert [row["name"] for row in mine] == ["train"]
    assert len(rows(played.ask("runs"))) == 6
    assert rows(played.ask("reservations", caller=VISION)) == []
    assert len(rows(played.ask("reservations"))) == 2


@pytest.mark.parametrize("question", ["plan", "explain", "who-pays", "cover", "sponsors", "pods"])
def test_run_of_another_namespace_is_forbidden_even_if_it_does_not_exist(question: str) -> None:
    there = refused(question, namespace="text", run="pretrain")
    nowhere = refused(question, namespace="text", run="nothing")
    assert there.status == nowhere.status == 403
    assert there.message.replace("pretrain", "nothing") == nowhere.message
    own = refused(question, namespace="vision", run="nothing")
    assert (own.status, own.reason) == (404, "NotFound")


def test_leases_and_budgets_of_others_are_visible_unless_tenants_are_hidden() -> None:
    played = Played(STORY)
    assert FOREIGN.search(json.dumps(played.ask("leases", since="12h", caller=VISION)))
    for question, params in (
        ("leases", {"since": "12h"}),
        ("budgets", {"form": "usage"}),
        ("budgets", {"form": "balance"}),
        ("budgets", {"form": "tree"}),
        ("report", {"by": "owner"}),
        ("report", {"by": "payer"}),
        ("report", {"by": "run"}),
        ("explain", {"namespace": "vision", "run": "train"}),
        ("who-pays", {"namespace": "vision", "run": "train"}),
        ("sponsors", {"namespace": "vision", "run": "train"}),
        ("cover", {"namespace": "vision", "run": "train"}),
        ("audit", {}),
    ):
        told = played.ask(question, caller=VISION, **params)
        masked = played.ask(question, caller=VISION, hide_tenants=True, **params)
        assert not FOREIGN.search(json.dumps(masked)), question
        assert "vision" in json.dumps(masked) or question in ("audit",)
        numbers = [re.findall(r'"gpuMs": \d+|"gpus": \d+', json.dumps(each, sort_keys=True))
                   for each in (told, masked)]  # fmt: skip
        assert sorted(numbers[0]) == sorted(numbers[1])


def test_plan_with_hidden_tenants_names_no_other_tenant() -> None:
    played = Played(STORY)
    spec = {"owner": "org:ai:mm:vision", "locality": {"selector": {"fabric.domain": "b"}},
            "resources": {"gpuType": "H100-80GB", "totalGPUs": 8}}  # fmt: skip
    told = played.ask("plan", {**RUN, "spec": spec}, caller=VISION)
    masked = played.ask("plan", {**RUN, "spec": spec}, caller=VISION, hide_tenants=True)
    assert FOREIGN.search(json.dumps(told))
    assert not FOREIGN.search(json.dumps(masked))
    assert "us-west/gpu-a/b" in json.dumps(masked)


def test_pseudonyms_of_owners_are_stable_and_distinct() -> None:
    one, two = (
        rows(Played(STORY).ask("leases", caller=VISION, hide_tenants=True, since="12h"))
        for _ in range(2)
    )
    assert one == two
    real = rows(Played(STORY).ask("leases", since="12h"))
    pairs = {(str(a["owner"]), str(b["owner"])) for a, b in zip(real, one)}
    assert len(pairs) == len({each for each, _ in pairs}) == len({each for _, each in pairs}) == 4


def test_preempted_owner_sees_the_draw_without_names_of_other_tenants() -> None:
    text = Caller(user="tom", namespaces=("text",), spend=("org:ai:text",))
    told = Played(STORY).ask(
        "explain", caller=text, hide_tenants=True, namespace="text", run="pretrain"
    )
    words = json.dumps(told)
    assert not re.search(r"audio|vision|speech|sweep|decode|rescore|\blab\b", words)
    (cut,) = rows(told, "cuts")
    assert str(cut["seed"]) in str(cut["sentences"])
    assert re.fullmatch(r"run-[0-9a-f]{10}", str(cut["beneficiary"]))
    assert "text/pretrain of org:ai:text" in words


@pytest.mark.parametrize(
    "params",
    [{"owner": "org:ai:text"}, {"owner": "org:ai:te*"}, {"payer": "org:ai:text"},
     {"payer": "text/text/west"}, {"payer": "text/text/nothing"}],
    ids=str,
)  # fmt: skip
def test_filter_by_a_hidden_owner_or_payer_is_forbidden(params: dict[str, str]) -> None:
    played = Played(STORY, "1h")
    with pytest.raises(BadQuestion) as caught:
        played.ask("leases", caller=VISION, hide_tenants=True, **params)
    assert caught.value.status == 403
    played.ask("leases", caller=VISION, **params)  # allowed to any caller where nothing is hidden
    for own in ({"owner": "org:ai:mm:vision"}, {"payer": "vision/vision/west"}):
        assert rows(played.ask("leases", caller=VISION, hide_tenants=True, **own))


def test_plan_notes_that_the_caller_may_not_spend() -> None:
    played = Played(STORY)
    viewer = Caller(user="vic", role=CallerRole.VIEWER, namespaces=("vision",))
    assert "may not spend" in str(played.ask("plan", RUN, caller=viewer)["notes"])
    assert played.ask("plan", RUN, caller=VISION)["notes"] == []


@pytest.mark.parametrize(
    ("question", "params", "says"),
    [
        ("runs", {"colour": "red"}, "colour"),
        ("runs", {"limit": "-1"}, "limit"),
        ("runs", {"limit": "9" * 30}, "limit"),
        ("runs", {"owner": "Not An Owner"}, "owner"),
        ("leases", {"since": "yesterday"}, "since"),
        ("leases", {"at": "25:00"}, "at"),
        ("leases", {"closed": "perhaps"}, "closed"),
        ("leases", {"node": "n" * 600}, "node"),
        ("report", {"by": "colour"}, "by"),
        ("report", {"from": "2026-11-02", "to": "2026-11-01"}, "to"),
        ("budgets", {"form": "round"}, "form"),
        ("explain", {"run": "train"}, "namespace"),
        ("explain", {"namespace": "vision"}, "run"),
    ],
)
def test_invalid_parameter_is_refused_by_name(
    question: str, params: dict[str, str], says: str
) -> None:
    bad = refused(question, None, **params)
    assert (bad.status, bad.reason) == (400, "BadRequest")
    assert says in bad.message
    assert bad.causes[0][0] == says


def test_unknown_question_is_not_found_and_known_ones_are_listed() -> None:
    bad = refused("colour")
    assert bad.status == 404
    assert all(name in bad.message for name in QUESTIONS)


def test_manifest_to_plan_is_validated_like_a_submission() -> None:
    wrong: Wire = {**RUN, "spec": {"owner": "x y", "resources": {"totalGPUs": -1}}}
    bad = refused("plan", wrong)
    assert (bad.status, bad.reason) == (422, "Invalid")
    assert {path for path, _ in bad.causes} >= {"spec.owner", "spec.resources.totalGPUs"}
    assert refused("plan", {**RUN, "kind": "Budget"}).status == 422
    elsewhere = {"name": "probe", "namespace": "text"}
    assert refused("plan", {**RUN, "metadata": elsewhere}).status == 403
    assert refused("leases", RUN).status == 400


def test_question_during_recovery_is_answered_with_503() -> None:
    played = Played(STORY, "1h")
    played.stage.start_controller()  # without time to recover
    with pytest.raises(BadQuestion) as caught:
        played.ask("runs", caller=ADMIN)
    assert caught.value.status == 503
    played.stage.settle()
    assert played.ask("runs", caller=ADMIN)["items"]
