"""The backend of `leasehold up`'s server: logs, questions, metrics, and checks of edits.

Made by `embedded` for the REST facade and the pages. Each function passes a request on, and turns a
refusal into the server's error for it.
"""

from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass

from leasehold.adapters.agent.agent import Agent
from leasehold.adapters.agent.logs import NoLog, NoPod
from leasehold.adapters.http.refusal import RefusalCause, RequestRefused
from leasehold.adapters.rest.backend import LogOptions
from leasehold.control.running.edits import uncovered_edit
from leasehold.core.names import Wire
from leasehold.core.objects.access import Caller
from leasehold.core.objects.wire import part, text_at
from leasehold.ports.runtime import Clock
from leasehold.shell.plane import Plane
from leasehold.shell.queries.query import BadQuestion


@dataclass(frozen=True, slots=True)
class EmbeddedBackend:
    """The functions that the REST facade and the pages of `leasehold up` call."""

    plane: Plane
    agent: Agent
    clock: Clock
    hides_tenants: bool

    def logs(self, pod: Wire, options: LogOptions) -> AsyncIterator[bytes]:
        try:
            return self.agent.logs(
                pod,
                follow=options.follow,
                timestamps=options.timestamps,
                tail_lines=options.tail_lines,
                since_ms=options.since_ms,
                limit_bytes=options.limit_bytes,
                previous=options.previous,
            )
        except NoPod as none:
            name = text_at(part(pod, "metadata"), "name")
            raise RequestRefused(404, "NotFound", str(none), kind="pods", name=name) from None
        except NoLog as none:
            raise RequestRefused(400, "BadRequest", str(none)) from None

    async def ask(
        self, caller: Caller, question: str, params: Mapping[str, str], body: Wire | None
    ) -> Wire:
        try:
            return await self.plane.questions.ask(caller, question, params, body)
        except BadQuestion as bad:
            causes = [RefusalCause("FieldValueInvalid", why, path) for path, why in bad.causes]
            raise RequestRefused(bad.status, bad.reason, bad.message, causes) from None

    async def metrics(self, caller: Caller) -> bytes:
        if self.hides_tenants and not caller.is_trusted:
            said = "metrics name every team, and query.hideTenants is on; use an admin's token"
            raise RequestRefused(403, "Forbidden", said)
        await self.plane.at_rest()
        return self.plane.metrics.text()

    async def judge(self, _: Caller, old: Wire | None, new: Wire) -> list[tuple[str, str]]:
        """Return why an edited Run could no longer be paid for. Only the World shows this, so the
        store's own checks cannot find it."""
        world = await self.plane.at_rest()
        if world is None or old is None or new.get("kind") != "Run":
            return []
        uid = text_at(part(old, "metadata"), "uid")
        return uncovered_edit(world, uid, new, max(self.clock.now(), world.head.instant))
