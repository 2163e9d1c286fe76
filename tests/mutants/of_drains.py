"""Planted bugs in how nodes are emptied, and in the limits that a server puts on jobs."""

from tests.mutants.mutant import Mutant, story, unit

DRAINS = (
    Mutant(
        "a rank leaves before its place is clear",
        "control/running/draining.py",
        "    if not make_way(turn, spares):\n        return ",
        "    if not make_way(turn, spares) and not spares:\n        return ",
        story("maintenance-a-restart-in-every-pause"),
    ),
    Mutant(
        "a drained rank runs twice",
        "control/running/draining.py",
        "        end_all(turn, list(takeover.failed), "
        "ClosureReason(reason=Closed.SWAP, detail=node))\n",
        "        end_all(turn, list(takeover.failed), "
        "ClosureReason(reason=Closed.SWAP, detail=node))\n"
        "        [turn.open_swap(first, spare, first.index) for spare in takeover.spares]\n",
        story("maintenance-the-spare-takes-over"),
    ),
    Mutant(
        "a pod moves from one drained node to another",
        "core/placement/swap.py",
        "        if not (lasting and spare.node in world.fleet.draining)\n",
        "        if spare.node in world.fleet.nodes\n",
        story("maintenance-the-node-of-the-spares-is-drained"),
    ),
    Mutant(
        "one spare is promised twice",
        "core/placement/drain.py",
        ".get(group, []), *moving(world, uid, group)]\n",
        ".get(group, [])]\n",
        story("maintenance-two-nodes-and-one-spare"),
    ),
    Mutant(
        "a spare that is spoken for is dropped",
        "core/placement/swap.py",
        "    if world.moving and moving(world, spare.uid, spare.group):\n        return True\n",
        "",
        story("maintenance or S2 or S3 or R3"),
    ),
    Mutant(
        "who cannot be told is told",
        "core/placement/drain.py",
        "    return state is not None and state.node.ready\n",
        "    return state is not None\n",
        story("maintenance-a-silent-node-is-left-alone"),
    ),
    Mutant(
        "drained without a checkpoint",
        "core/placement/drain.py",
        "    if run.spec.checkpoint is None:\n",
        "    if run.spec.checkpoint is None and run.spec.stop:\n",
        story("maintenance-what-cannot-move-ends-by-itself"),
    ),
    Mutant(
        "a cordon empties the node",
        "core/objects/node.py",
        '        drained_by=_asker(metadata) if cordoned else "",\n',
        '        drained_by="asked" if cordoned else "",\n',
        story("maintenance-undone-in-the-middle"),
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
        "core/world/book.py",
        "        if reason in _PASSING and not moved:\n",
        "        if reason in _PASSING:\n",
        story("maintenance-a-gang-with-one-completed-pod"),
    ),
    Mutant(
        "the others do not settle when a pod leaves",
        "core/world/book.py",
        "        if why.reason in (Closed.SHRINK, Closed.SWAP):\n",
        "        if why.reason is Closed.SHRINK:\n",
        unit("core/test_book"),
    ),
    Mutant(
        "a drain fails whoever lost his spare",
        "control/running/failures.py",
        "    if all(why.reason is Closed.SWAP for why in whys):\n",
        "    if not leases:\n",
        story("maintenance-the-spare-fails-meanwhile"),
    ),
    Mutant(
        "leaving counts as a resize",
        "core/world/book.py",
        "            if voluntary and why.reason is Closed.SHRINK and not why.drained_node:\n",
        "            if voluntary and why.reason is Closed.SHRINK:\n",
        story("maintenance-an-elastic-run-gives-up-the-group"),
    ),
    Mutant(
        "spares stay on a drained node",
        "control/running/draining.py",
        "    for spare in spares_to_drop(world, run.uid):\n",
        "    for spare in spares_to_drop(world, run.uid)[:0]:\n",
        story("maintenance-spares-and-fillers-on-the-node"),
    ),
    Mutant(
        "a group leaves though the gang cannot",
        "core/placement/drain.py",
        "    if not stranded:\n",
        "    if not stranded or takeovers:\n",
        story("maintenance-two-groups-and-one-spare"),
    ),
)

LIMITS = (
    Mutant(
        "the agent's word on a warning is not passed on",
        "app/embedded.py",
        "                type=note.type,\n",
        "",
        ("tests/up/test_limits.py", "-k", "warns"),
    ),
    Mutant(
        "the agent's word on a warning is ignored",
        "shell/observe/events.py",
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
        "app/admission.py",
        "problems_of_template(run) + grace_problems(run, policy.grace_max)",
        "problems_of_template(run)",
        ("tests/up/test_limits.py", "-k", "grace"),
    ),
    Mutant(
        "an edit may ask for any grace period",
        "adapters/objects/admission.py",
        '        if new["kind"] == "Run" and is_template_sound:\n',
        '        if old is None and new["kind"] == "Run" and is_template_sound:\n',
        ("tests/rest/test_grace.py",),
    ),
    Mutant(
        "the configured number of processes is not used",
        "app/embedded.py",
        "            limits=Limits(pids_max=config.embedding.pids_max),\n",
        "",
        ("tests/up/test_limits.py", "-k", "forks"),
    ),
    Mutant(
        "nobody is told to leave a drained node",
        "control/running/tend.py",
        "    leave_drained_nodes(turn, run)\n",
        "",
        story("maintenance-a-run-with-a-checkpoint-moves"),
    ),
)
