"""Planted bugs in activations and in what they hold (A1 to A5)."""

from tests.mutants.mutant import Mutant, story, unit

_ACTIVATION = "control/scheduling/activation.py"
_HOLDS = "control/scheduling/holds.py"
_TESTS = unit("control/test_holds")

ACTIVATION = (
    Mutant(
        "A1, the last that came due is activated first",
        _ACTIVATION,
        "    for each in sorted(due, key=lambda one: _rank(one)):\n",
        "    for each in sorted(due, key=lambda one: _rank(one), reverse=True):\n",
        story("A1 or A2"),
    ),
    Mutant(
        "A2, two activations at a time in a domain",
        _ACTIVATION,
        "        if busy.isdisjoint(domains):\n",
        "        if busy.isdisjoint(()):\n",
        story("A2-one-activation-at-a-time-in-a-domain"),
    ),
    Mutant(
        "A3, victims have no grace period",
        "control/preemption/publish.py",
        "grace=run.spec.grace if run is not None else 0",
        "grace=0",
        story("A3-the-grace-period-has-an-end"),
    ),
    Mutant(
        "A4, the place under the victims is held against nobody",
        _HOLDS,
        "            for node, gpus in sorted(places.items())\n            if gpus\n",
        "            for node, gpus in sorted(places.items())\n            if not gpus\n",
        story("A4-a-hold-is-kept-from-runs-ahead"),
    ),
    Mutant(
        "A4, what is leased of a hold is held once more",
        _HOLDS,
        "            places[lease.node] = max(0, places[lease.node] - lease.gpus)\n",
        "",
        _TESTS,
    ),
    Mutant(
        "A4, a hold ends with its first rejected bind",
        _HOLDS,
        "        not last.is_taken_back and world.bound.get((run.uid, key)) == last.number\n",
        "        last.is_taken_back or world.bound.get((run.uid, key)) == last.number\n",
        story("A4-a-hold-lasts-through-rejected-binds or A4-a-hold-lasts-while-a-rejected"),
    ),
    Mutant(
        "A4, a hold never ends",
        _HOLDS,
        "    return max(begun + world.policy.victim_timeout, _last_deadline(world, hold))\n",
        "    return FOREVER\n",
        story("A4-a-hold-ends-at-the-drain-timeout"),
    ),
    Mutant(
        "A4, a hold ends before the grace period of its victims",
        _HOLDS,
        "    return max(begun + world.policy.victim_timeout, _last_deadline(world, hold))\n",
        "    return begun + world.policy.victim_timeout\n",
        _TESTS,
    ),
    Mutant(
        "A4, a run starts where its place is not free yet",
        _HOLDS,
        "        if not all(name in nodes and nodes[name].free >= gpus"
        " for name, gpus in held.items()):\n            return None\n",
        "",
        _TESTS,
    ),
    Mutant(
        "A4, a plan ahead is in the way of a hold",
        _HOLDS,
        "    others = turn.calendar.only(uid for uid in world.activating if uid != wish.run.uid)\n"
        "    held = ",
        "    others = turn.calendar\n    held = ",
        _TESTS,
    ),
    Mutant(
        "A4, a restart that lost a status forgets the hold",
        "control/decide.py",
        "        recall_activations(turn)\n",
        "        pass\n",
        unit("control/test_recalled"),
    ),
    Mutant(
        "A4, nobody waits for the victims of the last Resolution",
        "control/scheduling/plans.py",
        "    if _waits_for_victims(world, wish.run):\n",
        "    if not wish.run:\n",
        story("A4 or Q11 or R1"),
    ),
    Mutant(
        "A5, a checkpoint does not bring a drawn run back",
        "control/running/life.py",
        "    if run.spec.checkpoint is not None:\n",
        "    if run.spec.checkpoint is None:\n",
        story("A5-a-checkpoint-keeps-the-place-in-the-queue"),
    ),
)
