"""`leasehold fence NODE` and `leasehold drain NODE`: take a node out of service.

Both use the server of the kubeconfig, as `kubectl runs` does. Fencing states that nothing runs on
the node any more, and lets its ranks start elsewhere. So the node's agent must confirm it, once
every process on the node has ended. If no agent answers, an administrator can insist. Draining asks
the controller to empty the node, and reports what happens to each run.
"""

import time
from collections.abc import Callable
from urllib.parse import quote

import click

from leasehold.app.failure import Failure
from leasehold.cli.runs.options import Session, with_session
from leasehold.cli.runs.output import cell, part, rows
from leasehold.core.names import Wire
from leasehold.core.objects.node import DRAIN, FENCE, OUT_OF_SERVICE

PAUSE_S = 0.1
TRIES = 5
_WHO_AM_I = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
_DEAD: Wire = {"key": OUT_OF_SERVICE, "value": "nodeshutdown", "effect": "NoExecute"}


@click.command("fence")
@click.argument("node")
@click.option(
    "--force",
    is_flag=True,
    help="Fence the node although its agent does not answer, because you "
    "know that the node is down.",
)
@click.option("--undo", is_flag=True, help="Put the node back into service.")
@click.option(
    "--wait",
    "patience",
    type=click.FloatRange(min=0.0),
    default=30.0,
    show_default=True,
    metavar="SECONDS",
    help="How long to wait for the agent of the node.",
)
@with_session(namespaced=False)
def fence(session: Session, node: str, *, force: bool, undo: bool, patience: float) -> None:
    """Declare a node dead: stop its processes, close its leases, and replace its pods by spares."""
    if undo:
        after = _changed(session, node, lambda found: _without(found))
        said = f"node {node} is in service again"
    elif force:
        after = _changed(session, node, lambda found: _with_taint(found))
        said = (
            f"node {node} is fenced, although its agent did not confirm it; make sure that "
            "nothing runs there any more"
        )
    else:
        _changed(session, node, lambda _: {"metadata": {"annotations": {FENCE: "asked"}}})
        after = _await_fence(session, node, patience)
        said = f"node {node} is fenced: no process of leasehold runs there any more"
    session.show(after, lambda _found, _wide: [said])


@click.command("drain")
@click.argument("node")
@click.option(
    "--undo",
    is_flag=True,
    help="Cancel the drain: the node accepts work again, and pods that were "
    "not yet told to leave stay.",
)
@click.option(
    "--wait",
    "patience",
    type=click.FloatRange(min=0.0),
    default=None,
    metavar="SECONDS",
    help="How long to wait until the node is empty.  [default: forever]",
)
@with_session(namespaced=False)
def drain(session: Session, node: str, *, undo: bool, patience: float | None) -> None:
    """Empty a node without losing work. The node gets no new work, pods move to their spares, and
    runs with a checkpoint are requeued. The command waits for all other runs to end."""
    if undo:
        after = _changed(session, node, lambda _: _undrained())
        is_dead = any(taint.get("key") == OUT_OF_SERVICE for taint in _taints(after))
        said = f"node {node} accepts work again"
        if is_dead:
            said = (
                f"the drain of node {node} has ended, but the node is fenced; to use it, run "
                f"`leasehold fence {node} --undo`"
            )
        session.show(after, lambda _found, _wide: [said])
        return
    _found(session, node)
    since = cell(session.server.ask("drain", {"node": node}), "now")
    asked: Wire = {"metadata": {"annotations": {DRAIN: _me(session)}}}
    _changed(session, node, lambda _: {**asked, "spec": {"unschedulable": True}})
    _await_empty(session, node, patience)
    answer = session.server.ask("drain", {"node": node, "since": since})
    last = f"node {node} is empty and takes no new work"
    session.show(answer, lambda found, _wide: [*map(_line, rows(found)), last])


def _undrained() -> Wire:
    return {"metadata": {"annotations": {DRAIN: None}}, "spec": {"unschedulable": None}}


def _await_empty(session: Session, node: str, patience: float | None) -> None:
    """Wait until the node is empty. Print a line for each run on it whenever that run's state
    changes."""
    deadline = None if patience is None else time.monotonic() + patience
    told: dict[str, str] = {}
    begun = False
    while True:
        answer = session.server.ask("drain", {"node": node})
        items = rows(answer)
        draining = part(answer, "draining") is True
        if begun and not draining:
            raise Failure(f"the drain of node {node} was cancelled by another client")
        begun = begun or draining
        for item in items if begun else ():
            line = _line(item)
            if told.get(_who(item)) != line and session.form in ("table", "wide"):
                click.echo(line, err=True)
            told[_who(item)] = line
        if begun and not items:
            return
        if deadline is not None and time.monotonic() >= deadline:
            assert patience is not None, "there is a deadline"
            busy = ", ".join(sorted({cell(item, "run") for item in items}))
            raise Failure(
                f"node {node} still runs {busy} after {patience:g} s; the node gets no new work, "
                "and the drain continues"
                if items
                else (
                    f"the controller has not started to drain node {node} within {patience:g} "
                    "s; is it running?"
                )
            )
        time.sleep(PAUSE_S)


def _who(item: Wire) -> str:
    group = part(item, "group")
    return cell(item, "run") if group is None else f"{cell(item, 'run')} group {group}"


def _line(item: Wire) -> str:
    return f"{_who(item)} {cell(item, 'says')}"


def _me(session: Session) -> str:
    """Return the name that the server knows us by. It is stored with the drain, so that `explain`
    can say who drained the node."""
    review: Wire = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
    try:
        answer = session.server.send("POST", _WHO_AM_I, review)
    except Failure:
        return "asked"  # old clusters do not provide it
    return cell(answer, "status.userInfo.username")


def _await_fence(session: Session, node: str, patience: float) -> Wire:
    deadline = time.monotonic() + patience
    while True:
        found = _found(session, node)
        if any(taint.get("key") == OUT_OF_SERVICE for taint in _taints(found)):
            return found
        if time.monotonic() > deadline:
            raise Failure(
                f"no agent of node {node} answered within {patience:g} s: its processes may "
                "still run; if you know that they do not (the machine is off), use --force"
            )
        time.sleep(PAUSE_S)


def _found(session: Session, node: str) -> Wire:
    try:
        return session.server.send("GET", _path(node))
    except Failure as failure:
        if failure.status != 404:
            raise
    raise Failure(f"there is no node {node}; `kubectl get nodes` lists them")


def _changed(session: Session, node: str, change: Callable[[Wire], Wire]) -> Wire:
    """Patch the Node with what `change` returns for it; retry if another client changed it
    meanwhile. Return the Node after the change."""
    for _ in range(TRIES):
        found = _found(session, node)
        patch = change(found)
        metadata = patch.setdefault("metadata", {})
        assert isinstance(metadata, dict)
        metadata["resourceVersion"] = cell(found, "metadata.resourceVersion")
        try:
            return session.server.patch(_path(node), patch)
        except Failure as failure:
            if failure.status != 409:
                raise
    raise Failure(f"other clients keep changing node {node}; try again")


def _with_taint(found: Wire) -> Wire:
    others = [taint for taint in _taints(found) if taint.get("key") != OUT_OF_SERVICE]
    return {"spec": {"taints": [*others, _DEAD]}}


def _without(found: Wire) -> Wire:
    others = [taint for taint in _taints(found) if taint.get("key") != OUT_OF_SERVICE]
    return {"metadata": {"annotations": {FENCE: None}}, "spec": {"taints": others}}


def _taints(found: Wire) -> list[Wire]:
    spec = found.get("spec")
    taints = spec.get("taints") if isinstance(spec, dict) else None
    return [each for each in taints if isinstance(each, dict)] if isinstance(taints, list) else []


def _path(node: str) -> str:
    return f"/api/v1/nodes/{quote(node, safe='')}"
