"""`leasehold up`: run a complete control plane on this machine until it is told to stop.

Reads the options, starts `app.embedded`, prints how to use it, and waits for a signal. Every
problem with folder, port, fleet or store ends in one sentence.
"""

import asyncio
import gc
import os
import re
import signal
import socket
import sys
from contextlib import suppress
from pathlib import Path

import click
import msgspec
import uvloop

from leasehold.adapters.agent.devices import discover
from leasehold.adapters.agent.limits import AgentError
from leasehold.adapters.agent.requests import LocalNode
from leasehold.adapters.asyncio_runtime import AsyncioClock, AsyncioTasks
from leasehold.adapters.http.serve import PortInUse
from leasehold.adapters.http.tokens import BadTokenFile
from leasehold.adapters.sqlite.errors import BadStore, remedy_of_damage
from leasehold.app.embedded import Embedded, UpSettings
from leasehold.cli.config import config_option, read_config
from leasehold.cli.data_folder import data_option
from leasehold.core.ledger.head import UnknownFormat
from leasehold.core.units import plural
from leasehold.shell.archive.checkpoints import CheckpointLost
from leasehold.shell.config.fleetfile import NODE_GPUS_MAX, load_fleet, node_rows
from leasehold.shell.config.folder import BadFolder, DataFolder
from leasehold.shell.config.yamlfile import BadFile
from leasehold.shell.ledger.commit import HeadLost
from leasehold.shell.observe.logs import LEVELS, configure

PORT = 7443
PLACE = "local"  # region, cluster and domain of a single machine
VIRTUAL = "virtual"
COLLECT_AFTER = 20_000  # net new objects between two garbage collections


class GpuCount(click.ParamType["int | None"]):
    """The value of `--gpus`: a number of GPUs, or None for `auto`."""

    name = "auto|N"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> int | None:
        if value is None or value == "auto":
            return None
        text = str(value)
        if not text.isdecimal() or not 1 <= int(text) <= NODE_GPUS_MAX:
            self.fail(f"use auto, or a number from 1 to {NODE_GPUS_MAX}", param, ctx)
        return int(text)


@click.command("up")
@data_option
@config_option
@click.option(
    "--gpus",
    type=GpuCount(),
    default="auto",
    show_default=True,
    help="GPUs of this machine: auto, or a number of virtual slots.",
)
@click.option("--flavor", help="The GPU type.  [default: the name of the product, or `virtual`]")
@click.option(
    "--fleet",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Several virtual nodes on this machine, in rows.",
)
@click.option("--host", default="127.0.0.1", show_default=True, help="The address to listen on.")
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=PORT,
    show_default=True,
    help="The port; 0 chooses a free port.",
)
@click.option(
    "--work",
    type=click.Path(file_okay=False, path_type=Path),
    help="Folder in which jobs start, with one folder per namespace.  [default: next to the "
    "data folder]",
)
@click.option("--log-level", type=click.Choice(list(LEVELS)), default="info", show_default=True)
@click.option("--quiet", is_flag=True, help="Do not print usage hints at start.")
@click.option("--end-jobs", is_flag=True, help="Also stop the jobs when leasehold stops.")
def command(
    data: DataFolder,
    config_file: Path | None,
    gpus: int | None,
    flavor: str | None,
    *,
    fleet: Path | None,
    host: str,
    port: int,
    work: Path | None,
    log_level: str,
    quiet: bool,
    end_jobs: bool,
) -> None:
    """Start a control plane on this machine: store, REST server, controller and node agent."""
    _open_standard()
    configure(log_level)
    if not host:
        raise click.UsageError("--host is empty, which would mean all addresses; name one address")
    try:
        data.prepare()
        os.umask(0o077)  # the data folder is closed already; files moved out of it stay private
        data.check_store()
        settings = UpSettings(
            folder=data,
            config=read_config(data, config_file),
            nodes=_nodes(gpus, flavor, fleet),
            host=host,
            port=port,
            work=work.absolute() if work is not None else data.work,
        )
        _run(settings, quiet=quiet, end_jobs=end_jobs)
    except (AgentError, BadFolder, BadStore, BadFile, BadTokenFile, PortInUse) as bad:
        raise click.ClickException(str(bad)) from None
    except UnknownFormat as unknown:
        raise click.ClickException(f"{data.store}: {unknown}") from None
    except (CheckpointLost, HeadLost, msgspec.DecodeError) as error:
        # SQLite finds the file sound, but its content is damaged.
        damaged = BadStore(data.store, f"is damaged ({error})", remedy_of_damage(data.store))
        raise click.ClickException(str(damaged)) from error
    except OSError as error:
        place = error.filename or data.root
        raise click.ClickException(
            f"{place}: {error.strerror}; check permissions and free space"
        ) from None


def _open_standard() -> None:
    """Open /dev/null in place of standard streams that are closed. Otherwise the first sockets
    would get their numbers, and output would be written into them."""
    while (opened := os.open(os.devnull, os.O_RDWR)) <= 2:
        pass
    os.close(opened)
    # Python sets a closed stream to None, whatever its type says.
    for name, number in (("stdout", 1), ("stderr", 2)):
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(number, "w", closefd=False))


def _nodes(gpus: int | None, flavor: str | None, fleet: Path | None) -> list[LocalNode]:
    if fleet is not None:
        if gpus is not None or flavor is not None:
            raise click.UsageError(
                "a fleet file already names its GPUs; leave out --gpus and --flavor"
            )
        return [
            LocalNode(
                name=name,
                flavor=row.flavor,
                region=row.region,
                cluster=row.cluster,
                domain=row.domain,
                gpus=row.gpus,
            )
            for name, row in node_rows(load_fleet(fleet))
        ]
    devices = tuple(discover()) if gpus is None else ()
    if gpus is None and not devices:
        raise click.UsageError(
            "no NVIDIA GPU was found on this machine; with --gpus N, leasehold uses N virtual "
            "slots, and jobs run without a GPU"
        )
    return [
        LocalNode(
            name=_host_name(),
            flavor=flavor or (_label(devices[0].product) if devices else VIRTUAL),
            region=PLACE,
            cluster=PLACE,
            domain=PLACE,
            gpus=len(devices) if gpus is None else gpus,
            devices=devices,
        )
    ]


def _host_name() -> str:
    """Return a node name: the name of this machine as a DNS label."""
    name = re.sub(r"[^a-z0-9]+", "-", socket.gethostname().lower()).strip("-")
    return name[:63].strip("-") or "localhost"


def _label(product: str) -> str:
    """Return a product name in the form in which device plugins write it into a label.

    Example: NVIDIA H200 -> NVIDIA-H200.
    """
    return re.sub(r"[^A-Za-z0-9._-]+", "-", product).strip("-._")[:63] or "gpu"


def _run(settings: UpSettings, *, quiet: bool, end_jobs: bool) -> None:
    async def supervised() -> None:
        tasks = AsyncioTasks()
        embedded = Embedded(settings, AsyncioClock(), tasks)
        try:
            await tasks.supervise(_serve(settings, embedded, quiet=quiet, end_jobs=end_jobs))
        finally:
            embedded.close()  # after everything that uses it has ended

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(supervised())


def _spare_the_collector() -> None:
    """Make garbage collection rarer. Objects read at the start stay for ever, and few reference
    cycles are created. At the default frequency, collection would cost a tenth of the CPU time."""
    gc.freeze()
    gc.set_threshold(COLLECT_AFTER, 20, 20)


async def _serve(settings: UpSettings, embedded: Embedded, *, quiet: bool, end_jobs: bool) -> None:
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(number, stopping.set)
    try:
        if not await _is_started(embedded, stopping):
            return
        _spare_the_collector()
        loop.add_signal_handler(signal.SIGUSR1, embedded.ask_to_compact)
        if not quiet:
            for line in _greeting(settings, embedded, end_jobs=end_jobs):
                click.echo(line)
        await stopping.wait()
        if end_jobs:
            await embedded.end_jobs()
        left = embedded.agent.running
        if not quiet:
            with suppress(OSError):  # the reader of the greeting may be gone
                click.echo(_farewell(left))
    finally:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1):
            loop.remove_signal_handler(number)
        await embedded.stop()


async def _is_started(embedded: Embedded, stopping: asyncio.Event) -> bool:
    """Start the control plane. Return False if a stop signal came before it was ready.

    If the store refuses all writes, raise its error.
    """
    starting = asyncio.ensure_future(embedded.start())
    others = [asyncio.ensure_future(each) for each in (stopping.wait(), embedded.cannot_start())]
    try:
        done, _ = await asyncio.wait([starting, *others], return_when=asyncio.FIRST_COMPLETED)
    finally:
        for each in others:
            each.cancel()
    if starting not in done:
        starting.cancel()
        with suppress(asyncio.CancelledError):
            await starting
    for each in done:
        each.result()
    return starting in done


def _greeting(settings: UpSettings, embedded: Embedded, *, end_jobs: bool) -> list[str]:
    nodes = settings.nodes
    gpus = sum(node.gpus for node in nodes)
    is_virtual = not any(node.devices for node in nodes)
    flavors = sorted({node.flavor for node in nodes})
    slots = plural(gpus, "virtual slot" if is_virtual else "GPU")
    if flavors:
        slots += f" ({'flavor' if len(flavors) == 1 else 'flavors'} {', '.join(flavors)})"
    return [
        f"leasehold is up at {embedded.reception.url} with {slots} on "
        f"{plural(len(nodes), 'node')}, pid {os.getpid()}",
        f"  {embedded.users.trust}",
        f"  export KUBECONFIG={settings.folder.kubeconfig}",
        "  kubectl get nodes          list the nodes",
        "  kubectl runs list -A       list runs, GPUs and payers",
        "  kubectl runs submit -f …   docs/user-guide/quickstart.md has a first Run",
        f"  {embedded.reception.sign_in_link()}",
        "                             the dashboard; this link works once, `leasehold ui` "
        "prints another",
        "Ctrl-C stops leasehold and its jobs."
        if end_jobs
        else "Ctrl-C stops leasehold; jobs continue, and the next start adopts them.",
    ]


def _farewell(running: int) -> str:
    if not running:
        return "stopped"
    goes_on = "1 job is still running" if running == 1 else f"{running} jobs are still running"
    return (
        f"stopped; {goes_on}, and the next `leasehold up` adopts {'it' if running == 1 else 'them'}"
    )
