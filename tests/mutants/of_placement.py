"""Planted bugs in who pays and where a run goes: cover, pack, fillers, known starts."""

from tests.mutants.mutant import Mutant, prop, story

PLACEMENT = (
    Mutant(
        "a stranger's window makes a start window-aligned",
        "core/admission/forecast.py",
        "    payers = {segment.envelope for _, covered in plan.covered for segment in "
        "covered.segments}\n",
        "    payers = set(world.envelopes)\n",
        story("Q4-a-strangers-window-does-not-align"),
    ),
    Mutant(
        "room that went again is not looked for when more comes",
        "core/admission/forecast.py",
        "        room = merge(room, *(times[max(least - 1, bisect_left(times, first)) :] "
        "for times in more))\n",
        "        room = merge(room)\n",
        prop("forecast"),
    ),
    Mutant(
        "a filler's pods that are in nobody's way are hurried, too",
        "control/running/failures.py",
        "    end_all(turn, others, Closed.RECLAIMED)\n",
        "    end_all(turn, others, Closed.RECLAIMED, grace=world.policy.filler_grace_max)\n",
        story("F3-only-the-pod-on-the-spare-is-hurried"),
    ),
    Mutant(
        "only whoever would pay today is waited for",
        "core/admission/forecast.py",
        "        others.watch_payers(plan)\n",
        "",
        story("Q4-the-payer-is-looked-for-at-the-start"),
    ),
    Mutant(
        "a filler sits down where somebody else's pods have the GPUs",
        "core/admission/fill.py",
        "        pods = min((len(slots) - max(0, too_many)) // size, self._room_beside(state))\n",
        "        pods = min(len(slots) // size, self._room_beside(state))\n",
        story("F1-no-seat-where-foreign-pods-are"),
    ),
    Mutant(
        "an owner is its own sponsor",
        "core/funding/cover.py",
        "    sponsors = tuple(each for each in ask.funding.sponsors if each != ask.owner)\n",
        "    sponsors = ask.funding.sponsors\n",
        story("C2-no-owner-is-its-own-sponsor"),
    ),
    Mutant(
        "what a run without a limit goes on to use is not counted against a plan",
        "core/funding/cover.py",
        "    since = max([start, *(each.start for each in claims)])\n",
        "    since = start\n",
        story("C5-hours-must-suffice-for-a-plan-ahead-too"),
    ),
    Mutant(
        "a rejecting node is shunned in its domain only",
        "core/admission/admit.py",
        "    rejecting = [name for name in request.placement.last if name in world.fleet.nodes]\n",
        "    rejecting = [name for name in request.placement.last if name not in "
        "world.fleet.nodes]\n",
        story("P3-a-rejecting-node-comes-last-in-the-whole-fleet"),
    ),
    Mutant(
        "a grow goes where less is left over",
        "core/admission/admit.py",
        'within=home or ("",), ',
        "within=placement.within, ",
        story("E1-a-grow-tries-its-own-domains-first"),
    ),
    Mutant(
        "a filler is on spares only",
        "core/admission/fill.py",
        "        return pods_room(self._world.fleet, pool, self._shape) + on_spares\n",
        "        return on_spares\n",
        story("F1-pods-on-free-gpus-and-on-spares"),
    ),
    Mutant(
        "a group takes what the next one needs",
        "core/admission/admit.py",
        "        found = placing.place_all_by_search()\n",
        "        found = placing.place_all_greedily()\n",
        story("P4"),
    ),
    Mutant(
        "a group on its way out keeps the others of its sweep",
        "core/world/width.py",
        "        if lease.ending is None and (state := world.fleet.nodes",
        "        if (state := world.fleet.nodes",
        story("G3-a-group-goes-elsewhere-when-its-domain-is-lost"),
    ),
    Mutant(
        "a filler sits down at the first place by name",
        "core/admission/fill.py",
        "        return min(found, key=lambda plan: preference(plan.covered[0]))\n",
        "        return found[0]\n",
        story("F1-a-filler-goes-where-its-own-envelope-pays"),
    ),
)
