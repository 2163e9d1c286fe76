"""Reads exported ledgers and objects (JSON lines); an error names the line."""

from collections.abc import Iterator
from pathlib import Path

import click
import msgspec

from leasehold.core.names import Wire

_DECODER = msgspec.json.Decoder(dict[str, object])


def read_lines(path: Path) -> Iterator[Wire]:
    """Yield each line of a file as an object. A line that cannot be read ends the command with exit
    status 1.

    Lines are read one at a time, so that a year of batches does not fill the memory. Lines after
    the first unreadable one are not read.
    """
    found = False
    try:
        with path.open("rb") as file:
            for number, line in enumerate(file, start=1):
                if line.strip():
                    found = True
                    yield _decoded(line, f"{path}:{number}")
    except (OSError, ValueError) as error:
        said = getattr(error, "strerror", None) or error
        raise click.ClickException(f"{path}: {said}; name a file that can be read") from None
    if not found:
        raise click.ClickException(f"{path} is empty; export a ledger with `--out DIR` first")


def _decoded(line: bytes, place: str) -> Wire:
    remedy = "export it again with `--out DIR`"
    try:
        return _DECODER.decode(line)
    except RecursionError:
        raise click.ClickException(f"{place}: nested too deep; {remedy}") from None
    except msgspec.DecodeError as error:  # includes ValidationError
        raise click.ClickException(f"{place}: not a JSON object: {error}; {remedy}") from None
