"""Every slot of the fleet has one holder or none, now and in the past; what needs somebody."""

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


def test_what_is_counted_by_flavor_is_all_there_is() -> None:
    for row in rows(Played(FIRST_DAY).ask("fleet"), "flavors"):
        assert sum(cast(int, row[kind]) for kind in KINDS) == row["gpus"]


def test_each_leased_slot_is_shown_as_its_leases() -> None:
    played = Played(FIRST_DAY)
    fleet = played.ask("fleet")
    shown, holders = cells(fleet), rows(fleet, "holders")
    for lease in rows(played.ask("leases"), "items"):
        if lease["role"] == "Spare":
            continue  # a filler may sit on it
        for slot in cast(list[int], lease["slots"]):
            holder = holders[shown[str(lease["node"])][slot] - 1]
            assert (holder["run"], holder["payer"]) == (lease["run"], lease["payer"])


def test_the_past_is_what_leases_say_it_was() -> None:
    played = Played(FIRST_DAY)
    instants = {str(row["start"]) for row in rows(played.ask("leases", since="100d"), "items")}
    for at in sorted(instants):
        fleet = played.ask("fleet", at=at)
        taken = sum(cell > 0 for found in cells(fleet).values() for cell in found)
        leases = rows(played.ask("leases", at=at), "items")
        slots = {(row["node"], slot) for row in leases for slot in cast(list[int], row["slots"])}
        assert taken == len(slots)


def test_a_lost_node_needs_somebody() -> None:
    played = Played(SCENARIOS / "S2-the-spare-fails-first.yaml")
    found = rows(played.ask("attention"), "items")
    assert [row["reason"] for row in found if row["kind"] == "Node"] == ["Fenced"]
    assert all(row["remedy"] and row["says"] for row in found)


def test_runs_of_others_need_nobody_here() -> None:
    played = Played(FIRST_DAY)
    found = rows(played.ask("attention", caller=STRANGER), "items")
    assert [row for row in found if row["kind"] in ("Run", "Reservation")] == []


def test_a_resolution_is_told_as_the_record_that_its_batch_names() -> None:
    played = Played(FIRST_DAY)
    names = [str(row["name"]) for row in rows(played.ask("resolutions"), "items")]
    assert names
    for name in names:
        (row,) = rows(played.ask("resolutions", resolution=name), "items")
        assert str(row["record"]).startswith('{"')
        assert len(str(row["digest"])) == 64


def test_there_is_no_resolution_of_that_name() -> None:
    with pytest.raises(BadQuestion) as refused:
        Played(FIRST_DAY).ask("resolutions", resolution="none-1")
    assert refused.value.status == 404


def test_resolutions_name_everybody_and_are_hidden_with_them() -> None:
    with pytest.raises(BadQuestion) as refused:
        Played(FIRST_DAY).ask("resolutions", caller=STRANGER, hide_tenants=True)
    assert refused.value.status == 403


def test_a_runs_width_is_what_its_leases_were() -> None:
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
