"""A pod that a store is asked about before it is made, on behalf of a whole gang.

`shell.tryouts` asks, a store that has somebody to ask (an API server) answers.
"""

from leasehold.core.facts import Record
from leasehold.core.names import Wire


class Trial(Record, frozen=True):
    """A pod as a run's would be, of which so many must be there at once, with so many GPUs."""

    pod: Wire
    count: int
    gpus: int
    gpu_resource: str


class TriedPod(Record, frozen=True):
    """The pod as it would be made. `nodes`: the only ones from which its volumes can be reached;
    None: it has none that say so."""

    pod: Wire
    nodes: frozenset[str] | None = None
