"""The dependencies of the REST server, in one record filled in by the composition root.

`cli.up` makes a Backend from store, token file and the controller's answers; tests make one from
fakes. The REST server uses nothing else of the program.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass

from leasehold.adapters.http.tokens import Tokens
from leasehold.adapters.objects.store import ObjectStore
from leasehold.core.names import Wire
from leasehold.core.objects.access import Caller
from leasehold.ports.runtime import Clock


@dataclass(frozen=True, slots=True)
class LogOptions:
    """The options of `kubectl logs`; `since_ms` is in milliseconds UTC."""

    follow: bool = False
    timestamps: bool = False
    tail_lines: int | None = None
    since_ms: int | None = None
    limit_bytes: int | None = None
    previous: bool = False


Query = Callable[[Caller, str, Mapping[str, str], Wire | None], Awaitable[Wire]]
Logs = Callable[[Wire, LogOptions], AsyncIterator[bytes]]
Judge = Callable[[Caller, Wire | None, Wire], Awaitable[list[tuple[str, str]]]]


@dataclass(frozen=True, slots=True)
class Backend:
    """What the REST server needs.

    `query` answers a question, given (caller, question, parameters, body), or raises
    `RequestRefused`. `logs` returns the output of a Pod object. `metrics` returns Prometheus text
    for a caller. `health` returns the problem of each check, or "". `judge` returns (path, why) for
    each problem of a Run or Budget that can only be found by looking at the World. `hides_tenants`:
    see `hiding`."""

    store: ObjectStore
    tokens: Tokens
    clock: Clock
    query: Query
    logs: Logs
    metrics: Callable[[Caller], Awaitable[bytes]]
    health: Callable[[], Mapping[str, str]]
    judge: Judge
    hides_tenants: bool = False
