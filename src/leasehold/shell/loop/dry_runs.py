"""Dry-runs a Run's pods before the Run is considered.

Used by the loop if the store supports dry runs, as an API server does. Without them, a Run whose
pods can never be created would get leases again and again. Resources that the server adds to a pod
(namespace limits, sidecars) count for its placement. A refusal may be temporary (a missing
ServiceAccount, a quota about to be raised), so the Run is tried again with growing pauses.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass

import msgspec
from msgspec.structs import replace

from leasehold.control.running.pods import trial_pod
from leasehold.core.facts import Gang, Run, Uid
from leasehold.core.names import Wire
from leasehold.core.objects.bounds import check_bounds, check_sizes
from leasehold.core.objects.problems import InvalidManifest, Problem
from leasehold.core.objects.quantity import CPU, MEMORY, asked, milli, units
from leasehold.core.objects.run import run_from_wire
from leasehold.core.objects.wire import part, text_at
from leasehold.core.units import MINUTE, SECOND, Instant, Millis
from leasehold.core.world.width import pod_size
from leasehold.core.world.world import World
from leasehold.ports.store import Forbidden, Invalid, StoreError
from leasehold.ports.trial import Trial, TriedPod
from leasehold.shell.loop.informer import News
from leasehold.shell.loop.quarantine import CONDITION
from leasehold.shell.loop.stored import Unreadable

Rehearse = Callable[[Sequence[Trial]], Awaitable[Sequence[TriedPod | StoreError]]]
Untried = Callable[[Run, str], None]
KNOWN_MAX = 100_000
AGAIN_FIRST: Millis = SECOND  # pause after the first refusal; doubles each time
AGAIN_MAX: Millis = 10 * MINUTE
AGAIN_AT_ONCE = 32  # maximum retries per turn
_CLAIM = b'"persistentVolumeClaim"'
_ASIDE = f'"{CONDITION}"'.encode()
_decode = msgspec.json.Decoder(dict[str, object]).decode
# Temporary or unsupported: not treated as refusals.
_FULL = "exceeded quota"
_UNTRIABLE = "dry run"


@dataclass(slots=True)
class _Refused:
    """A Run whose pods the server refused: the object as it was then, and when to try it again."""

    obj: Wire
    generation: int
    times: int
    due: Instant  # by the monotonic clock


class DryRuns:
    def __init__(self, rehearse: Rehearse | None, untried: Untried = lambda _, __: None) -> None:
        """`untried` is called with each run whose pods the server could not dry-run, and the
        reason."""
        self._rehearse = rehearse
        self._tell = untried
        self._tried: dict[Uid, int] = {}  # the generation that was tried
        self._refused: dict[Uid, _Refused] = {}
        # Of a pod as the server would create it: CPU, memory, and the nodes that reach its volumes.
        self._amounts: dict[Uid, tuple[int, int, frozenset[str] | None]] = {}

    def due(self, now: Instant) -> list[News]:
        """Return the refused Runs whose pause is over, in the form of events, so that they are
        tried again. `now` is monotonic."""
        again = [each for each in self._refused.values() if each.due <= now][:AGAIN_AT_ONCE]
        return [News(kind="Run", gone=False, obj=each.obj) for each in again]

    @property
    def next_try(self) -> Instant | None:
        """When the next refused Run is tried again, by the monotonic clock; None if there is
        none."""
        return min((each.due for each in self._refused.values()), default=None)

    async def refused(self, world: World, news: list[News], now: Instant) -> dict[Uid, Unreadable]:
        """Dry-run the pods of new or changed Runs in `news`, and return the Runs that were refused.
        Of several events about a Run only the last counts, because it may be the Run's deletion."""
        if self._rehearse is None:
            return {}
        last = {_uid(each.obj): each for each in news if each.kind == "Run"}
        runs = {uid: (run, each.obj) for uid, each in last.items()
                if (run := self._untried(world, each))}  # fmt: skip
        for uid in last.keys() - runs.keys():
            self._refused.pop(uid, None)
        found = {}
        for run, obj in list(runs.values()):
            whole: dict[object, object] = {"kind": "Run", "spec": part(obj, "spec")}
            over = [*check_bounds(whole), *check_sizes(whole)]
            if over and not _is_admitted(world, run):
                error = InvalidManifest(over)
                found[run.uid] = Unreadable(kind="Run", obj=obj, why=str(error), error=error)
                del runs[run.uid]
        if not runs:
            return found
        trials = [_trial(world, run) for run, _ in runs.values()]
        answers = await self._rehearse(trials)
        if len(self._tried) > KNOWN_MAX:
            self._tried.clear()
            self._amounts.clear()
        for (run, obj), answer in zip(runs.values(), answers, strict=True):
            if isinstance(answer, TriedPod):
                spec = part(answer.pod, "spec")
                cpu, memory = asked(spec, (CPU, milli), (MEMORY, units))
                self._amounts[run.uid] = (cpu, memory, answer.nodes)
            why = _refusal(answer)
            if why is None or _is_admitted(world, run):
                if isinstance(answer, StoreError) and _UNTRIABLE in _words(answer):
                    self._tell(run, _words(answer))
                self._tried[run.uid] = run.generation
                self._refused.pop(run.uid, None)
            else:
                self._refuse(run, obj, now)
                found[run.uid] = Unreadable(
                    kind="Run", obj=obj, why=str(why), error=why, is_tried_again=True
                )
        return found

    def _refuse(self, run: Run, obj: Wire, now: Instant) -> None:
        known = self._refused.pop(run.uid, None)
        is_same = known is not None and known.generation == run.generation
        times = known.times + 1 if known is not None and is_same else 0
        pause = min(AGAIN_FIRST << min(times, 20), AGAIN_MAX)
        self._refused[run.uid] = _Refused(obj, run.generation, times, now + pause)

    def amended(self, run: Run) -> Run:
        """Return the run with the CPU, memory and nodes of its pods as the server would create
        them."""
        known = self._amounts.get(run.uid)
        if known is None:
            return run
        cpu, memory, nodes = known
        was = run.spec.cpu_milli, run.spec.memory_bytes
        is_amended = run.spec.is_amended or was != (cpu, memory)
        spec = replace(
            run.spec, cpu_milli=cpu, memory_bytes=memory, is_amended=is_amended, nodes=nodes
        )
        return replace(run, spec=spec)

    def _untried(self, world: World, news: News) -> Run | None:
        if news.kind != "Run" or news.gone:
            return None
        try:
            run = run_from_wire(news.obj)
        except Exception:
            return None  # reported when it is folded
        # A started run is tried only for the location of its volumes, because it may be placed
        # again; a refusal of its template is then ignored.
        is_settled = _is_admitted(world, run) and _CLAIM not in run.spec.template
        is_over = run.deleting or run.spec.stop
        is_known = self._tried.get(run.uid) == run.generation
        return None if is_settled or is_over or is_known else run


def _is_admitted(world: World, run: Run) -> bool:
    book = world.books.get(run.uid)
    return book is not None and book.attempt > 0


def untold(listed: Mapping[str, list[bytes]]) -> list[Wire]:
    """Return the listed Runs that must be dry-run after a recovery: those that have no status yet,
    are quarantined, or have volumes."""
    bodies = listed.get("Run", [])
    return [
        _decode(body)
        for body in bodies
        if b'"phase"' not in body or _ASIDE in body or _CLAIM in body
    ]


def _trial(world: World, run: Run) -> Trial:
    """Return a dry run for the pods of the smallest start that the run allows: one group if groups
    start separately, or the minimum width of an elastic run."""
    spec = run.spec
    gpus = spec.group_gpus if spec.gang is Gang.GROUP else spec.total_gpus
    if spec.malleable is not None:
        gpus = min(gpus, spec.malleable.min_gpus)
    size = spec.gpus_per_pod or pod_size(world, run)
    resource = world.policy.gpu_resource
    pod = trial_pod(run, resource)
    return Trial(pod=pod, count=-(-gpus // max(1, size)), gpus=gpus, gpu_resource=resource)


def _uid(obj: Wire) -> Uid:
    return text_at(part(obj, "metadata"), "uid")


def _words(answer: StoreError) -> str:
    return " ".join([str(answer), *getattr(answer, "__notes__", [])])


def _refusal(answer: TriedPod | StoreError) -> InvalidManifest | None:
    if not isinstance(answer, Invalid | Forbidden):
        return None
    if any(each in _words(answer) for each in (_FULL, _UNTRIABLE)):
        return None
    if isinstance(answer, Invalid):
        return InvalidManifest([
            Problem(path=f"spec.template.{path}" if path else "spec.template", value="refused",
                    remedy=why)
            for path, why in answer.problems
        ])  # fmt: skip
    words = " ".join(getattr(answer, "__notes__", [])) or "the API server does not allow its pods"
    return InvalidManifest([Problem(path="spec.template", value="refused", remedy=words)])
