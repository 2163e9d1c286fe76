"""A Run may not ask for more time to stop than the server gives, however it comes to ask."""

from typing import Any

import pytest
from tests.rest.facade import RUNS, Answer, Facade, run

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
def test_a_grace_period_cannot_be_edited(
    facade: Facade, way: str, rehearsal: dict[str, str]
) -> None:
    name = f"{way}{len(rehearsal)}"
    made = facade.ask("POST", RUNS, run(name, runtime={"gracePeriod": "10s"})).json

    for changed in ("2h", "11s", "9s"):
        edited = edit(facade, name, {"gracePeriod": changed}, way, **rehearsal)

        assert (edited.status, edited.json["reason"]) == (422, "Invalid")
        ((field, message),) = causes(edited)
        assert field == "spec.runtime.gracePeriod"
        assert "can be edited; delete the Run and submit another" in message
    assert facade.ask("GET", f"{RUNS}/{name}").json == made


def test_a_new_run_cannot_ask_for_more_than_the_server_gives(
    facade: Facade, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(facade.world, "grace_max", MINUTE)

    refused = facade.ask("POST", RUNS, run("long", runtime={"gracePeriod": "61s"}))

    ((field, message),) = causes(refused)
    assert field == "spec.runtime.gracePeriod"
    assert "61s: use at most 1m (gracePeriod.max of this server)" in message
    assert facade.ask("POST", RUNS, run("long", runtime={"gracePeriod": "1m"})).status == 201


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
