"""Shrinks a story that differs: fewer steps, runs, budgets, nodes and fields, lower numbers.

The search is greedy: every reduction that keeps a difference of the same kind is kept, until none
is left.
"""

from collections.abc import Callable, Iterator
from copy import deepcopy
from typing import Any

from tests.model.compare import Difference, compare
from tests.model.product import Invalid
from tests.model.stories import text_of
from tests.model.story import NotCovered, short, span

Document = dict[str, Any]
Differs = Callable[[Document], bool]

SPANS = ("at", "lasts", "stops", "maxDuration", "checkpoint", "gracePeriod")
KEPT = (
    "owner", "gpuType", "totalGPUs", "gpusPerPod", "name", "flavor", "is", "does", "at",
)  # fmt: skip
ROUND = ("10m", "20m", "30m", "1h", "2h")


def kind_of(difference: Difference) -> str:
    return "end" if difference.what.startswith("how runs") else "way"


def smallest(document: Document, *, with_plans: bool = False) -> Document:
    """Return the smallest story found with the same kind of difference. The file must differ."""
    wanted: list[str] = []

    def differs(candidate: Document) -> bool:
        try:
            found = compare(text_of(candidate), with_plans=with_plans)
        except (Invalid, NotCovered, AssertionError, KeyError, StopIteration):
            return False
        return found is not None and (not wanted or kind_of(found) in wanted)

    found = compare(text_of(document), with_plans=with_plans)
    assert found is not None, "there is no difference to begin with"
    wanted.append(kind_of(found))
    document = _cut_short(document, found, differs)
    while True:
        smaller = _once(document, differs)
        if smaller is None:
            return document
        document = smaller


def _cut_short(document: Document, found: Difference, differs: Differs) -> Document:
    """Cut off the story after the difference."""
    new = deepcopy(document)
    new["steps"] = [step for step in new["steps"] if span(step["at"]) <= found.at]
    new["steps"].append({"at": short(found.at), "expect": [{"ledger": "ok"}]})
    return new if differs(new) else document


def _once(document: Document, differs: Differs) -> Document | None:
    """Try all reductions once; return None if none of them helped."""
    helped = False
    for reductions in (_runs, _steps, _budgets, _rows, _fields, _numbers, _config):
        again = True
        while again:
            again = False
            for candidate in reductions(document):
                if differs(candidate):
                    document, again, helped = candidate, True, True
                    break
    return document if helped else None


def _steps(document: Document) -> Iterator[Document]:
    for index in reversed(range(len(document["steps"]))):
        new = deepcopy(document)
        del new["steps"][index]
        yield new


def _runs(document: Document) -> Iterator[Document]:
    """Yield stories without some runs and the steps that name them: many at once, then single
    ones."""
    keys = [key for step in document["steps"] for key in step.get("submit", {})]
    size = len(keys) // 2
    while size:
        for first in range(0, len(keys), size):
            new = deepcopy(document)
            for key in keys[first : first + size]:
                for step in new["steps"]:
                    step.get("submit", {}).pop(key, None)
                new["steps"] = [step for step in new["steps"] if not _is_about(step, key)]
            yield new
        size //= 2


def _is_about(step: Document, key: str) -> bool:
    if step.get("submit") == {} or step.get("cancel") == key:
        return True
    return any(
        isinstance(step.get(name), dict) and step[name].get("run") == key
        for name in ("edit", "pod", "delete")
    )


def _budgets(document: Document) -> Iterator[Document]:
    for key, spec in document["budgets"].items():
        new = deepcopy(document)
        del new["budgets"][key]
        yield new
        for index in range(len(spec["envelopes"])):
            if len(spec["envelopes"]) > 1:
                new = deepcopy(document)
                del new["budgets"][key]["envelopes"][index]
                yield new


def _rows(document: Document) -> Iterator[Document]:
    for index, row in enumerate(document["fleet"]):
        new = deepcopy(document)
        del new["fleet"][index]
        yield new
        if row["nodes"] > 1:
            new = deepcopy(document)
            new["fleet"][index]["nodes"] -= 1
            yield new


def _config(document: Document) -> Iterator[Document]:
    if document.get("config"):
        new = deepcopy(document)
        del new["config"]
        yield new


def _paths(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the path of every value in the specs of runs and budgets, and in works and edits."""
    if isinstance(value, dict):
        for key, each in value.items():
            yield (*path, key)
            yield from _paths(each, (*path, key))
    elif isinstance(value, list):
        for index, each in enumerate(value):
            yield from _paths(each, (*path, index))


def _at(value: Any, path: tuple[Any, ...]) -> Any:
    for key in path:
        value = value[key]
    return value


def _fields(document: Document) -> Iterator[Document]:
    for path in list(_paths(document)):
        if path[0] not in ("budgets", "steps") or len(path) < 4:
            continue
        if path[-1] in KEPT:
            continue
        new = deepcopy(document)
        parent = _at(new, path[:-1])
        if isinstance(parent, dict):
            del parent[path[-1]]
            yield new


def _numbers(document: Document) -> Iterator[Document]:
    """Yield stories with a number halved or lower by one, or with a rounder time."""
    for path in list(_paths(document)):
        value = _at(document, path)
        name = path[-1]
        smaller: list[Any] = []
        if isinstance(value, int) and not isinstance(value, bool) and value > 1:
            smaller = [value // 2, value - 1] if value > 2 else [value // 2]
        elif name in SPANS and isinstance(value, str):
            smaller = [each for each in ROUND if span(each) < span(value)][:2]
            if span(value) > 60_000 and span(value) % 60_000:
                smaller.append(short(span(value) // 60_000 * 60_000))
        for each in smaller:
            new = deepcopy(document)
            _at(new, path[:-1])[name] = each
            if name != "at" or _is_in_order(new):
                yield new


def _is_in_order(document: Document) -> bool:
    times = [span(step["at"]) for step in document["steps"]]
    return times == sorted(times)
