"""A Run may not request a longer grace period than the server allows, by any kind of write."""

from typing import Any

import pytest
from tests.rest.facade import RUNS, Answer, Facade, run

from leasehold.core.units import MINUTE

MERGE = {"Content-Type": "application/merge-patch+json"}
JSON_PATCH = {"Content-Type": "application/json-patch+json"}
APPLY = {"Content-Type": "application/apply-patch+yaml"}
WAYS = ("put", "merge", "json", "apply")


def edit(facade: Facade, name: str, runtime: dict[str, str], way: str, **query: str) -> Answer:
    """Edit like `kubectl replace`, `patch`, `patch --type=json` or server-side apply does."""
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


@pytest.mark.parametrize("rehearsal", [{"dryRun": "All"}, {}], ids=["dry-run", "real"])
@pytest.mark.parametrize("way", WAYS)
def test_edit_of_grace_period_is_refused(
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


def test_new_run_with_grace_period_above_server_limit_is_refused(
    facade: Facade, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(facade.world, "grace_max", MINUTE)

    refused = facade.ask("POST", RUNS, run("long", runtime={"gracePeriod": "61s"}))

    ((field, message),) = causes(refused)
    assert field == "spec.runtime.gracePeriod"
    assert "61s: use at most 1m (gracePeriod.max of this server)" in message
    assert facade.ask("POST", RUNS, run("long", runtime={"gracePeriod": "1m"})).status == 201


@pytest.mark.parametrize("way", WAYS)
def test_run_above_lowered_grace_limit_can_still_be_edited(
    facade: Facade, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = f"above-{way}"
    facade.ask("POST", RUNS, run(name, runtime={"gracePeriod": "10m"}))
    monkeypatch.setattr(facade.world, "grace_max", MINUTE)

    longer = {"gracePeriod": "10m", "maxDuration": "6h"}
    assert edit(facade, name, longer, way).status == 200
    assert facade.ask("GET", f"{RUNS}/{name}").json["spec"]["runtime"] == longer
