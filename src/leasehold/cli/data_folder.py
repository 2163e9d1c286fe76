"""The `--data` option: where an embedded control plane keeps everything, and its default.

Used by every command that works on a data folder. The folder itself is `shell.folder`'s.
"""

import os
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import click

from leasehold.shell.folder import DataFolder

F = TypeVar("F", bound=Callable[..., object])


def default_data() -> Path:
    """/var/lib/leasehold for root; for anybody else a folder among their own data."""
    if os.geteuid() == 0:
        return Path("/var/lib/leasehold")
    base = os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share"
    return Path(base) / "leasehold"


def data_option(command: F) -> F:
    return click.option(
        "--data",
        "data",
        type=click.Path(file_okay=False, path_type=Path),
        envvar="LEASEHOLD_DATA",
        show_envvar=True,
        default=default_data,
        show_default="/var/lib/leasehold as root, else ~/.local/share/leasehold",
        callback=lambda _ctx, _param, value: DataFolder(value),
        help="The data folder.",
    )(command)
