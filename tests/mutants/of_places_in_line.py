"""Planted bugs in where a place in line leads: who pays, who has to go, and what is told."""

from tests.mutants.mutant import Mutant, story, unit

PLACES_IN_LINE = (
    Mutant(
        "a stranger's window makes a start window-aligned",
        "core/decisions/forecast.py",
        "    payers = {segment.envelope for _, covered in plan.covered for segment in "
        "covered.segments}\n",
        "    payers = set(world.envelopes)\n",
        story("line-83"),
    ),
    Mutant(
        "a family moves for the first location by name",
        "control/cuts/reclaim.py",
        "    return [locations, *([each] for each in locations)] if len(locations) > 1",
        "    return [[each] for each in locations] if len(locations) > 1",
        story("line-81"),
    ),
    Mutant(
        "money where there is no room locks an owner out",
        "control/cuts/reclaim.py",
        "    return [locations, *([each] for each in locations)] if len(locations) > 1",
        "    return [locations] if len(locations) > 1",
        story("line-82"),
    ),
    Mutant(
        "an owner that is short of GPUs elsewhere does not ask its family",
        "control/line/activation.py",
        "    if isinstance(answer, Refused) and made is None:\n",
        "    if isinstance(answer, Refused) and answer.reason.is_about_money and made is None:\n",
        story("line-82"),
    ),
    Mutant(
        "a reclaim is of the envelope that paid for the victim first",
        "control/cuts/reclaim.py",
        "            envelope=found.envelope,\n",
        "            envelope=found.cuts.kept[0].leases[0].payer,\n",
        unit("control/test_reclaimed"),
    ),
    Mutant(
        "room that went again is not looked for when more comes",
        "core/decisions/forecast.py",
        "        each_group[domain] = times[max(least - 1, bisect_left(times, first)) :]\n",
        "        each_group[domain] = times[least - 1 :: step]\n",
        story("line-61"),
    ),
    Mutant(
        "a start that is rejected past the timeout keeps what was planned once more",
        "control/line/activation.py",
        "    return found.resolution.instant + world.policy.victim_timeout\n",
        "    return found.reservation.since + world.policy.victim_timeout\n",
        story("line-62"),
    ),
    Mutant(
        "whoever is about to start is there for good",
        "core/decisions/odds.py",
        "        if later is not agenda:\n",
        "        if later is None:\n",
        story("line-63"),
    ),
)
