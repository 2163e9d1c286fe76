"""Creates the nodes and Budgets that a story begins with."""

from msgspec.structs import replace

from leasehold.core.facts import Node
from leasehold.ports.store import Store
from leasehold.shell.config.fleetfile import FleetRow
from leasehold.sim.scenario.ledger import at_once
from leasehold.sim.scenario.parse_actions import manifest
from leasehold.sim.scenario.story import Story


def node_of(name: str, row: FleetRow) -> Node:
    node = Node(
        name=name,
        flavor=row.flavor,
        region=row.region,
        cluster=row.cluster,
        fabric=row.domain,
        gpus=row.gpus,
    )
    return replace(
        node,
        cpu_milli=node.cpu_milli if row.cpu_milli is None else row.cpu_milli,
        memory_bytes=node.memory_bytes if row.memory_bytes is None else row.memory_bytes,
    )


def put_budgets(store: Store, story: Story) -> None:
    for key, spec in story.budgets:
        at_once(store.create(manifest("Budget", key, spec)))
