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
    Mutant(
        "what an owner takes back is found anew whenever something ends",
        "control/line/made_room.py",
        "    if held and all(payer in world.envelopes for payer, _, _ in held):\n",
        "    if found.resolution.cause is not CutCause.OVERDRAFT and held:\n",
        story("line-71"),
    ),
    Mutant(
        "a start that its node may not take moves others' starts",
        "control/line/planning.py",
        "    return found[0] > kept and is_sitting_down(world, found[1].site.domains)\n",
        "    return found[0] > kept and not world\n",
        story("line-72"),
    ),
    Mutant(
        "an owner does not see what its family took in this turn",
        "control/cuts/reclaim.py",
        "    return _rehearsed(turn, wish, lambda: _ANY_SEED, in_earnest=False) is not None\n",
        "    return _rehearsed(turn, wish, lambda: _ANY_SEED, in_earnest=True) is not None\n",
        story("line-73"),
    ),
    Mutant(
        "what an owner that takes its envelope back is kept moves to where it fits",
        "control/line/made_room.py",
        "    if held and (is_reclaim or _can_have(world, wish, held, still_there)):\n",
        "    if held and not is_reclaim and _can_have(world, wish, held, still_there):\n",
        story("line-74"),
    ),
    Mutant(
        "what others were cut for is open to all while a rejected start is going",
        "control/line/made_room.py",
        "    ending = {world.leases[name].uid for name in world.ending}",
        "    ending: set[str] = set()",
        story("line-75"),
    ),
    Mutant(
        "what is left of a rejected start is held twice",
        "control/line/made_room.py",
        "        hold_places(turn, wish, places, start=turn.now, going=going)\n",
        "        hold_places(turn, wish, places, start=turn.now)\n",
        story("line-75"),
    ),
    Mutant(
        "a sweep that lives keeps nothing for a group that was rejected",
        "control/line/queue.py",
        "        case Then.KEEP | Then.REST:\n            pass\n",
        "        case Then.KEEP:\n            pass\n"
        "        case Then.REST:\n            turn.agenda.forget(run.uid)\n",
        story("line-76"),
    ),
    Mutant(
        "what was let go for a rejected group is kept again when the others have ended",
        "core/world/book.py",
        "and not each.did_not_bind and (each.open or each.ended_at > since)\n",
        "and not each.did_not_bind and each.open\n",
        story("line-84"),
    ),
    Mutant(
        "room that goes to a planned run is not seen to come back",
        "core/decisions/outlook.py",
        "            instants.update(hold.start for hold in holds if hold.start > self._now)\n",
        "            pass\n",
        story("line-64"),
    ),
    Mutant(
        "which part of a spare with two payers goes is for the order of names to say",
        "core/decisions/cuts.py",
        "    return spare.start, spare.run_key, spare.group, spare.index, spare.slots\n",
        "    return spare.start, spare.run_key, spare.group, spare.index, ()\n",
        story("line-85"),
    ),
)
