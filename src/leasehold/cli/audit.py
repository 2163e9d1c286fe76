"""`leasehold audit`: check that leases, pods and balances of a data folder agree.

While a server runs, one record may be written already and another one not yet. So disagreements are
checked again, and only those that remain are reported.
"""

import time

import click

from leasehold.adapters.asyncio_runtime import AsyncioClock, AsyncioTasks, run
from leasehold.app.visible import say
from leasehold.cli.cluster_copy import ledger_options
from leasehold.cli.config import read_config
from leasehold.cli.ledger_source import snapshot_of
from leasehold.control.audit import audit
from leasehold.core.units import plural
from leasehold.core.world.invariants import check_all
from leasehold.shell.archive.snapshot import Snapshot, world_of
from leasehold.shell.config.config import Config
from leasehold.shell.config.folder import DataFolder
from leasehold.shell.loop.recover import Recovered
from leasehold.shell.loop.stored import Malformed

LOOKS = 4
PAUSE_S = 1.5


@click.command("audit")
@ledger_options
def command(data: DataFolder) -> None:
    """Compare leases, pods and balances; print disagreements, and exit with 1 if there are any."""
    config = read_config(data, None)
    leases, found = _look(data, config)
    for _ in range(LOOKS - 1):
        if not found:
            break
        time.sleep(PAUSE_S)
        leases, again = _look(data, config)
        found = [each for each in found if each in set(again)]
    for each in found:
        say(each)
    if found:
        raise SystemExit(1)
    click.echo(f"audit: ok ({plural(leases, 'open lease')})")


def _look(data: DataFolder, config: Config) -> tuple[int, list[str]]:
    with snapshot_of(data) as snapshot:
        if not snapshot.head() and not snapshot.lines():
            return 0, []  # no server ever started with it
        return _compare(snapshot, config)


def _compare(snapshot: Snapshot, config: Config) -> tuple[int, list[str]]:
    async def main(clock: AsyncioClock, _: AsyncioTasks) -> Recovered:
        return await world_of(snapshot, clock, policy=config.policy, labels=config.labels)

    try:
        found = run(main)
    except Malformed as malformed:
        return 0, [f"{malformed}; restore the newest backup"]
    world = found.world
    now = max(world.head.instant, time.time_ns() // 1_000_000)
    broken = map(str, check_all(world, now))
    pods = list(world.pods.values())
    return len(world.terms), [*map(str, found.unreadable), *audit(world, pods, now), *broken]
