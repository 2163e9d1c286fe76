"""Planted bugs in what becomes of a run: pods, attempts, restarts, what is told."""

from tests.mutants.mutant import Mutant, prop, story, unit

_LEVELS = prop("levels")
_ECHOES = unit("shell/test_echoes")
_ONCE = ("tests/model/test_seeds.py", "-k", "once_differed")

RUNS = (
    Mutant(
        "a run that is gone stays in line",
        "core/world/world.py",
        "        self.work.forget(uid)\n        self.memory",
        "        self.work.look_at(uid)\n        self.memory",
        unit("control/test_line"),
    ),
    Mutant(
        "what begins at the end of a span is in its way",
        "core/world/levels.py",
        "        elif drop[0] < stop:\n",
        "        elif drop[0] <= stop:\n",
        _LEVELS,
    ),
    Mutant(
        "the window of a sweep does not move on",
        "core/world/levels.py",
        "        while window and window[0] < first:\n            window.popleft()\n",
        "",
        _LEVELS,
    ),
    Mutant(
        "what is overdue is free already",
        "core/world/accounts.py",
        "            if now < term.frees_at <= at:\n",
        "            if term.frees_at <= at:\n",
        _LEVELS,
    ),
    Mutant(
        "a start is told twice",
        "shell/loop/effects.py",
        "        if (pods.makes or uid in self._begun) and not was_untold:\n",
        "        if (pods.makes or uid in self._begun) and not run:\n",
        _ECHOES,
    ),
    Mutant(
        "a pod that has just ended is deleted with its last word",
        "control/running/pods.py",
        "            orders.append(replace(order, version=pod.version or None))\n",
        "            orders.append(order)\n",
        unit("shell/test_deleted_pods"),
    ),
    Mutant(
        "who is being stopped at a restart has never been bound",
        "control/running/tend.py",
        "    return cause is not Cause.EXIT and any(\n"
        "        lease.ending is not None and lease.ending.why.reason is Closed.FAIL"
        " for lease in leases\n    )\n",
        "    return any(lease.ending for lease in leases)\n",
        story("restart-a-stopping-group-was-bound-before"),
    ),
    Mutant(
        "a spare is looked after too late to see that all is done",
        "control/running/tend.py",
        "    _release_spares(turn, run)  # before the limit: if all pods ended well, it was not "
        "exceeded\n",
        "",
        story("runs-done-at-the-very-limit"),
    ),
    Mutant(
        "what ended an attempt excuses the exits of the next",
        "control/running/tend.py",
        "    if at == attempt.started and book",
        "    if at < attempt.started and book",
        story("E3-a-new-attempt-has-no-time-to-settle"),
    ),
    Mutant(
        "a node that rejected a pod is forgotten while the others stop",
        "core/world/book.py",
        "        return self.was_rejected or self.is_taken_back\n",
        "        return self.was_rejected\n",
        story("P3-a-rejecting-node-comes-last-for-the-next-group"),
    ),
    Mutant(
        "that a node changed is forgotten in a restart",
        "control/running/life.py",
        " or _was_planned_since(world, run)\n",
        "\n",
        story("B3-a-run-is-planned-once-a-node-changed"),
    ),
    Mutant(
        "the limit of a run that has ended wakes whoever waits",
        "control/running/tend.py",
        "    world.work.call_off(uid)\n",
        "",
        _ONCE,
    ),
    Mutant(
        "nobody looks when a grace period is over",
        "control/decide.py",
        "    _wake_for_overdue(turn)\n",
        "",
        _ONCE,
    ),
)
