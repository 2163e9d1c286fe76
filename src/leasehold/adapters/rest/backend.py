"""What the REST facade stands on, as one record that the composition root fills in.

`cli.up` makes a Backend from the store, the token file and the controller's answers; tests make one
from fakes. The facade asks nothing else of the rest of the program.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass

from leasehold.adapters.objects.store import ObjectStore
from leasehold.adapters.rest.tokens import Tokens
from leasehold.core.objects.access import Caller
from leasehold.ports.runtime import Clock
from leasehold.ports.store import Wire


@dataclass(frozen=True, slots=True)
class LogOptions:
    """What `kubectl logs` may ask; `since_ms` is an instant in milliseconds UTC."""

    follow: bool = False
    timestamps: bool = False
    tail_lines: int | None = None
    since_ms: int | None = None
    limit_bytes: int | None = None
    previous: bool = False


@dataclass(frozen=True, slots=True)
class Cause:
    """One reason among several; `field` is a JSON path, or empty."""

    reason: str
    message: str
    field: str = ""


class Refused(Exception):  # noqa: N818 - it says what became of the request
    """A request that gets a typed Status instead of what it asked for.

    Raised anywhere in the facade, and by the functions of a Backend. `kind`, `name` and `group`
    say what it was about, where that is one object.
    """

    def __init__(
        self,
        code: int,
        reason: str,
        message: str,
        causes: Sequence[Cause] = (),
        *,
        kind: str = "",
        name: str = "",
        group: str = "",
    ) -> None:
        super().__init__(code, reason, message)
        self.code = code
        self.reason = reason
        self.message = message
        self.causes = tuple(causes)
        self.kind = kind
        self.name = name
        self.group = group

    def __str__(self) -> str:
        return f"{self.code} {self.reason}: {self.message}"


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
    metrics: Callable[[Caller], bytes]
    health: Callable[[], Mapping[str, str]]
    judge: Judge
    hides_tenants: bool = False
