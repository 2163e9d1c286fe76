"""Dry run of a gang's pods before any is created.

`shell.loop.dry_runs` asks; stores with an API server answer.
"""

from leasehold.core.facts import Record
from leasehold.core.names import Wire


class Trial(Record, frozen=True):
    """A pod as a run would create it.

    `count` of these pods start together and use `gpus` GPUs in all.
    """

    pod: Wire
    count: int
    gpus: int
    gpu_resource: str


class TriedPod(Record, frozen=True):
    """The pod as the server would create it.

    `nodes`: the only nodes that can reach its volumes; None if any node can.
    """

    pod: Wire
    nodes: frozenset[str] | None = None
