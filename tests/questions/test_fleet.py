"""The fleet's slots have one holder or none, now and in the past; alerts that require action."""

from typing import cast

import pytest
from tests.questions.played import FIRST_DAY, SCENARIOS, Played
from tests.questions.test_the_past import rows

from leasehold.core.objects.access import Caller, CallerRole
from leasehold.shell.queries.query import BadQuestion

KINDS = ("paid", "spare", "filler", "foreign", "idle", "closed", "broken")
STRANGER = Caller(user="eve", role=CallerRole.USER, namespaces=("elsewhere",))


def cells(answer: dict[str, object]) -> dict[str, list[int]]:
    return {str(row["node"]): cast(list[int], row["cells"]) for row in rows(answer, "nodes")}


def test_kinds_of_gpus_of_each_flavor_add_up_to_all_its_gpus() -> None:
    for row in rows(Played(FIRST_DAY).ask("fleet"), "flavors"):
        assert sum(cast(int, row[kind]) for kind in KINDS) == row["gpus"]


def test_each_leased_slot_shows_run_and_payer_of_its_lease() -> None:
    played = Played(FIRST_DAY)
    fleet = played.ask("fleet")
    shown, holders = cells(fleet), rows(fleet, "holders")
    for lease in rows(played.ask("leases"), "items"):
        if lease["role"] == "Spare":
            continue  # a filler may use it
        for slot in cast(list[int], lease["slots"]):
            holder = holders[shown[str(lease["node"])][slot] - 1]
            assert (holder["run"], holder["payer"]) == (lease["run"], lease["payer"])


def test_fleet_at_past_instants_matches_the_leases() -> None:
    played = Played(FIRST_DAY)
    instants = {str(row["start"]) for row in rows(played.ask("leases", since="100d"), "items")}
    for at in sorted(instants):
        fleet = played.ask("fleet", at=at)
        taken = sum(cell > 0 for found in cells(fleet).values() for cell in found)
        leases = rows(played.ask("leases", at=at), "items")
        slots = {(row["node"], slot) for row in leases for slot in cast(list[int], row["slots"])}
        assert taken == len(slots)


def test_lost_node_requires_attention_with_remedy() -> None:
    played = Played(SCENARIOS / "S2-the-spare-fails-first.yaml")
    found = rows(played.ask("attention"), "items")
    assert [row["reason"] for row in found if row["kind"] == "Node"] == ["Fenced"]
    assert all(row["remedy"] and row["says"] for row in found)


def test_attention_omits_runs_of_other_namespaces() -> None:
    played = Played(FIRST_DAY)
    found = rows(played.ask("attention", caller=STRANGER), "items")
    assert [row for row in found if row["kind"] in ("Run", "Reservation")] == []


def test_resolution_is_answered_with_its_record_and_digest() -> None:
    played = Played(FIRST_DAY)
    names = [str(row["name"]) for row in rows(played.ask("resolutions"), "items")]
    assert names
    for name in names:
        (row,) = rows(played.ask("resolutions", resolution=name), "items")
        assert str(row["record"]).startswith('{"')
        assert len(str(row["digest"])) == 64


def test_unknown_resolution_is_not_found() -> None:
    with pytest.raises(BadQuestion) as refused:
        Played(FIRST_DAY).ask("resolutions", resolution="none-1")
    assert refused.value.status == 404


def test_resolutions_are_forbidden_where_tenants_are_hidden() -> None:
    with pytest.raises(BadQuestion) as refused:
        Played(FIRST_DAY).ask("resolutions", caller=STRANGER, hide_tenants=True)
    assert refused.value.status == 403


def test_width_of_a_run_over_time_matches_its_leases() -> None:
    played = Played(FIRST_DAY)
    for row in rows(played.ask("runs"), "items"):
        named = {"namespace": str(row["namespace"]), "run": str(row["name"])}
        points = rows(played.ask("widths", **named), "items")
        for point in points:
            leases = rows(played.ask("leases", **named, at=str(point["at"])), "items")
            held = {True: 0, False: 0}
            for lease in leases:
                held[lease["role"] == "Spare"] += cast(int, lease["gpus"])
            assert (point["active"], point["spare"]) == (held[False], held[True])
