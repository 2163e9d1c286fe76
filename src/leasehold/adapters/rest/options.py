"""Options of write requests: dry run, field manager, and how to delete.

Used by the write handlers. Every value is checked; unsupported values are refused.
"""

from dataclasses import dataclass

from leasehold.adapters.http.bodies import read_object
from leasehold.adapters.http.messages import Request, bad_request, wrong_option
from leasehold.adapters.http.refusal import RequestRefused
from leasehold.core.names import Wire
from leasehold.core.objects.wire import list_at, part, whole_at
from leasehold.core.units import SECOND

MANAGER_CHARS_MAX = 128
_POLICIES = ("Background", "Foreground", "Orphan")
_SECONDS_MAX = 10 * 365 * 24 * 3600


@dataclass(frozen=True, slots=True)
class DeleteOptions:
    """Options of a deletion. `grace_ms` None: the grace period that the object itself specifies.
    The propagation policy is not here: deleting an object never deletes others, so all policies are
    equal."""

    rehearse: bool
    grace_ms: int | None
    uid: str | None
    version: str | None


def is_rehearsal(request: Request) -> bool:
    asked = request.query.get("dryRun", "")
    if asked not in ("", "All"):
        raise _unknown_dry_run(request, asked)
    return asked == "All"


def field_manager(request: Request) -> str:
    """Return the writer's name for `managedFields`: the query parameter, or else the name of the
    client program."""
    asked = request.query.get("fieldManager", "")
    if len(asked) > MANAGER_CHARS_MAX or not asked.isprintable():
        reason = "FieldValueTooLong" if len(asked) > MANAGER_CHARS_MAX else "FieldValueInvalid"
        remedy = f"use at most {MANAGER_CHARS_MAX} printable characters"
        raise wrong_option(request, "fieldManager", reason, remedy)
    agent = request.header(b"user-agent").partition("/")[0][:MANAGER_CHARS_MAX]
    return asked or (agent if agent and agent.isprintable() else "unknown")


async def delete_options(request: Request) -> DeleteOptions:
    """Read the options of a deletion from the request's body and query."""
    body: Wire = {}
    if (
        request.headers.get(b"content-length", b"0") != b"0"
        or b"transfer-encoding" in request.headers
    ):
        body = await read_object(request)
        if body.get("kind", "DeleteOptions") != "DeleteOptions":
            raise bad_request("the body of a DELETE must be a DeleteOptions")
    rehearses = is_rehearsal(request)
    return options_of(body, request, rehearses=rehearses)


def options_of(body: Wire, request: Request, *, rehearses: bool) -> DeleteOptions:
    policy = body.get("propagationPolicy") or request.query.get("propagationPolicy") or "Background"
    if policy not in _POLICIES:
        remedy = f"use one of {', '.join(_POLICIES)}"
        raise wrong_option(request, "propagationPolicy", "FieldValueNotSupported", remedy)
    for each in list_at(body, "dryRun"):
        if each != "All":
            raise _unknown_dry_run(request, str(each))
        rehearses = True
    seconds = whole_at(body, "gracePeriodSeconds")
    if body.get("gracePeriodSeconds") is None:
        seconds = request.number("gracePeriodSeconds")
    elif seconds is None:
        raise _bad_grace()
    if seconds is not None and not 0 <= seconds <= _SECONDS_MAX:
        raise _bad_grace()
    wanted = part(body, "preconditions")
    uid, version = wanted.get("uid"), wanted.get("resourceVersion")
    if not isinstance(uid, str | None) or not isinstance(version, str | None):
        raise bad_request("preconditions.uid and preconditions.resourceVersion must be strings")
    grace = None if seconds is None else seconds * SECOND
    return DeleteOptions(rehearse=rehearses, grace_ms=grace, uid=uid, version=version)


def _unknown_dry_run(request: Request, asked: str) -> RequestRefused:
    remedy = f"{asked[:80]!r}: the only value is All"
    return wrong_option(request, "dryRun", "FieldValueNotSupported", remedy)


def _bad_grace() -> RequestRefused:
    return bad_request("gracePeriodSeconds must be a whole number of at least 0")
