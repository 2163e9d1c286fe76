"""Reading exported ledgers and objects (JSON lines) from files, with errors that name the line."""

from pathlib import Path

import click
import msgspec

Wire = dict[str, object]


def read_lines(path: Path) -> list[Wire]:
    """Every line of a file as an object; a clear sentence and exit 2 if one is not."""
    try:
        text = path.read_bytes()
    except OSError as error:
        raise click.ClickException(f"{path}: {error.strerror or error}") from None
    found: list[Wire] = []
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip():
            continue
        try:
            found.append(msgspec.json.decode(line, type=dict[str, object]))
        except (msgspec.DecodeError, msgspec.ValidationError) as error:
            raise click.ClickException(f"{path}:{number}: not a JSON object: {error}") from None
    if not found:
        raise click.ClickException(f"{path}: it is empty; export a ledger with `--out DIR` first")
    return found
