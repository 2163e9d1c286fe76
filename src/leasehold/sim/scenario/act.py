"""Performs an action of a story: users' writes on the store, everything else on the fleet.

Called by the runner for every step that is not an expectation. Returns what differs from the story
(`expected … got …`). The control loop is used for only one thing, a check that the server makes at
admission: whether a run with a longer limit is still paid for.
"""

from collections.abc import Callable
from contextlib import suppress
from copy import deepcopy

from leasehold.adapters.objects.admission import Admission, Problems
from leasehold.control.running.edits import uncovered_edit
from leasehold.core.facts import Gang, Uid
from leasehold.core.names import Wire
from leasehold.core.objects.run import run_from_wire
from leasehold.core.objects.wire import part, text_at
from leasehold.core.units import Instant
from leasehold.core.world.world import World
from leasehold.ports.store import AlreadyExists, Conflict, Invalid, NotFound, Store
from leasehold.sim.nodes import SimFleet
from leasehold.sim.scenario.parse_actions import manifest
from leasehold.sim.scenario.story import (
    Cancel,
    Deletion,
    EditEnvelope,
    EditRun,
    Expect,
    FailBinds,
    PodDoes,
    PutBudgets,
    RestartController,
    SetForeign,
    SetGpus,
    SetNode,
    Spec,
    Step,
    Submit,
)
from leasehold.sim.scenario.trouble import Attack

Change = Callable[[Wire], None]
NAME_TAKEN = [("metadata.name", "an object of this name already exists")]


class StoryUsers:
    """Plays the users of a story, and the failures that the story causes."""

    def __init__(
        self,
        store: Store,
        fleet: SimFleet,
        *,
        admission: Admission,
        world: Callable[[], World | None],
        now: Callable[[], Instant],
    ) -> None:
        self._store = store
        self._fleet = fleet
        self._admission = admission
        self._world = world
        self._now = now
        self._uids: dict[str, Uid] = {}  # name -> uid of the newest Run

    async def perform(self, step: Step) -> list[str]:
        """Perform a step, and return what happened differently from what the story expects."""
        match step.action:
            case Submit() as action:
                outcomes = [
                    (f"run {key}", await self._submit(key, spec, action))
                    for key, spec in action.runs
                ]
                return _judge(outcomes, action.refused)
            case PutBudgets() as action:
                outcomes = [
                    (f"budget {key}", await self._put_budget(key, spec))
                    for key, spec in action.budgets
                ]
                return _judge(outcomes, action.refused)
            case EditRun() as action:
                said = await self._edit_run(action.run, {"spec": action.patch})
                return _judge([(f"run {action.run}", said)], action.refused)
            case EditEnvelope() as action:
                said = await self._edit_envelope(action)
                return _judge([(f"envelope {action.envelope}", said)], action.refused)
            case Cancel(run=run):
                return _judge([(f"run {run}", await self._edit_run(run, _STOP))], None)
            case Deletion() as action:
                return await self._delete(action)
            case PodDoes() as action:
                return self._pod_does(action)
            case action:
                return self._happen(action)

    def _happen(
        self,
        action: SetNode | SetGpus | SetForeign | FailBinds | RestartController | Attack | Expect,
    ) -> list[str]:
        match action:
            case SetNode(name=name, state=state):
                self._fleet.set_node(name, state)
            case SetGpus(node=node, left=left, exit_code=code):
                self._fleet.set_gpus(node, left, code)
            case SetForeign(node=node, gpus=gpus):
                self._fleet.set_foreign(node, gpus)
            case FailBinds(count=count):
                self._fleet.reject_starts(count)
            case RestartController() | Attack() | Expect():
                raise AssertionError("the runner does this itself")
        return []

    async def _submit(self, key: str, spec: Spec, action: Submit) -> Problems:
        try:
            stored = await self._store.create(manifest("Run", key, spec))
        except Invalid as invalid:
            return list(invalid.problems)
        except AlreadyExists:
            return NAME_TAKEN
        run = run_from_wire(stored)
        self._uids[key] = run.uid
        # No await in between, so that no kubelet sees its pods first.
        self._fleet.assign(run.uid, action.works, per_group=run.spec.gang is Gang.GROUP)
        return []

    async def _put_budget(self, key: str, spec: Spec) -> Problems:
        def replace(stored: Wire) -> None:
            stored["spec"] = deepcopy(spec)

        try:
            await self._store.create(manifest("Budget", key, spec))
        except Invalid as invalid:
            return list(invalid.problems)
        except AlreadyExists:
            return await self._update("Budget", key, replace)
        return []

    async def _edit_run(self, key: str, patch: Spec) -> Problems:
        said = await self._update("Run", key, lambda stored: merge(stored, patch))
        uid = self._uids.get(key)
        if not said and uid is not None:
            with suppress(NotFound):
                run = run_from_wire(await self._get("Run", key))
                works = self._fleet.works_of(uid)
                self._fleet.assign(uid, works, per_group=run.spec.gang is Gang.GROUP)
        return said

    async def _edit_envelope(self, action: EditEnvelope) -> Problems:
        budget, _, name = action.envelope.rpartition("/")
        absent: Problems = []

        def change(stored: Wire) -> None:
            envelopes = part(stored, "spec").get("envelopes")
            for envelope in envelopes if isinstance(envelopes, list) else []:
                if isinstance(envelope, dict) and envelope.get("name") == name:
                    merge(envelope, action.patch)
                    return
            absent.append(("spec.envelopes", f"has no envelope {name}"))

        said = await self._update("Budget", budget, change)
        return said or absent

    async def _delete(self, action: Deletion) -> list[str]:
        if action.kind == "node":
            self._fleet.delete_node(action.name)
            return []
        namespace, _, name = action.name.partition("/")
        try:
            await self._store.delete(action.kind.capitalize(), namespace, name, uid=None)
        except NotFound:
            return [f"expected {action.kind} {action.name} to delete got no object of that name"]
        return []

    def _pod_does(self, action: PodDoes) -> list[str]:
        rank = (self._uids.get(action.run, ""), action.group, action.pod)
        if action.exit_code is None:
            done = self._fleet.stick_pod(rank, stuck=action.stuck)
        else:
            done = self._fleet.exit_pod(rank, action.exit_code)
        what = f"pod {action.pod} of group {action.group} of {action.run}"
        return [] if done else [f"expected {what} to run got no such process"]

    async def _update(self, kind: str, key: str, change: Change) -> Problems:
        """Read the object, change it and write it back; repeat this while there is a conflict.
        Return why it was refused, if it was."""
        while True:
            try:
                old = await self._get(kind, key)
                new = deepcopy(old)
                change(new)
                problems = self._uncovered(old, new)
                if not problems:
                    await self._store.update(new)
            except Conflict:
                continue
            except NotFound:
                return [("metadata.name", f"there is no {kind} {key}")]
            except Invalid as invalid:
                return list(invalid.problems)
            return problems

    def _uncovered(self, old: Wire, new: Wire) -> Problems:
        """Return why a run with a longer limit cannot be paid for; [] if it can, or if the new spec
        is invalid."""
        world = self._world()
        before, after = (part(part(wire, "spec"), "runtime") for wire in (old, new))
        if world is None or old.get("kind") != "Run":
            return []
        if before.get("maxDuration") == after.get("maxDuration"):
            return []
        if self._admission.problems(old, new):
            return []  # the store reports it
        uid = text_at(part(old, "metadata"), "uid")
        return list(uncovered_edit(world, uid, new, self._now()))

    async def _get(self, kind: str, key: str) -> Wire:
        namespace, _, name = key.partition("/")
        return await self._store.get(kind, namespace, name)


_STOP: Spec = {"spec": {"stop": True}}


def merge(target: Wire, patch: Wire) -> None:
    """Merge `patch` into `target` by RFC 7386: mappings are merged, null removes a key, everything
    else replaces the old value."""
    for key, value in patch.items():
        if value is None:
            target.pop(key, None)
        elif isinstance(value, dict):
            inner = target.get(key)
            if not isinstance(inner, dict):
                inner = target[key] = {}
            merge(inner, value)
        else:
            target[key] = deepcopy(value)


def _judge(outcomes: list[tuple[str, Problems]], refused: tuple[str, ...] | None) -> list[str]:
    """Return where the server's answers differ from the story: `refused` has the paths at which it
    must refuse, None means that it must accept."""
    if refused is None:
        return [
            f"expected {what} accepted got refused: {'; '.join(map(': '.join, problems))}"
            for what, problems in outcomes
            if problems
        ]
    accepted = [what for what, problems in outcomes if not problems]
    wanted = f"refused at [{', '.join(sorted(refused))}]"
    if accepted:
        return [f"expected {what} {wanted} got accepted" for what in accepted]
    named = {path for _, problems in outcomes for path, _ in problems}
    if named == set(refused):
        return []
    what = ", ".join(what for what, _ in outcomes)
    said = "; ".join(": ".join(problem) for _, problems in outcomes for problem in problems)
    return [f"expected {what} {wanted} got refused at [{', '.join(sorted(named))}] ({said})"]
