"""The limit on processes and threads of one pod: enough for any job, but not all of the machine."""

import os
from pathlib import Path

import pytest
from tests.agent.harness import Stage, pod, stage, terminated

from leasehold.adapters.agent.cgroups import Cgroups, find_cgroups, pids_at_most
from leasehold.adapters.agent.limits import Limits
from leasehold.core.names import Wire
from leasehold.core.objects.quantity import CPU, MEMORY

PYTHON = os.path.realpath("/usr/bin/python3")
LIMIT, STORM = 24, 200
FORKS = f"""
import os, sys, time
made = 0
try:
    for made in range({STORM}):
        if os.fork() == 0:
            time.sleep(600)
except BlockingIOError:
    sys.exit(made)
sys.exit({STORM})
"""


def test_fork_bomb_reaches_its_own_limit_and_bystander_completes(ground: Path) -> None:
    probe = find_cgroups("leasehold-probe")
    probe.remove()

    async def play(machine: Stage) -> tuple[Wire, Wire]:
        await machine.submit("bystander", "for i in 1 2 3 4 5 6 7 8 9; do sleep 0 & wait; done")
        await machine.store.create(pod("storm", [PYTHON, "-c", FORKS]))
        return await machine.ended("storm"), await machine.ended("bystander")

    limits = Limits(retention_ms=0, pids_max=LIMIT)
    storm, bystander = stage(ground, play, limits=limits)

    if probe.counts_processes:
        code = terminated(storm)["exitCode"]
        assert isinstance(code, int)
        assert 0 < code < LIMIT
    else:
        assert terminated(storm)["exitCode"] == STORM
    assert terminated(bystander)["exitCode"] == 0


def test_process_limit_is_lowered_where_kernel_limits_are_low(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    counts = "leasehold.adapters.agent.cgroups._kernel_counts"
    for kernel, most in (((), 1000), ((4_000_000, 300_000), 1000), ((900, 5000), 450), ((1,), 1)):
        monkeypatch.setattr(counts, lambda kernel=kernel: kernel)
        assert pids_at_most(1000) == most


@pytest.mark.parametrize(
    ("cgroups", "made"),
    [
        (Cgroups(), []),
        (
            Cgroups(unified=Path("/u"), unified_has=frozenset({"pids"}), pids=Path("/p")),
            [{"path": "/u/x", "set": [["pids.max", 7]]}],
        ),
        (
            Cgroups(unified=Path("/u"), pids=Path("/p")),
            [{"path": "/u/x", "set": []}, {"path": "/p/x", "set": [["pids.max", 7]]}],
        ),
        (Cgroups(pids=Path("/p")), [{"path": "/p/x", "set": [["pids.max", 7]]}]),
        (Cgroups(unified=Path("/u")), [{"path": "/u/x", "set": []}]),
    ],
    ids=["nothing", "version 2", "both", "version 1", "version 2 without pids"],
)
def test_cgroups_of_pod_lists_groups_and_process_limits(cgroups: Cgroups, made: list[Wire]) -> None:
    assert cgroups.of_pod("x", memory_bytes=None, cpu_milli=None, pids_max=7) == made
    assert cgroups.counts_processes == any(each["set"] for each in made)
    assert not cgroups.enforces(MEMORY)
    assert not cgroups.enforces(CPU)
