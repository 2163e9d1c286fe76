"""What the REST facade stands on, as one record that the composition root fills in.

`cli.up` makes a Backend from the store, the token file and the controller's answers; tests make one
from fakes. The facade asks nothing else of the rest of the program.
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
    """What `kubectl logs` may ask; `since_ms` is an instant in milliseconds UTC."""

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
    """`query` answers (caller, question, parameters, body) or raises `Refused`; `logs` is of a Pod
    object; `metrics` is Prometheus text for a caller; `health` names each check, with what is
    wrong or ""; `judge` finds problems (path, why) that need the World, before a user writes a Run
    or Budget; `hides_tenants`: what is not a caller's own is kept from it (`hiding`)."""

    store: ObjectStore
    tokens: Tokens
    clock: Clock
    query: Query
    logs: Logs
    metrics: Callable[[Caller], Awaitable[bytes]]
    health: Callable[[], Mapping[str, str]]
    judge: Judge
    hides_tenants: bool = False
