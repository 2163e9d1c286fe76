"""A Run may not ask for more time to stop than the server gives, however it comes to ask."""

from typing import Any

import pytest
from tests.rest.facade import RUNS, SYSTEM, Answer, Facade, run

from leasehold.core.units import MINUTE

MERGE = {"Content-Type": "application/merge-patch+json"}
JSON_PATCH = {"Content-Type": "application/json-patch+json"}
APPLY = {"Content-Type": "application/apply-patch+yaml"}
WAYS = ("put", "merge", "json", "apply")


def edit(facade: Facade, name: str, runtime: dict[str, str], way: str, **query: str) -> Answer:
    """As `kubectl replace`, `kubectl patch`, `kubectl patch --type=json` and server-side apply."""
    path = f"{RUNS}/{name}"
    match way:
        case "put":
            stored = facade.ask("GET", path).json
            changed = {**stored, "spec": {**stored["spec"], "runtime": runtime}}
            return facade.ask("PUT", path, changed, **query)
        case "merge":
            return facade.ask("PATCH", path, {"spec": {"runtime": runtime}}, headers=MERGE, **query)
        case "json":
            operation = {"op": "add", "path": "/spec/runtime", "value": runtime}
            return facade.ask("PATCH", path, [operation], headers=JSON_PATCH, **query)
    applied = run(name, runtime=runtime)
    force = {"fieldManager": "hand", "force": "true"}
    return facade.ask("PATCH", path, applied, headers=APPLY, **force, **query)


def causes(answer: Answer) -> Any:
    return [(cause["field"], cause["message"]) for cause in answer.json["details"]["causes"]]


@pytest.mark.parametrize("rehearsal", [{"dryRun": "All"}, {}], ids=["rehearsed", "done"])
@pytest.mark.parametrize("way", WAYS)
def test_an_edit_cannot_ask_for_more_than_a_new_run_can(
    facade: Facade, way: str, rehearsal: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(facade.world, "grace_max", MINUTE)
    name = f"{way}{len(rehearsal)}"
    made = facade.ask("POST", RUNS, run(name, runtime={"gracePeriod": "10s"})).json

    raised = edit(facade, name, {"gracePeriod": "61s"}, way, **rehearsal)

    assert (raised.status, raised.json["reason"]) == (422, "Invalid")
    ((field, message),) = causes(raised)
    assert field == "spec.runtime.gracePeriod"
    assert "61s: write at most 1m (gracePeriod.max of this server)" in message
    assert facade.ask("GET", f"{RUNS}/{name}").json == made
    allowed = edit(facade, name, {"gracePeriod": "1m"}, way, **rehearsal)
    assert (allowed.status, allowed.json["spec"]["runtime"]) == (200, {"gracePeriod": "1m"})


@pytest.mark.parametrize("way", WAYS)
def test_what_is_above_a_limit_that_was_lowered_can_still_be_edited(
    facade: Facade, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = f"above-{way}"
    facade.ask("POST", RUNS, run(name, runtime={"gracePeriod": "10m"}))
    monkeypatch.setattr(facade.world, "grace_max", MINUTE)

    longer = {"gracePeriod": "10m", "maxDuration": "6h"}
    assert edit(facade, name, longer, way).status == 200
    assert facade.ask("GET", f"{RUNS}/{name}").json["spec"]["runtime"] == longer
    assert edit(facade, name, {**longer, "gracePeriod": "11m"}, way).status == 422
    assert edit(facade, name, {**longer, "gracePeriod": "20s"}, way).status == 200


def test_a_run_that_was_admitted_is_told_only_that_it_cannot_be_edited(facade: Facade) -> None:
    facade.ask("POST", RUNS, run("running"))
    started = {"status": {"attempt": 1}}
    facade.ask("PATCH", f"{RUNS}/running/status", started, headers=MERGE, caller=SYSTEM)

    ((field, message),) = causes(edit(facade, "running", {"gracePeriod": "2h"}, "merge"))

    assert field == "spec.runtime.gracePeriod"
    assert "after admission only" in message
