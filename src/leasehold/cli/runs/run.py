"""`kubectl runs run … -- COMMAND`: submits a Run without YAML, with defaults from the namespace and
the fleet.
"""

import re
import secrets
from dataclasses import dataclass
from pathlib import PurePosixPath

import click

from leasehold.app.failure import Failure
from leasehold.cli.runs.following import follow_run
from leasehold.cli.runs.options import Session, with_session
from leasehold.cli.runs.output import as_json, as_yaml, cell, rows
from leasehold.cli.runs.submit import rehearsed, submission_lines, submitted
from leasehold.cli.runs.waiting import exit_status
from leasehold.core.names import API_VERSION, Wire

ARRAY_MAX = 10_000
ARRAY_INDEX, ARRAY_COUNT = "LEASEHOLD_ARRAY_INDEX", "LEASEHOLD_ARRAY_COUNT"
_ALPHABET = "bcdfghjklmnpqrstvwxz2456789"
_RANGE = re.compile(r"(\d{1,9})-(\d{1,9})(?::(\d{1,9}))?")
_INTERPRETERS = re.compile(r"(python|bash|sh|node|ruby|perl|torchrun|env|nice|time)[\d.]*")


@dataclass(frozen=True)
class Array:
    """The indices of `--array`: there are `count` of them, beginning with `first`, each `step`
    larger than the one before."""

    first: int
    count: int
    step: int


@click.command("run")
@click.option("--name", default="", help="Name of the run.  [default: made from the command]")
@click.option(
    "--gpus",
    type=click.IntRange(min=1),
    required=True,
    help="Number of GPUs; with --array, for each index.",
)
@click.option(
    "--per-pod", type=click.IntRange(min=1), help="GPUs per pod.  [default: as many as fit]"
)
@click.option(
    "--flavor", default="", help="The GPU type.  [default: that of the Budget, if it has only one]"
)
@click.option(
    "--owner",
    default="",
    help="The owner that pays.  [default: that of the namespace, if it has only one]",
)
@click.option(
    "--max", "limit", default="", metavar="SPAN", help="How long the run may take, such as 2h."
)
@click.option(
    "--checkpoint",
    default="",
    metavar="SPAN",
    help="Checkpoint interval, such as 30m. The run is then requeued after a preemption.",
)
@click.option(
    "--array",
    default="",
    metavar="A-B[:STEP]",
    help="Start one group for each index; each group starts and ends alone.",
)
@click.option(
    "--image",
    default="none",
    show_default=True,
    help="The image, for a cluster; `leasehold up` does not use it.",
)
@click.option(
    "--follow", is_flag=True, help="Print the output of the run, and exit with its exit status."
)
@click.option(
    "--dry-run",
    is_flag=True,
    help="Validate on the server without submitting; with -o yaml, print the manifest.",
)
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED, metavar="-- COMMAND...")
@with_session()
def run(
    session: Session,
    name: str,
    gpus: int,
    per_pod: int | None,
    flavor: str,
    owner: str,
    limit: str,
    checkpoint: str,
    array: str,
    image: str,
    follow: bool,
    dry_run: bool,
    command: tuple[str, ...],
) -> None:
    """Run a command on GPUs, without a manifest.

    If the namespace's Budgets have only one owner or GPU type, it is the default. With --array the
    run has a group for each index (gang: Group); a pod finds its index in LEASEHOLD_ARRAY_INDEX,
    and the number of indices in LEASEHOLD_ARRAY_COUNT.
    """
    chosen = _array(array)
    owner, flavor = _defaults(session, owner, flavor)
    resources: Wire = {"gpuType": flavor, "totalGPUs": gpus * (chosen.count if chosen else 1)}
    if per_pod is not None:
        resources["gpusPerPod"] = per_pod
    spec: Wire = {"owner": owner, "resources": resources}
    if chosen:
        spec |= {"gang": "Group", "locality": {"groupGPUs": gpus}}
    runtime = {"maxDuration": limit, "checkpoint": checkpoint}
    if limit or checkpoint:
        spec["runtime"] = {key: value for key, value in runtime.items() if value}
    spec["template"] = {"spec": {"containers": [_container(command, image, chosen)]}}
    manifest: Wire = {
        "apiVersion": API_VERSION,
        "kind": "Run",
        "metadata": {"name": name or _named(command), "namespace": session.namespace},
        "spec": spec,
    }
    if dry_run:
        rehearsed(session, manifest)
        if session.form in ("json", "yaml"):
            text = as_yaml(manifest) if session.form == "yaml" else as_json(manifest) + "\n"
            click.echo(text, nl=False)
        else:
            click.echo(f"run {_key(manifest)} would be accepted")
        return
    done = submitted(session, manifest)
    if not follow:
        session.show({"items": [done]}, submission_lines)
        return
    click.echo("\n".join(submission_lines({"items": [done]}, False)), err=True)
    row = follow_run(session, (cell(done, "namespace"), cell(done, "name")))
    status = exit_status(session, row)
    if status:
        click.echo(f"run {_key(manifest)}: {cell(row, 'phase')}: {cell(row, 'message')}", err=True)
        raise SystemExit(status)


def _key(manifest: Wire) -> str:
    return f"{cell(manifest, 'metadata.namespace')}/{cell(manifest, 'metadata.name')}"


def _defaults(session: Session, owner: str, flavor: str) -> tuple[str, str]:
    """Return the given owner and flavor. An owner that is "" is replaced by the only owner of the
    namespace's Budgets. A flavor that is "" is replaced by the only one of that owner's Budgets; if
    they have several, by the only one that a node has."""
    params = {"form": "usage", "namespace": session.namespace}
    here = [] if owner and flavor else rows(session.server.ask("budgets", params))
    if not owner:
        owners = sorted({cell(row, "owner") for row in here})
        owner = _only(owners, f"owner of a Budget in namespace {session.namespace}", "--owner")
    if not flavor:
        every = {"form": "usage", "owner": owner}
        mine = [row for row in here if cell(row, "owner") == owner] or rows(
            session.server.ask("budgets", every)
        )
        flavors = sorted({cell(row, "flavor") for row in mine})
        if len(flavors) > 1:
            flavors = [each for each in flavors if each in _labels_of_nodes(session)]
        flavor = _only(flavors, f"flavor of {owner} that a node has", "--flavor")
    return owner, flavor


def _labels_of_nodes(session: Session) -> set[str]:
    """Return all label values of all nodes. A node's flavor is the value of one of its labels. Only
    the server's operator knows which label that is, so the values of all labels are returned."""
    found: set[str] = set()
    for node in rows(session.server.send("GET", "/api/v1/nodes")):
        metadata = node.get("metadata")
        labels = metadata.get("labels") if isinstance(metadata, dict) else None
        found.update(str(each) for each in (labels or {}).values())
    return found


def _only(found: list[str], what: str, option: str) -> str:
    if len(found) == 1:
        return found[0]
    if not found:
        raise Failure(f"found no {what}; name one with {option}")
    raise Failure(f"found more than one {what}: {', '.join(found)}; name one with {option}")


def _array(text: str) -> Array | None:
    if not text:
        return None
    match = _RANGE.fullmatch(text)
    if match is None:
        raise click.BadParameter(f"{text!r}: use 0-99 or 0-99:10", param_hint="--array")
    first, last, step = int(match[1]), int(match[2]), int(match[3] or 1)
    if last < first or step < 1:
        raise click.BadParameter(f"{text!r} has no index", param_hint="--array")
    count = (last - first) // step + 1
    if count > ARRAY_MAX:
        raise click.BadParameter(
            f"{text!r} has {count} indices; use at most {ARRAY_MAX}", param_hint="--array"
        )
    return Array(first, count, step)


def _container(command: tuple[str, ...], image: str, array: Array | None) -> Wire:
    # Pods expand `$(NAME)`, so `$` in the user's words is escaped.
    words = [each.replace("$", "$$") for each in command]
    container: Wire = {"name": "main", "image": image, "command": words}
    if array is None:
        return container
    env: list[Wire] = [{"name": ARRAY_COUNT, "value": str(array.count)}]
    if (array.first, array.step) == (0, 1):
        env.append({"name": ARRAY_INDEX, "value": "$(LEASEHOLD_GROUP)"})
    else:
        index = f"$$(({array.first} + LEASEHOLD_GROUP * {array.step}))"
        script = f'export {ARRAY_INDEX}={index}; exec "$$@"'
        container["command"] = ["sh", "-c", script, "sh", *words]
    return {**container, "env": env}


def _named(command: tuple[str, ...]) -> str:
    """Return a name for the run, made from the command and random letters: `train-x7k2p` for
    `python train.py`."""
    parts = [PurePosixPath(each).name for each in command if not each.startswith("-")]
    telling = [each for each in parts if not _INTERPRETERS.fullmatch(each)] or parts or ["run"]
    stem = re.sub(r"[^a-z0-9]+", "-", telling[0].partition(".")[0].lower()).strip("-")[:32]
    tail = "".join(secrets.choice(_ALPHABET) for _ in range(5))
    return f"{stem or 'run'}-{tail}"
