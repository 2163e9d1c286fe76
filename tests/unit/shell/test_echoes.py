"""The controller's own writes are no news to it; changes that follow at once get one status."""

import msgspec
from tests.unit.shell.plant import START, Plant

from leasehold.adapters.memory.store import MemoryStore
from leasehold.core.names import Wire
from leasehold.core.objects.wire import list_at, part, text_at
from leasehold.core.units import MINUTE
from leasehold.shell.loop.informer import Informer, News
from leasehold.sim.kernel import Kernel
from leasehold.sim.scenario.ledger import at_once

POD: Wire = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "p", "namespace": "t"},
    "spec": {"containers": [{"name": "main"}]},
}


def statuses_of_runs(plant: Plant) -> list[Wire]:
    """Return a list that collects the statuses of Runs as they are written."""
    patch, found = plant.doomed.patch_status, []

    async def noted(
        kind: str, namespace: str, name: str, status: Wire, *, version: int | None
    ) -> Wire:
        if kind == "Run":
            found.append(status)
        return await patch(kind, namespace, name, status, version=version)

    plant.doomed.patch_status = noted  # type: ignore[method-assign]
    return found


def test_run_that_starts_and_is_bound_at_once_gets_one_status() -> None:
    plant = Plant()
    written = statuses_of_runs(plant)
    plant.submit("a/one")
    plant.wait(MINUTE)
    assert [text_at(status, "phase") for status in written] == ["Running"]


def test_run_whose_pods_are_not_bound_gets_a_status_meanwhile() -> None:
    plant = Plant()
    plant.fleet._see = lambda wire: None  # type: ignore[method-assign]  # noqa: ARG005
    written = statuses_of_runs(plant)
    plant.submit("a/one")
    plant.kernel.settle()
    [status] = written
    conditions = [each for each in list_at(status, "conditions") if isinstance(each, dict)]
    told = {text_at(each, "type"): text_at(each, "status") for each in conditions}
    assert (told["Admitted"], told["Bound"]) == ("True", "False")


def an_informer() -> tuple[Kernel, MemoryStore, Informer, list[News]]:
    kernel, inbox = Kernel(START), list[News]()
    process = kernel.process("controller")
    store = MemoryStore(process.tasks, process.clock, None)
    informer = Informer(
        "Pod", store=store, clock=process.clock, inbox=inbox, wake=process.tasks.signal()
    )
    process.tasks.spawn("informer", informer.run(0, []))
    kernel.settle()
    return kernel, store, informer, inbox


def test_event_of_an_expected_object_is_ignored_but_its_later_change_is_not() -> None:
    kernel, store, informer, inbox = an_informer()
    informer.expect(at_once(store.create(POD)))
    kernel.settle()
    assert inbox == []
    at_once(store.patch_status("Pod", "t", "p", {"phase": "Running"}, version=None))
    kernel.settle()
    assert [text_at(part(news.obj, "status"), "phase") for news in inbox] == ["Running"]


def test_list_older_than_a_pod_does_not_report_the_pod_as_deleted() -> None:
    """The watch broke; the list was read, a pod was made, and then the list arrived.

    Once, the pod counted as deleted by another client, and its run ended.
    """
    kernel, store, informer, inbox = an_informer()
    before = at_once(store.list("Pod"))
    informer.expect(made := at_once(store.create(POD)))
    informer._compare(before)
    kernel.settle()
    assert inbox == []
    at_once(store.delete("Pod", "t", "p", uid=text_at(part(made, "metadata"), "uid"), grace_ms=0))
    informer._compare(at_once(store.list("Pod")))
    assert [news.gone for news in inbox] == [True]


def test_own_pod_missing_from_a_newer_list_is_reported_as_deleted() -> None:
    kernel, store, informer, inbox = an_informer()
    made = at_once(store.create(POD))
    at_once(store.delete("Pod", "t", "p", uid=text_at(part(made, "metadata"), "uid"), grace_ms=0))
    informer.expect(made)
    informer._compare(at_once(store.list("Pod")))
    assert [news.gone for news in inbox] == [True]
    assert kernel.now == START


def test_cancellation_in_the_answer_to_an_unchanged_status_is_noticed() -> None:
    """A starting controller writes every status again, most of them unchanged.

    The answer is the stored object, with any change that a user has just made.
    """
    plant = Plant(nodes=1)
    plant.submit("a/one", lasts=30 * MINUTE)
    plant.submit("b/two", lasts=30 * MINUTE)
    plant.wait(5 * MINUTE)
    patch, cancelled = plant.doomed.patch_status, []

    async def patched(
        kind: str, namespace: str, name: str, status: Wire, *, version: int | None
    ) -> Wire:
        run = await plant.store.get("Run", "b", "two")
        if (kind, name) == ("Run", "two") and not cancelled:
            same = msgspec.json.decode(msgspec.json.encode(status))
            assert without_times(run["status"]) == same, "it is to change nothing"
            cancelled.append(await plant.store.update({**run, "spec": stopped(run)}))
        return await patch(kind, namespace, name, status, version=version)

    plant.doomed.patch_status = patched  # type: ignore[method-assign]
    plant.control.crash()
    plant.wait(MINUTE)
    assert len(cancelled) == 1
    assert plant.view("b/two").because == "Canceled"


def without_times(status: object) -> Wire:
    """Return the status without transition times, which only the store sets."""
    assert isinstance(status, dict)
    conditions = [
        {key: value for key, value in each.items() if key != "lastTransitionTime"}
        for each in status["conditions"]
    ]
    return {**status, "conditions": conditions}


def stopped(run: Wire) -> Wire:
    return {**part(run, "spec"), "stop": True}


def test_unexpected_creations_and_deletions_are_noticed() -> None:
    kernel, store, informer, inbox = an_informer()
    made = at_once(store.create(POD))
    kernel.settle()
    assert len(inbox) == 1
    informer.expect(made)  # too late: its event has already arrived
    at_once(store.delete("Pod", "t", "p", uid=None))
    kernel.settle()
    assert [news.gone for news in inbox] == [False, True]


def test_expected_pod_deleted_during_a_watch_break_is_reported() -> None:
    _, store, informer, inbox = an_informer()
    informer.expect(at_once(store.create(POD)))
    at_once(store.delete("Pod", "t", "p", uid=None))
    # As after a watch that broke before either event was sent.
    informer._compare(at_once(store.list("Pod")))
    assert [(news.gone, text_at(part(news.obj, "metadata"), "name")) for news in inbox] == [
        (True, "p")
    ]
