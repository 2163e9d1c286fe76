"""`leasehold controller`: run the controllers against a Kubernetes cluster, as one of its
replicas."""

import asyncio
import os
import signal
import socket
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

import click
import structlog

from leasehold.adapters import asyncio_runtime
from leasehold.adapters.asyncio_runtime import AsyncioClock, AsyncioTasks
from leasehold.adapters.bucket import BucketTrouble
from leasehold.adapters.http.serve import PortInUse
from leasehold.adapters.kubernetes.client import Client
from leasehold.adapters.kubernetes.probes import serve_probes
from leasehold.adapters.kubernetes.secrets import BadSecret
from leasehold.app.cluster_pages import BadFrontDoor, PagesOfReplica
from leasehold.app.cluster_queries import Answers
from leasehold.app.replica import Replica
from leasehold.cli.config import read_config_file
from leasehold.cli.kube_options import kube_options, kube_sentences, loader
from leasehold.core.names import API_VERSION
from leasehold.core.policy import Policy
from leasehold.ports.store import NotFound, StoreError
from leasehold.shell.config.config import Config, QuerySettings
from leasehold.shell.observe import logs

# The API server keeps every object in memory, and etcd has 2 GiB for all of them. A spare has no
# pod, so other schedulers and autoscalers do not see its GPUs as taken. On clusters RBAC decides
# who may read whose Runs, so answers hide the names of other tenants.
ON_CLUSTERS = Config(
    policy=Policy(max_objects=50_000, spares_on_reserved=True),
    asking=QuerySettings(hide_tenants=True),
)
_log = structlog.get_logger("leasehold")


@dataclass(frozen=True)
class ServedAddresses:
    """The addresses on which a replica serves; None for what it does not serve."""

    probes: tuple[str, int]
    questions: tuple[str, int] | None
    certificates: Path | None  # for questions
    pages: tuple[str, int] | None


@click.command("controller")
@kube_options
@click.option(
    "--config",
    "config_file",
    type=click.Path(dir_okay=False, path_type=Path),
    help="The configuration file.  [default: none, all defaults]",
)
@click.option(
    "--name", default="", help="Name of this replica.  [default: $POD_NAME, or this machine's name]"
)
@click.option(
    "--probes",
    default="127.0.0.1:8080",
    show_default=True,
    help="Address of /livez, /readyz and /metrics.",
)
@click.option(
    "--questions",
    default="",
    metavar="HOST:PORT",
    help="Address of the query API, which the API server forwards for `kubectl runs`.",
)
@click.option(
    "--certificates",
    type=click.Path(file_okay=False, path_type=Path),
    help="Folder with tls.crt, tls.key and ca.crt for the query API, as cert-manager creates "
    "them. Without these files, leasehold signs its own certificate.",
)
@click.option(
    "--pages",
    default="",
    metavar="HOST:PORT",
    help="Address of the dashboard, for the proxy that sets web.identityHeader.",
)
@click.option(
    "--log-level", type=click.Choice(list(logs.LEVELS)), default="info", show_default=True
)
def command(
    kubeconfig: str,
    context: str,
    config_file: Path | None,
    name: str,
    probes: str,
    questions: str,
    certificates: Path | None,
    pages: str,
    log_level: str,
) -> None:
    """Run the controllers against a Kubernetes cluster.

    Any number of replicas may run; one is the leader, and the others wait to take over. The cluster
    is prepared with `leasehold install`. On SIGTERM the leader hands over immediately.
    """
    config = ON_CLUSTERS
    if config_file is not None:
        config = read_config_file(config_file, ON_CLUSTERS)
    doors = ServedAddresses(
        probes=_address(probes, "--probes"),
        questions=_address(questions, "--questions") if questions else None,
        certificates=certificates,
        pages=_address(pages, "--pages") if pages else None,
    )
    if doors.pages and not config.front_door.identity_header:
        raise click.UsageError(
            "--pages: the dashboard must know its users; set web.identityHeader and "
            "web.clientCA in the configuration"
        )
    who = name or os.environ.get("POD_NAME", "") or socket.gethostname()
    logs.configure(log_level)

    async def main(clock: AsyncioClock, tasks: AsyncioTasks) -> None:
        def connect(*, patient: bool = True) -> Client:
            found = Client(loader(kubeconfig, context), in_flight=config.connection.in_flight)
            found.is_patient = patient
            return found

        client = connect(patient=False)
        try:
            await _check(client)
            client.is_patient = True
            pod = os.environ.get("POD_NAME", "")
            replica = Replica(
                client, clock, tasks, name=who, config=config, connect=connect, pod=pod
            )
            loop = asyncio.get_running_loop()
            for number in (signal.SIGTERM, signal.SIGINT):
                loop.add_signal_handler(number, replica.stop)
            async with AsyncExitStack() as opened:
                await _open(doors, config, replica, client, clock, tasks, opened)
                await replica.run()
        finally:
            await client.close()

    with kube_sentences():
        try:
            asyncio_runtime.run(main)
        except (BadSecret, BadFrontDoor, BucketTrouble, PortInUse) as bad:
            raise click.ClickException(str(bad)) from None


async def _open(
    doors: ServedAddresses,
    config: Config,
    replica: Replica,
    client: Client,
    clock: AsyncioClock,
    tasks: AsyncioTasks,
    opened: AsyncExitStack,
) -> None:
    """Start all servers of a replica; they are closed together with `opened`."""
    host, port = doors.probes
    served = await serve_probes(host, port, troubles=replica.troubles, metrics=replica.metrics)
    opened.push_async_callback(served.cleanup)
    if doors.questions is None:
        _log.info(
            "questions are not answered",
            message="--questions is not given: another replica answers",
        )
    else:
        answers = Answers(replica, client, clock, certificates=doors.certificates)
        if config.asking.aggregated:
            answering = await answers.serve(*doors.questions)
            if answering is not None:
                opened.push_async_callback(answering.cleanup)
                replica.while_leading(answers.begin, answers.end)
                tasks.spawn("questions", answers.keep_up())
        else:
            replica.while_leading(answers.end, answers.end)
    if doors.pages is not None:
        pages = PagesOfReplica(replica, client, clock, config.front_door)
        dashboard = await pages.serve(*doors.pages)
        opened.push_async_callback(dashboard.stop)


def _address(text: str, option: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    if not host or not port.isdigit() or int(port) > 65_535:
        raise click.BadParameter(f"{text!r}: use HOST:PORT", param_hint=option)
    return host.strip("[]"), int(port)


async def _check(client: Client) -> None:
    """Check that the cluster can be read and has our kinds. If not, end the command with an error
    that an operator understands."""
    try:
        await client.read(f"/apis/{API_VERSION}/runs", {"limit": "1"})
    except NotFound:
        raise click.ClickException(
            "the cluster has no Run kind; prepare it with `leasehold install`"
        ) from None
    except StoreError as error:
        notes = " ".join(getattr(error, "__notes__", []))
        server = (await client.context()).server
        raise click.ClickException(f"{server}: {error} {notes}".strip()) from None
