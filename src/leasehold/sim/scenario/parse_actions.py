"""Reads the action of a step into its record.

Called by `parse` for every step. Mistakes are noted in the given fields; no action is performed.
"""

from leasehold.core.names import API_VERSION
from leasehold.core.objects import readers
from leasehold.core.objects.fields import Fields
from leasehold.core.objects.manifests import check_manifest
from leasehold.core.objects.problems import Problem, joined, shown
from leasehold.core.objects.readers import WrongValue
from leasehold.sim.machines import NodeIs, Work
from leasehold.sim.scenario import values
from leasehold.sim.scenario.parse_expectations import Named, read_expectation
from leasehold.sim.scenario.parse_trouble import read_attack
from leasehold.sim.scenario.story import (
    Action,
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
    Submit,
)

ACTIONS = (
    "submit",
    "budget",
    "edit",
    "cancel",
    "delete",
    "node",
    "foreign",
    "pod",
    "binds",
    "restart",
    "attack",
    "expect",
)
BINDS_MAX = 1_000

_NODE_IS = readers.one_of(NodeIs)


def read_action(fields: Fields, named: Named) -> Action | None:
    """Return the action of a step. Return None if the step has not exactly one action, or an
    invalid one."""
    present = [name for name in ACTIONS if name in fields.members]
    if len(present) != 1:
        if not fields.is_void:
            found = ", ".join(present) or "no action"
            remedy = "use exactly one of " + ", ".join(ACTIONS)
            fields.problems.append(Problem(path=fields.path, value=found, remedy=remedy))
        fields.allow(*ACTIONS, "work", "refused")
        return None
    match present[0]:
        case "submit":
            return _read_submit(fields)
        case "budget":
            budgets = read_specs(fields, "budget", "Budget", check=not fields.has("refused"))
            return PutBudgets(budgets=budgets, refused=_read_refused(fields))
        case "edit":
            return _read_edit(fields, named)
        case "expect":
            read = [read_expectation(each, named) for each in fields.each("expect")]
            return Expect(expectations=tuple(each for each in read if each is not None))
        case "restart":
            fields.need("restart", _controller)
            return RestartController()
        case "cancel":
            run = fields.need("cancel", named.run)
            return None if run is None else Cancel(run=run)
        case name:
            return _read_physical(fields.inside(name, required=True), name, named)


def read_specs(fields: Fields, key: str, kind: str, *, check: bool) -> tuple[tuple[str, Spec], ...]:
    """Read a mapping `{namespace/name: spec, …}` of objects of one kind. With `check`, also note
    what the server would refuse."""
    listed = fields.inside(key, required=True)
    found = []
    for name, raw in listed.members.items():
        assert isinstance(name, str), "the file reader makes texts of keys"
        path = joined(listed.path, name)
        spec = listed.inside(name)
        if spec.is_void:
            if raw is None:
                listed.note(name, "add its spec")
            continue
        try:
            values.run_key(name)
        except WrongValue as wrong:
            listed.problems.append(Problem(path=path, value=shown(name), remedy=wrong.remedy))
            continue
        members = {str(member): value for member, value in spec.members.items()}
        found.append((name, members))
        if check:
            for problem in check_manifest(manifest(kind, name, members)):
                place = _under(path, problem.path)
                listed.problems.append(
                    Problem(path=place, value=problem.value, remedy=problem.remedy)
                )
    if not listed.is_void and not listed.members:
        fields.note(key, f"name at least one {kind}")
    return tuple(found)


def manifest(kind: str, key: str, spec: Spec) -> Spec:
    namespace, _, name = key.partition("/")
    return {
        "apiVersion": API_VERSION,
        "kind": kind,
        "metadata": {"namespace": namespace, "name": name},
        "spec": spec,
    }


def _under(path: str, problem: str) -> str:
    """Convert a path in an object to a path in the scenario file, which has only the object's
    spec."""
    inner = problem.removeprefix("spec")
    return f"{path}{inner}" if inner != problem else path


def _read_submit(fields: Fields) -> Submit:
    return Submit(
        runs=read_specs(fields, "submit", "Run", check=not fields.has("refused")),
        works=_read_works(fields),
        refused=_read_refused(fields),
    )


def _read_works(fields: Fields) -> tuple[Work, ...]:
    raw = fields.raw("work")
    if raw is None:
        fields.allow("work")
        return ()
    listed = fields.each("work") if isinstance(raw, list) else [fields.inside("work")]
    works = []
    for each in listed:
        works.append(
            Work(
                lasts=each.take("lasts", readers.span_or_none, None),
                exit_code=each.take("exit", readers.whole(0, 255), 0),
                stops=each.take("stops", readers.span_or_none, 0),
            )
        )
        each.finish()
    if not listed:
        fields.note("work", "name what the pods do, or leave this out")
    return tuple(works)


def _read_refused(fields: Fields) -> tuple[str, ...] | None:
    if not fields.has("refused"):
        fields.allow("refused")
        return None
    paths = fields.set_of("refused", readers.text)
    if not paths and not fields.is_wrong("refused"):
        fields.note("refused", "name the JSON paths that the refusal names")
    return paths


def _read_edit(fields: Fields, named: Named) -> Action | None:
    edit = fields.inside("edit", required=True)
    refused = _read_refused(fields)
    if edit.is_void:
        return None
    if edit.has("run") == edit.has("envelope"):
        fields.note("edit", "use {run: namespace/name, spec: {…}} or {envelope: …, fields}")
        return None
    if edit.has("run"):
        run = edit.need("run", named.run)
        patch = edit.inside("spec", required=True)
        edit.finish()
        members = {str(key): value for key, value in patch.members.items()}
        return None if run is None else EditRun(run=run, patch=members, refused=refused)
    envelope = edit.need("envelope", named.envelope)
    members = {str(key): value for key, value in edit.members.items() if key != "envelope"}
    if not members:
        fields.note("edit", "name the fields of the envelope that change")
    if envelope is None:
        return None
    return EditEnvelope(envelope=envelope, patch=members, refused=refused)


def _read_physical(fields: Fields, name: str, named: Named) -> Action | None:
    """Read an action on a node or a pod, or a deletion."""
    match name:
        case "delete":
            action = _read_delete(fields, named)
        case "node":
            action = _read_node(fields, named)
        case "foreign":
            node = fields.need("node", named.node)
            gpus = fields.need("gpus", readers.gpus_or_none)
            action = None if node is None or gpus is None else SetForeign(node=node, gpus=gpus)
        case "pod":
            action = _read_pod(fields, named)
        case "attack":
            action = read_attack(fields)
        case _:
            assert name == "binds", name
            count = fields.need("fail", readers.whole(0, BINDS_MAX))
            action = None if count is None else FailBinds(count=count)
    fields.finish()
    return action


def _read_node(fields: Fields, named: Named) -> Action | None:
    node = fields.need("name", named.node)
    if not fields.has("gpus"):
        fields.allow("gpus")
        state = fields.need("is", _NODE_IS)
        return None if node is None or state is None else SetNode(name=node, state=state)
    most = (named.nodes or {}).get(node or "", BINDS_MAX)
    left = fields.need("gpus", readers.whole(0, most))
    code = fields.take("exit", readers.whole(0, 255), None)
    return None if node is None or left is None else SetGpus(node=node, left=left, exit_code=code)


def _read_delete(fields: Fields, named: Named) -> Action | None:
    present = [kind for kind in ("budget", "node", "run") if fields.has(kind)]
    if len(present) != 1:
        if not fields.is_void:
            remedy = "use one of {budget: namespace/name}, {node: name}, {run: namespace/name}"
            found = ", ".join(present) or "nothing"
            fields.problems.append(Problem(path=fields.path, value=found, remedy=remedy))
        fields.allow("budget", "node", "run")
        return None
    (kind,) = present
    reader = {"budget": values.run_key, "node": named.node, "run": named.run}[kind]
    name = fields.need(kind, reader)
    return None if name is None else Deletion(kind=kind, name=name)


def _read_pod(fields: Fields, named: Named) -> Action | None:
    run = fields.need("run", named.run)
    group = fields.take("group", values.index, 0)
    pod = fields.take("pod", values.index, 0)
    does = fields.need("does", values.does)
    if run is None or does is None:
        return None
    return PodDoes(run=run, group=group, pod=pod, exit_code=does[0], stuck=does[1])


def _controller(value: object) -> str:
    if value != "controller":
        raise WrongValue("use controller")
    return "controller"
