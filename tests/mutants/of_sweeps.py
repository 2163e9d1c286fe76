"""Planted bugs in groups that live alone (G1 to G4), and in runs that grow (E1)."""

from tests.mutants.mutant import Mutant, story, unit

_CONSIDER = "control/scheduling/consider.py"
_ADMIT = "core/admission/admit.py"

SWEEPS = (
    Mutant(
        "G1, the highest group starts first",
        _CONSIDER,
        "    wish = wish_for(world, run, groups[:1])\n    answer = _try(turn, wish)\n",
        "    groups = groups[::-1]\n    wish = wish_for(world, run, groups[:1])\n"
        "    answer = _try(turn, wish)\n",
        story("G1 or G2 or G3"),
    ),
    Mutant(
        "G2, groups beyond the minimum cut others",
        "control/scheduling/plans.py",
        "    may_cut = is_first and not wish.run.spec.opportunistic\n",
        "    may_cut = not wish.run.spec.opportunistic\n",
        story("G3-a-group-goes-elsewhere-when-its-domain-is-lost"),
    ),
    Mutant(
        "G2, groups beyond the minimum are not planned",
        _CONSIDER,
        "        enter(turn, wish, plan)\n        found.append((wish, plan))\n",
        "        break\n",
        story("G2-each-further-group-is-planned-like-a-run"),
    ),
    Mutant(
        "G2, every group of a large sweep is looked at again and again",
        _CONSIDER,
        "    started = book.units if book is not None else ()\n",
        "    started = units_of(turn.world, run)\n",
        unit("shell/test_undecided"),
    ),
    Mutant(
        "G3, the first group chooses for itself alone",
        _ADMIT,
        "    if wish.run.spec.gang is not Gang.GROUP or want.spread or want.within:\n",
        "    if want:\n",
        story("G3-the-first-group-chooses-the-domain"),
    ),
    Mutant(
        "G3, groups in a pause do not count",
        "control/scheduling/requests.py",
        "waiting=len(all_waiting_groups(world, run)) if chooses_domain else 0",
        "waiting=len(groups) if chooses_domain else 0",
        story("G3"),
    ),
    Mutant(
        "E1, who is behind grows first",
        "control/running/elastic.py",
        "    for run in in_order(world, world.work.elastic):\n        if run.spec.gang",
        "    for run in reversed(in_order(world, world.work.elastic)):\n        if run.spec.gang",
        story("E1-the-run-ahead-grows-first"),
    ),
    Mutant(
        "E1, a run grows again at once",
        "control/running/elastic.py",
        "            at = may_resize(world, run.uid, turn.now)\n"
        "            if at > turn.now or not turn.time_trusted:\n",
        "            at = turn.now\n            if not turn.time_trusted:\n",
        story("E1"),
    ),
    Mutant(
        "E1, a run grows into what a plan has",
        "control/running/elastic.py",
        "        plan = admit(world, wish, turn.calendar, start=turn.now, now=turn.now)\n",
        "        plan = admit(world, wish, type(turn.calendar)(), start=turn.now, now=turn.now)\n",
        story("E1 or Q5 or Q4 or A4 or G2"),
    ),
)
