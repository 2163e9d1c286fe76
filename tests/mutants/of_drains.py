"""Planted bugs in how nodes are emptied, and in the limits that a server puts on jobs."""

from tests.mutants.mutant import Mutant, story, unit

DRAINS = (
    Mutant(
        "a rank leaves before its place is clear",
        "control/draining.py",
        "    if not make_way(turn, spares):\n        return ",
        "    if not make_way(turn, spares) and not spares:\n        return ",
        story("maintenance-04"),
    ),
    Mutant(
        "a drained rank runs twice",
        "control/draining.py",
        "        end_all(turn, list(takeover.failed), off(Closed.SWAP, node))\n",
        "        end_all(turn, list(takeover.failed), off(Closed.SWAP, node))\n"
        "        [turn.open_swap(first, spare, first.index) for spare in takeover.spares]\n",
        story("maintenance-01"),
    ),
    Mutant(
        "a pod moves from one drained node to another",
        "core/swap.py",
        "        if not (lasting and spare.node in world.fleet.draining)\n",
        "        if spare.node in world.fleet.nodes\n",
        story("maintenance-15"),
    ),
    Mutant(
        "one spare is promised twice",
        "core/drain.py",
        ".get(group, []), *moving(world, uid, group)]\n",
        ".get(group, [])]\n",
        story("maintenance-11"),
    ),
    Mutant(
        "a spare that is spoken for is dropped",
        "core/swap.py",
        "    if world.moving and moving(world, spare.uid, spare.group):\n        return True\n",
        "",
        story("maintenance-04"),
    ),
    Mutant(
        "the spare is filled again before the pod comes",
        "core/fill.py",
        "lease.role is Role.SPARE and is_spoken_for(world, lease)",
        "lease.role is Role.SPARE and not lease.slots",
        story("maintenance-04"),
    ),
    Mutant(
        "who cannot be told is told",
        "core/drain.py",
        "    return state is not None and state.node.ready\n",
        "    return state is not None\n",
        story("maintenance-12"),
    ),
    Mutant(
        "drained without a checkpoint",
        "core/drain.py",
        "    if run.spec.checkpoint is None:\n",
        "    if run.spec.checkpoint is None and run.spec.stop:\n",
        story("maintenance-03"),
    ),
    Mutant(
        "a cordon empties the node",
        "core/objects/node.py",
        '        drained_by=_asker(metadata) if cordoned else "",\n',
        '        drained_by="asked" if cordoned else "",\n',
        story("maintenance-06"),
    ),
    Mutant(
        "an uncordoned node is still emptied",
        "core/objects/node.py",
        '        drained_by=_asker(metadata) if cordoned else "",\n',
        "        drained_by=_asker(metadata),\n",
        unit("objects/test_node_pod"),
    ),
    Mutant(
        "half a gang is taken for all of it",
        "core/book.py",
        "        if reason in _PASSING and not moved:\n",
        "        if reason in _PASSING:\n",
        story("maintenance-13"),
    ),
    Mutant(
        "the others do not settle when a pod leaves",
        "core/book.py",
        "        if reason in (Closed.SHRINK, Closed.SWAP):\n",
        "        if reason is Closed.SHRINK:\n",
        unit("core/test_book"),
    ),
    Mutant(
        "a drain fails whoever lost his spare",
        "control/failures.py",
        "    if all(base_reason(lease.closure) is Closed.SWAP for lease in leases):\n",
        "    if not leases:\n",
        story("maintenance-08"),
    ),
    Mutant(
        "leaving counts as a resize",
        "core/book.py",
        "            if voluntary and lease.ending.reason == Closed.SHRINK:\n",
        "            if voluntary and reason is Closed.SHRINK:\n",
        story("maintenance-07"),
    ),
    Mutant(
        "spares stay on a drained node",
        "control/draining.py",
        "    for spare in spares_to_drop(world, run.uid):\n",
        "    for spare in spares_to_drop(world, run.uid)[:0]:\n",
        story("maintenance-05"),
    ),
    Mutant(
        "a group leaves though the gang cannot",
        "core/drain.py",
        "    if not stranded:\n",
        "    if not stranded or takeovers:\n",
        story("maintenance-14"),
    ),
)

LIMITS = (
    Mutant(
        "the agent's word on a warning is not passed on",
        "cli/embedded.py",
        "                type=note.type,\n",
        "",
        ("tests/up/test_limits.py", "-k", "warns"),
    ),
    Mutant(
        "the agent's word on a warning is ignored",
        "shell/events.py",
        '        return self.type == "Warning" if self.type else self.reason in _WARNINGS\n',
        "        return self.reason in _WARNINGS\n",
        unit("shell/test_events"),
    ),
    Mutant(
        "a grace period without end",
        "control/turn.py",
        "        grace = min(grace, self.world.policy.grace_max)\n",
        "",
        unit("shell/test_grace"),
    ),
    Mutant(
        "any grace period is admitted",
        "cli/embedded.py",
        "problems_of_template(run) + grace_problems(run, grace_max)",
        "problems_of_template(run)",
        ("tests/up/test_limits.py", "-k", "grace"),
    ),
    Mutant(
        "the configured number of processes is not used",
        "cli/embedded.py",
        "            limits=Limits(pids_max=config.embedding.pids_max),\n",
        "",
        ("tests/up/test_limits.py", "-k", "forks"),
    ),
    Mutant(
        "nobody is told to leave a drained node",
        "control/tend.py",
        "    leave_drained_nodes(turn, run)\n",
        "",
        story("maintenance-02"),
    ),
)
