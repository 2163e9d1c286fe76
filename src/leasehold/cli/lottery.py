"""`leasehold lottery verify`: re-run a draw from its record alone and compare."""

from pathlib import Path

import click
import msgspec

from leasehold.cli.jsonlines import read_lines
from leasehold.core.lottery import replay
from leasehold.core.objects.resolution import resolution_from_wire


@click.group("lottery")
def command() -> None:
    """Prove or disprove a lottery."""


@command.command("verify")
@click.argument("file", type=click.Path(path_type=Path))
@click.argument("name", required=False)
def verify(file: Path, name: str | None) -> None:
    """Re-run the draws of the Resolutions in a file of objects (or of one of them)."""
    found = failed = 0
    for wire in read_lines(file):
        if wire.get("kind") != "Resolution":
            continue
        try:
            resolution = resolution_from_wire(wire)
        except msgspec.ValidationError as error:
            raise click.ClickException(
                f"{file}: a Resolution is not well-formed: {error}"
            ) from None
        if name not in (None, resolution.name):
            continue
        found += 1
        problems = replay(resolution)
        failed += bool(problems)
        draws = len(resolution.lottery.draws) if resolution.lottery else 0
        click.echo(f"{resolution.name}: {'; '.join(problems) or f'ok, draws: {draws}'}")
    if not found:
        raise click.ClickException(f"{file}: no Resolution {name or ''} in it".replace("  ", " "))
    raise SystemExit(1 if failed else 0)
