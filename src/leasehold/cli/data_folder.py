"""The `--data` option: the data folder of an embedded control plane, and its default.

`data_option` is for commands that create or fill a folder. `server_data_option` and
`ledger_data_option` are for commands that work on a server's folder. Without --data and
LEASEHOLD_DATA, these two use the server that KUBECONFIG names, as kubectl and `leasehold runs` do.
`shell.config.folder` knows the files in the folder.
"""

import os
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import click
from click.core import ParameterSource

from leasehold.adapters.kubeconfig.read import BadKubeconfig, KubeContext, load_context
from leasehold.adapters.kubeconfig.write import read_back
from leasehold.shell.config.folder import DataFolder

F = TypeVar("F", bound=Callable[..., object])
_DEFAULT = "/var/lib/leasehold as root, otherwise ~/.local/share/leasehold"


def default_data() -> Path:
    """Return the default data folder: /var/lib/leasehold for root, for other users a folder among
    their own data."""
    if os.geteuid() == 0:
        return Path("/var/lib/leasehold")
    base = os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share"
    return Path(base) / "leasehold"


def data_option(command: F) -> F:
    return _option(_DEFAULT, lambda _ctx, _param, value: DataFolder(value))(command)


def server_data_option(command: F) -> F:
    """Add `--data` to a command that can only work on a data folder, not on a cluster."""
    return _option(f"the one of the server that KUBECONFIG names; otherwise {_DEFAULT}", _required)(
        command
    )


def ledger_data_option(command: F) -> F:
    """Add `--data` to a command that also works on a cluster. The command gets None as `data` if
    KUBECONFIG names a cluster."""
    return _option(f"the one of the server that KUBECONFIG names; otherwise {_DEFAULT}", _found)(
        command
    )


def _option(
    default: str, found: Callable[[click.Context, click.Parameter, Path], DataFolder | None]
) -> Callable[[F], F]:
    return click.option(
        "--data",
        "data",
        type=click.Path(file_okay=False, path_type=Path),
        envvar="LEASEHOLD_DATA",
        show_envvar=True,
        default=default_data,
        show_default=default,
        callback=found,
        help="The data folder.",
    )


def _found(ctx: click.Context, param: click.Parameter, value: Path) -> DataFolder | None:
    """Return the chosen folder; without a choice, the folder of the server that KUBECONFIG names.
    Return None if that server has no data folder on this machine."""
    is_chosen = ctx.get_parameter_source(param.name or "") is not ParameterSource.DEFAULT
    if is_chosen or not os.environ.get("KUBECONFIG") or ctx.resilient_parsing:
        return DataFolder(value)
    try:
        context = load_context("", "")
    except BadKubeconfig as bad:
        raise click.UsageError(f"{bad}; or name a data folder with --data") from None
    return _folder_of(context, value)


def _required(ctx: click.Context, param: click.Parameter, value: Path) -> DataFolder:
    folder = _found(ctx, param, value)
    if folder is None:
        raise click.UsageError(
            f"KUBECONFIG names {load_context('', '').server}, which is not the server of a data "
            "folder here; name the folder with --data"
        )
    return folder


def _folder_of(context: KubeContext, default: Path) -> DataFolder | None:
    """Return the data folder of the server in `context`; None if there is none on this machine.
    `leasehold up` writes its kubeconfig into its data folder. So the search looks beside the files
    in KUBECONFIG, and in the default folder."""
    listed = os.environ["KUBECONFIG"].split(os.pathsep)
    for root in (*(Path(each).resolve().parent for each in listed if each), default):
        folder = DataFolder(root)
        written = read_back(folder.kubeconfig)
        if written is not None and (written.server, written.ca_pem) == (
            context.server,
            context.ca_data,
        ):
            return folder
    return None
