"""Edits of a running run: which edits the check against the World refuses, and which it ignores."""

import pytest
from msgspec.structs import replace
from tests.properties.worlds import NOW, a_budget, a_lease, a_node, a_run, a_world

from leasehold.control.running.edits import uncovered_edit
from leasehold.core.names import Wire
from leasehold.core.units import HOUR
from leasehold.sim.scenario.parse_actions import manifest


@pytest.mark.parametrize("limit", ["never", 7, ["1h"]])
def test_budget_check_of_edits_ignores_a_malformed_edit(limit: object) -> None:
    world = a_world([a_node("n0")], [a_budget("t")])
    run = a_run("r", span=10 * HOUR)
    world.put_run(replace(run, seen_running=1))
    world.fold_open(a_lease(run, "n0", range(4), batch=0, index=0))
    resources = {"gpuType": "H", "totalGPUs": 4, "gpusPerPod": 4}
    spec: Wire = {"owner": "t", "resources": resources, "runtime": {"maxDuration": limit}}
    assert uncovered_edit(world, run.uid, manifest("Run", "n/r", spec), NOW) == []
    assert uncovered_edit(world, run.uid, {"spec": None}, NOW) == []
