"""Planted bugs in what is told under stress: lost files, full disks, records that are no good."""

from tests.mutants.mutant import Mutant, unit

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
)
