"""Planted bugs in a long line: what runs that are alike share, who is planned, what is news."""

from tests.mutants.mutant import Mutant, prop, story, unit

_SHARED = prop("long_line")
_LEVELS = prop("levels")
_ECHOES = unit("shell/test_echoes")

LINES = (
    Mutant(
        "an answer outlives what was held since",
        "control/line/one_pass.py",
        "    return turn.opened, turn.released, turn.agenda.changes\n",
        "    return turn.opened, turn.released\n",
        _SHARED,
    ),
    Mutant(
        "one that holds something is told what others are told",
        "control/line/one_pass.py",
        "        and present(world, run) is None\n",
        "",
        _SHARED,
    ),
    Mutant(
        "an owner's money line has no end",
        "control/line/places_in_line.py",
        " or self.planned_of.get(owner, 0) >= self.of_owner",
        "",
        story("queue-12"),
    ),
    Mutant(
        "one reason for want of money stands behind another",
        "control/line/places_in_line.py",
        "self._money, (run.spec.owner, refused.reason)",
        "self._money, (run.spec.owner, None)",
        story("queue-12"),
    ),
    Mutant(
        "who is not planned takes a place from others",
        "control/line/places_in_line.py",
        "        if is_planned:\n            self.planned += 1\n",
        "        self.planned += 1\n        if is_planned:\n",
        story("queue-13"),
    ),
    Mutant(
        "no start that is known of stays so whatever happens",
        "control/line/one_pass.py",
        "        holds = state == _state(turn) if at == FOREVER else let_go == _let_go(turn)\n",
        "        holds = let_go == _let_go(turn)\n",
        unit("control/test_line"),
    ),
    Mutant(
        "everybody is told that they moved",
        "control/line/places_in_line.py",
        "number >> (step := number.bit_length() - 3) << step",
        "number",
        unit("control/test_line"),
    ),
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
        "shell/effects.py",
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
)
