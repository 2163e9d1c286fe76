"""The read-only query API.

The REST facade calls `Questions.ask` for `/query/v1/{question}`. This module checks the parameters
and what the caller may see, and hides other tenants' names if configured; `control.questions`
computes the answers. Nothing is ever written.
"""

import secrets
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass

import msgspec
from msgspec.structs import replace

from leasehold.control.questions.answers import ANSWERS
from leasehold.control.questions.answers.runs import RunsAnswer
from leasehold.control.questions.answers.shape import Answer, wire
from leasehold.control.questions.attention import attention
from leasehold.control.questions.budgets import FORMS, budgets
from leasehold.control.questions.cover import afresh, recorded
from leasehold.control.questions.drain import drain
from leasehold.control.questions.explain import explain
from leasehold.control.questions.fleet import fleet
from leasehold.control.questions.formats import instant
from leasehold.control.questions.hidden_tenants import Mask, VisibleNames
from leasehold.control.questions.leases import Filter, lease_list
from leasehold.control.questions.parameters import PARAMETERS, WITH_BODY
from leasehold.control.questions.plan import as_submitted, plan, plan_of
from leasehold.control.questions.records import audited, ledger_head, pods
from leasehold.control.questions.report import GROUPINGS, SPANS, Period, gpu_hours
from leasehold.control.questions.reservations import reservations
from leasehold.control.questions.resolutions import resolution, resolutions
from leasehold.control.questions.runs import run_list
from leasehold.control.questions.sponsors import sponsors
from leasehold.control.questions.subject import Subject, find
from leasehold.control.questions.who_pays import who_pays
from leasehold.control.questions.widths import widths
from leasehold.core.facts import Lease, Phase, Run
from leasehold.core.names import GROUP, Wire
from leasehold.core.objects.access import Caller, OwnerVerb
from leasehold.core.objects.manifests import check_manifest
from leasehold.core.objects.owners import is_owner_glob
from leasehold.core.objects.problems import Problem
from leasehold.core.objects.resolution import resolution_from_wire
from leasehold.core.objects.run import run_from_wire
from leasehold.core.resolutions import Resolution
from leasehold.core.units import SECOND, Instant, Millis, parse_instant, parse_span
from leasehold.core.world.world import World
from leasehold.ports.archive import ArchivedLeases, ArchivedResolutions, ArchivedSince
from leasehold.ports.runtime import Clock
from leasehold.shell.archive.segments import BadArchive
from leasehold.shell.loop.loop import NotCommitted
from leasehold.shell.queries.periods import NoSuchZone, buckets
from leasehold.shell.queries.spending import SpendingCache

PATIENCE: Millis = 5 * SECOND  # maximum wait for a decision that is being committed
_TEXT_CHARS_MAX = 512
_LIMIT_MAX = 10_000_000


class BadQuestion(Exception):  # noqa: N818 - named for the condition
    """Why a query cannot be answered, in the terms of a Kubernetes `Status`."""

    def __init__(
        self,
        status: int,
        reason: str,
        message: str,
        causes: Iterable[tuple[str, str]] = (),
    ) -> None:
        super().__init__(message)
        self.status = status
        self.reason = reason
        self.message = message
        self.causes = tuple(causes)  # (field, message)


@dataclass(frozen=True, slots=True)
class Answered:
    """The answer to a query, with the instant it is true for. Names that this caller may not see
    are hidden."""

    now: Instant
    found: Answer


class _Asked:
    """One query: its caller, its parameters and body, and the World and instant for which it is
    answered. The methods read and check one parameter each, and raise `BadQuestion`."""

    def __init__(
        self,
        caller: Caller,
        params: Mapping[str, str],
        body: Wire | None,
        *,
        world: World,
        now: Instant,
        sight: VisibleNames | None,
    ) -> None:
        """`sight`: which names the caller may use in parameters; None means all."""
        self.caller = caller
        self.sight = sight
        self.body = body
        self.world = world
        self.now = now
        self._params = params

    def text(self, name: str) -> str:
        value = self._params.get(name, "")
        if len(value) > _TEXT_CHARS_MAX:
            raise _bad_param(name, f"use at most {_TEXT_CHARS_MAX} characters")
        return value

    def flag(self, name: str) -> bool:
        value = self.text(name)
        if value not in ("", "true", "false"):
            raise _bad_param(name, "use true or false")
        return value == "true"

    def choice(self, name: str, choices: tuple[str, ...]) -> str:
        value = self.text(name) or choices[0]
        if value not in choices:
            raise _bad_param(name, f"use {' or '.join(choices)}")
        return value

    def phases(self) -> list[str]:
        """Return the phases in the parameter `phase`, which are separated by commas."""
        found = [each for each in self.text("phase").split(",") if each]
        for each in found:
            if each not in list(Phase):
                raise _bad_param("phase", f"use {', '.join(Phase)}")
        return found

    def limit(self) -> int | None:
        value = self.text("limit")
        if not value:
            return None
        if not (value.isascii() and value.isdigit() and 0 < int(value[:9]) <= _LIMIT_MAX):
            raise _bad_param("limit", f"use a whole number from 1 to {_LIMIT_MAX}")
        return int(value[:9])

    def instant(self, name: str) -> Instant | None:
        """Return the time in a parameter: an RFC 3339 time, a day (its midnight UTC), or a duration
        before now. None if the parameter is missing."""
        value = self.text(name)
        if not value:
            return None
        found = parse_instant(value)
        if found is None:
            found = parse_instant(f"{value}T00:00:00Z")
        span = parse_span(value) if found is None and value.isascii() else None
        if span is not None:
            found = self.now - span
        if found is None or found < 0:
            raise _bad_param(
                name, "use a time (2026-11-15T00:00:00Z), a day (2026-11-15) or a duration (12h)"
            )
        return found

    def owner(self, name: str = "owner") -> str:
        value = self.text(name)
        if value and not is_owner_glob(value):
            raise _bad_param(name, "use an owner such as org:ai:mm, or a pattern such as org:ai:*")
        if value and self.sight is not None and not self.sight.owner(value):
            raise _hidden(self.caller, value)
        return value

    def payer(self) -> str:
        """Return the parameter `payer`: an envelope (`namespace/budget/envelope`), an owner, or a
        pattern of owners. Raise `BadQuestion` if the caller may not see that envelope or owner."""
        value = self.text("payer")
        if "/" not in value:
            return self.owner("payer")
        envelope = self.world.envelopes.get(value)
        owner = "" if envelope is None else envelope.owner
        if self.sight is not None and not self.sight.of(owner, value.partition("/")[0]):
            raise _hidden(self.caller, value)
        return value

    def namespace(self) -> str:
        """Return the parameter `namespace` for an answer about the whole fleet. Raise `BadQuestion`
        if tenants are hidden and the caller may not name this one."""
        value = self.text("namespace")
        if value and self.sight is not None and not self.sight.namespace(value):
            raise _hidden(self.caller, value)
        return value

    def own_namespace(self) -> str:
        """Return the parameter `namespace` for an answer that only covers namespaces that the
        caller may see. Raise `BadQuestion` for any other namespace."""
        value = self.text("namespace")
        if value and not self.caller.sees(value):
            raise _hidden(self.caller, value)
        return value


AtRest = Callable[[Millis], Awaitable[World | None]]
Asking = Callable[["Questions", _Asked], Answer]
Judge = Callable[[Wire], list[tuple[str, str]]]  # (path, why) of each problem


class Questions:
    """Answers queries from the committed World. A query during a commit waits for that commit."""

    def __init__(
        self,
        at_rest: AtRest,
        clock: Clock,
        *,
        archive: ArchivedLeases | None = None,
        judge: Judge = lambda _: [],
        hide_tenants: bool = False,
        pseudonym_key: bytes | None = None,
    ) -> None:
        """`at_rest` returns the World once everything in it is committed. `judge` returns why a
        manifest would be rejected at submission. Without `pseudonym_key`, hidden tenants get new
        pseudonyms with each start."""
        self._at_rest = at_rest
        self._clock = clock
        self._archive = archive
        self._judge = judge
        self._hides = hide_tenants
        self._key = pseudonym_key or secrets.token_bytes(32)
        self._courses = SpendingCache()

    async def ask(
        self, caller: Caller, question: str, params: Mapping[str, str], body: Wire | None
    ) -> Wire:
        """Return the answer as JSON values, with `question` and `now` added; raise
        `BadQuestion`."""
        answered = await self.answer(caller, question, params, body)
        return {"question": question, "now": instant(answered.now), **wire(answered.found)}

    async def answer(
        self, caller: Caller, question: str, params: Mapping[str, str], body: Wire | None = None
    ) -> Answered:
        """Return the answer as a record of the type that `ANSWERS` names for the question; raise
        `BadQuestion`."""
        known = _QUESTIONS.get(question)
        if known is None:
            names = ", ".join(sorted(_QUESTIONS))
            raise BadQuestion(
                404, "NotFound", f"there is no question {question!r}; use one of {names}"
            )
        allowed = PARAMETERS[question]
        for name in params:
            if name not in allowed:
                legal = ", ".join(allowed) or "none"
                raise _bad_param(name, f"{question} takes {legal}")
        if body is not None and question not in WITH_BODY:
            raise BadQuestion(400, "BadRequest", f"{question} takes no manifest; use GET")
        try:
            world = await self._at_rest(PATIENCE)
        except NotCommitted:
            said = "the last decisions are not in the ledger yet; try again in a moment"
            raise BadQuestion(503, "ServiceUnavailable", said) from None
        if world is None:
            raise BadQuestion(
                503,
                "ServiceUnavailable",
                "the controller is reading the ledger; try again in a moment",
            )
        now = max(self._clock.now(), world.head.instant)
        sight = VisibleNames(world, caller) if self._hides and not caller.is_trusted else None
        if sight is not None and question in _NAME_ALL:
            said = f"{question} name every team, and query.hideTenants is on; explain shows what "
            raise BadQuestion(403, "Forbidden", f"{said}became of your own runs")
        asked = _Asked(caller, params, body, world=world, now=now, sight=sight)
        try:
            found = known(self, asked)
        except BadArchive as bad:
            raise BadQuestion(500, "InternalError", f"the archive: {bad}") from None
        if sight is not None:
            found = msgspec.convert(Mask(world, sight, self._key).over(wire(found)), type(found))
        assert isinstance(found, ANSWERS[question]), f"{question} is answered by another record"
        return Answered(now, found)

    def _archived(self, since: Instant | None, until: Instant | None) -> Iterable[Lease]:
        return () if self._archive is None else self._archive.leases(since=since, until=until)

    def _archived_resolutions(self) -> Iterable[Resolution]:
        archive: object = self._archive
        if isinstance(archive, ArchivedResolutions):
            return map(resolution_from_wire, archive.resolutions())
        return ()

    def _subject(self, asked: _Asked) -> Subject:
        namespace, name = asked.text("namespace"), asked.text("run")
        if not namespace or not name:
            missing = "namespace" if not namespace else "run"
            raise _bad_param(missing, "name the run with the parameters namespace and run")
        if not asked.caller.sees(namespace):
            raise _hidden(asked.caller, namespace, name)
        found = find(asked.world, f"{namespace}/{name}", self._archived)
        if found is None:
            raise BadQuestion(404, "NotFound", f"runs.{GROUP} {name!r} not found in {namespace!r}")
        return found

    def _manifest(self, asked: _Asked) -> Run:
        """Return the Run in the request's body, after the checks that a submission makes."""
        body = dict(asked.body or {})
        metadata = body.get("metadata")
        namespace = asked.text("namespace")
        if isinstance(metadata, dict) and namespace and not metadata.get("namespace"):
            body["metadata"] = {**metadata, "namespace": namespace}
        problems = check_manifest(body)
        if not problems and body["kind"] != "Run":
            problems = [Problem(path="kind", value=str(body["kind"]), remedy="use Run")]
        causes = [(each.path, f"{each.value}: {each.remedy}") for each in problems]
        if not problems:
            run = run_from_wire(body)
            if not asked.caller.sees(run.namespace):
                raise _hidden(asked.caller, run.namespace, run.name)
            causes = self._judge(body)
        if causes:
            raise BadQuestion(422, "Invalid", "the manifest is not valid", causes)
        return run

    # One method per question.

    def runs(self, asked: _Asked) -> Answer:
        rows = run_list(
            asked.world,
            asked.now,
            sees=asked.caller.sees,
            namespace=asked.own_namespace(),
            owner=asked.owner(),
            name=asked.text("run"),
            phases=asked.phases(),
        )
        limit = asked.limit()
        return RunsAnswer(total=len(rows), items=rows if limit is None else rows[:limit])

    def plan(self, asked: _Asked) -> Answer:
        if asked.body is None:
            return plan_of(asked.world, self._subject(asked), asked.now)
        run, notes = as_submitted(asked.world, self._manifest(asked), asked.now)
        if not asked.caller.may(OwnerVerb.SPEND, run.spec.owner):
            notes.append(
                f"{asked.caller.user} may not spend for {run.spec.owner}: "
                "submitting it would be refused"
            )
        return replace(plan(asked.world, run, asked.now), notes=notes)

    def cover(self, asked: _Asked) -> Answer:
        if asked.body is not None:
            run, _ = as_submitted(asked.world, self._manifest(asked), asked.now)
            return afresh(asked.world, run, asked.now)
        subject = self._subject(asked)
        if subject.run is None:
            raise BadQuestion(
                404, "NotFound", f"{subject.key} was deleted; who-pays still shows who paid for it"
            )
        return recorded(asked.world, subject.run) or afresh(asked.world, subject.run, asked.now)

    def explain(self, asked: _Asked) -> Answer:
        return explain(
            asked.world, self._subject(asked), asked.now, archived=self._archived_resolutions
        )

    def who_pays(self, asked: _Asked) -> Answer:
        return who_pays(asked.world, self._subject(asked), asked.now)

    def sponsors(self, asked: _Asked) -> Answer:
        return sponsors(asked.world, self._subject(asked), asked.now)

    def pods(self, asked: _Asked) -> Answer:
        return pods(asked.world, self._subject(asked))

    def budgets(self, asked: _Asked) -> Answer:
        form = asked.choice("form", FORMS)
        owner, namespace = asked.owner(), asked.namespace()
        return budgets(asked.world, asked.now, form=form, owner=owner, namespace=namespace)

    def burn(self, asked: _Asked) -> Answer:
        owner, namespace = asked.owner(), asked.namespace()
        return self._courses.of(asked.world, asked.now, owner=owner, namespace=namespace)

    def leases(self, asked: _Asked) -> Answer:
        subject = self._subject(asked) if asked.text("run") else None
        wanted = Filter(
            namespace="" if subject is not None else asked.namespace(),
            node=asked.text("node"),
            owner=asked.owner(),
            payer=asked.payer(),
            since=asked.instant("since"),
            at=asked.instant("at"),
            closed=asked.flag("closed"),
            limit=asked.limit(),
        )
        return lease_list(asked.world, asked.now, wanted, subject=subject, archived=self._archived)

    def drain(self, asked: _Asked) -> Answer:
        node = asked.text("node")
        if node not in asked.world.fleet.nodes:
            raise BadQuestion(404, "NotFound", f"nodes {node!r} not found")
        return drain(asked.world, node, asked.instant("since"))

    def reservations(self, asked: _Asked) -> Answer:
        return reservations(
            asked.world,
            asked.now,
            sees=asked.caller.sees,
            namespace=asked.own_namespace(),
            past=asked.flag("past"),
        )

    def report(self, asked: _Asked) -> Answer:
        start, end = asked.instant("from"), asked.instant("to")
        period = Period(start=start or 0, end=asked.now if end is None else end)
        if period.end < period.start:
            raise _bad_param("to", "use a time after `from`")
        by, zone = asked.choice("by", GROUPINGS), asked.text("tz")
        try:
            bucket = buckets(by if by in SPANS else SPANS[0], zone)
        except NoSuchZone:
            raise _bad_param("tz", "use a zone such as Europe/Berlin, or UTC") from None
        return gpu_hours(
            asked.world,
            asked.now,
            period,
            by=by,
            bucket=bucket,
            owner=asked.owner(),
            namespace=asked.namespace(),
            archived=self._archived,
        )

    def widths(self, asked: _Asked) -> Answer:
        return widths(self._subject(asked), asked.now)

    def fleet(self, asked: _Asked) -> Answer:
        archive: object = self._archive
        begins = archive.leases_from() if isinstance(archive, ArchivedSince) else 0
        return fleet(
            asked.world,
            at=asked.instant("at"),
            archived=self._archived,
            archived_from=begins,
        )

    def attention(self, asked: _Asked) -> Answer:
        return attention(asked.world, sees=asked.caller.sees)

    def resolutions(self, asked: _Asked) -> Answer:
        name, archived = asked.text("resolution"), self._archived_resolutions
        if not name:
            return resolutions(asked.world, limit=asked.limit(), archived=archived)
        found = resolution(asked.world, name, archived=archived)
        if found is None:
            raise BadQuestion(404, "NotFound", f"resolutions {name!r} not found")
        return found

    def audit(self, asked: _Asked) -> Answer:
        return audited(asked.world, asked.now)

    def ledger_head(self, asked: _Asked) -> Answer:
        return ledger_head(asked.world)


_QUESTIONS: dict[str, Asking] = {
    "runs": Questions.runs,
    "plan": Questions.plan,
    "cover": Questions.cover,
    "explain": Questions.explain,
    "who-pays": Questions.who_pays,
    "sponsors": Questions.sponsors,
    "pods": Questions.pods,
    "budgets": Questions.budgets,
    "burn": Questions.burn,
    "leases": Questions.leases,
    "drain": Questions.drain,
    "reservations": Questions.reservations,
    "report": Questions.report,
    "widths": Questions.widths,
    "fleet": Questions.fleet,
    "attention": Questions.attention,
    "resolutions": Questions.resolutions,
    "audit": Questions.audit,
    "ledger-head": Questions.ledger_head,
}
QUESTIONS = tuple(sorted(_QUESTIONS))
_NAME_ALL = frozenset({"resolutions"})  # pointless without other tenants' names


def _bad_param(name: str, remedy: str) -> BadQuestion:
    return BadQuestion(400, "BadRequest", f"parameter {name}: {remedy}", [(name, remedy)])


def _hidden(caller: Caller, place: str, name: str = "") -> BadQuestion:
    """Return the error for something that the caller may not see: Kubernetes' 403, which is the
    same whether or not the object exists."""
    what = f"runs.{GROUP} {name!r}" if name else "this"
    return BadQuestion(
        403, "Forbidden", f"{what} is forbidden: user {caller.user!r} may not see {place!r}"
    )
