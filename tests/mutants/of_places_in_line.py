"""Planted bugs in where a place in line leads: who pays there, who has to go, what is told of it."""

from tests.mutants.mutant import Mutant, story

PLACES_IN_LINE = (
    Mutant(
        "a stranger's window makes a start window-aligned",
        "core/decisions/forecast.py",
        "    payers = {segment.envelope for _, covered in plan.covered for segment in "
        "covered.segments}\n",
        "    payers = set(world.envelopes)\n",
        story("line-83"),
    ),
)
