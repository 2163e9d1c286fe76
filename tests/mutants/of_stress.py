"""Planted bugs in what is told under stress: lost files, full disks, records that are no good."""

from tests.mutants.mutant import Mutant, unit

HIDING = ("tests/rest/test_hiding.py",)

STRESS = (
    Mutant(
        "a cut that nobody can prove",
        "control/publish.py",
        "    announce_anew(turn)\n\n\n_RETURNED",
        "\n\n_RETURNED",
        unit("shell/test_lost_key"),
    ),
    Mutant(
        "everything is announced anew at every start",
        "control/reannounce.py",
        "        if not is_provable(turn, reservation.subject,",
        "        if is_provable(turn, reservation.subject,",
        unit("shell/test_lost_key"),
    ),
    Mutant(
        "a heartbeat is a change of a node",
        "core/world.py",
        "        if known is None or replace(known, version=node.version) != node:\n",
        "        if known != node:\n",
        unit("shell/test_blocked_binds"),
    ),
    Mutant(
        "an edit that came too late changes what leases are computed from",
        "shell/loop.py",
        "            run = replace(run, spec=spec)\n",
        "            run = replace(run, spec=run.spec)\n",
        unit("shell/test_contained"),
    ),
    Mutant(
        "leases of others are listed",
        "adapters/rest/reads.py",
        "    return lambda obj: seen(obj) and asked(obj)\n",
        "    return asked\n",
        HIDING,
    ),
    Mutant(
        "a lease of somebody else can be had by its name",
        "adapters/rest/reads.py",
        "    if is_visible is not None and not is_visible(decode(body)):\n",
        "    if is_visible is not None and not body:\n",
        HIDING,
    ),
    Mutant(
        "the ledger tells who everybody is",
        "adapters/rest/hiding.py",
        "    if resource.kind in _OF_ALL and _hides(",
        "    if resource.kind in _COMMON and _hides(",
        HIDING,
    ),
)
