"""`leasehold lottery verify`: repeat a draw from its record alone, and compare the results.

The record is a Resolution. It is named on a server, or found in a file of exported objects.
"""

from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import click
import msgspec

from leasehold.app.visible import say, visible
from leasehold.cli.jsonlines import read_lines
from leasehold.core.ledger.lottery import replay
from leasehold.core.names import API_VERSION, Wire
from leasehold.core.objects.resolution import resolution_from_wire

PATH = f"/apis/{API_VERSION}/resolutions/"


@click.group("lottery")
def command() -> None:
    """Prove or disprove a lottery."""


@command.command("verify")
@click.argument("resolution", metavar="RESOLUTION|FILE")
@click.argument("name", required=False)
@click.option("--context", default="", help="The kubeconfig context to use.")
@click.option("--kubeconfig", default="", help="The kubeconfig file to use.")
def verify(resolution: str, name: str | None, context: str, kubeconfig: str) -> None:
    """Re-run the draws of a Resolution, or of those (or of NAME) in a FILE of objects."""
    file = Path(resolution)
    if file.exists() or "/" in resolution:
        found = _in_file(file, name)
    else:
        found = [_from_server(resolution, context=context, kubeconfig=kubeconfig)]
    failed = 0
    for wire in found:
        try:
            record = resolution_from_wire(wire)
        except msgspec.ValidationError as error:
            said = f"{resolution}: a Resolution is not well-formed: {error}"
            raise click.ClickException(visible(said)) from None
        problems = replay(record)
        failed += bool(problems)
        draws = len(record.lottery.draws) if record.lottery else 0
        say(f"{record.name}: {'; '.join(problems) or f'ok, draws: {draws}'}")
    raise SystemExit(1 if failed else 0)


def _in_file(file: Path, name: str | None) -> list[Wire]:
    found = list(_resolutions(file, name))
    if not found:
        raise click.ClickException(f"{file} has no Resolution {name or ''}".replace("  ", " "))
    return found


def _resolutions(file: Path, name: str | None) -> Iterator[Wire]:
    for wire in read_lines(file):
        if wire.get("kind") == "Resolution":
            metadata = wire.get("metadata")
            here = metadata.get("name") if isinstance(metadata, dict) else None
            if name in (None, here):
                yield wire


def _from_server(name: str, *, context: str, kubeconfig: str) -> Wire:
    from leasehold.app.failure import Failure
    from leasehold.cli.runs.server import connect

    try:
        server = connect(kubeconfig, context)
        try:
            return server.send("GET", f"{PATH}{quote(name, safe='')}")
        finally:
            server.close()
    except Failure as failure:
        raise click.ClickException(visible(failure.message)) from None
