"""What every store provides for the tenure that is kept in it (`ports.tenure`)."""

import pytest
from tests.conformance.harness import MemoryHarness
from tests.conformance.offices import KEY, MARGINS, Contender, wait_out

from leasehold.core.objects.tenure import EPOCH, KIND, NAMESPACE, tenure_name
from leasehold.core.objects.wire import part, text_at
from leasehold.ports.store import Store
from leasehold.ports.tenure import Expired, HeldByOther, NotHolder, Tenure


@pytest.fixture
def store(harness: MemoryHarness) -> Store:
    return harness.store()


@pytest.fixture
def a(harness: MemoryHarness, store: Store) -> Contender:
    return Contender(harness, store, "a", start=5_000_000)


@pytest.fixture
def b(harness: MemoryHarness, store: Store) -> Contender:
    return Contender(harness, store, "b")


def test_first_contender_gets_tenure_and_the_second_does_not(a: Contender, b: Contender) -> None:
    tenure = a.must_acquire()
    assert tenure.epoch == 1
    assert b.acquire() == HeldByOther(holder="a_1", epoch=1, wait=MARGINS.take + 1)
    assert a.is_valid(tenure)


def test_acquiring_held_tenure_again_returns_the_same_tenure(a: Contender) -> None:
    tenure = a.must_acquire()
    assert a.acquire() == tenure


def test_tenure_is_valid_for_hold_and_not_a_millisecond_longer(a: Contender) -> None:
    tenure = a.must_acquire()
    a.clock.move(MARGINS.hold - 1)
    assert a.is_valid(tenure)
    a.clock.move(1)
    assert not a.is_valid(tenure)


def test_tenure_is_taken_over_when_its_record_is_unchanged_for_the_take_time(
    a: Contender, b: Contender
) -> None:
    a.must_acquire()
    b.acquire()
    b.clock.move(MARGINS.take)
    assert isinstance(b.acquire(), HeldByOther)
    b.clock.move(1)
    assert b.must_acquire().epoch == 2


def test_contender_waits_from_when_it_first_saw_the_record(a: Contender, b: Contender) -> None:
    a.must_acquire()
    b.clock.move(100 * MARGINS.take)
    assert isinstance(b.acquire(), HeldByOther)


def test_renewal_makes_contenders_wait_again(a: Contender, b: Contender) -> None:
    tenure = a.must_acquire()
    b.acquire()
    b.clock.move(MARGINS.take)
    a.clock.move(MARGINS.renew)
    assert isinstance(a.renew(tenure), Tenure)
    b.clock.move(MARGINS.take)
    assert isinstance(b.acquire(), HeldByOther)


def test_renewal_lasts_from_when_it_was_sent_and_keeps_the_epoch(a: Contender) -> None:
    tenure = a.must_acquire()
    a.clock.move(MARGINS.renew)
    renewed = a.renew(tenure)
    assert isinstance(renewed, Tenure)
    assert (renewed.epoch, renewed.since - tenure.since) == (tenure.epoch, MARGINS.renew)
    a.clock.move(MARGINS.hold - 1)
    assert a.is_valid(renewed)
    assert a.is_valid(tenure)


def test_expired_tenure_cannot_be_renewed_even_if_still_free(a: Contender) -> None:
    tenure = a.must_acquire()
    a.clock.move(MARGINS.hold + 7)
    before = a.inspect()
    assert a.renew(tenure) == Expired(late_by=7)
    assert a.inspect() == before, "a write would make contenders wait again"
    again = a.must_acquire()
    assert again.epoch == 2
    assert not a.is_valid(tenure)


def test_deposed_holder_cannot_renew(a: Contender, b: Contender) -> None:
    """Its clock may have stood still, so that it still considers its tenure valid."""
    tenure = a.must_acquire()
    b.acquire()
    wait_out(b)
    b.must_acquire()
    assert a.renew(tenure) == NotHolder(holder="b_1", epoch=2)
    assert not a.is_valid(tenure)


def test_other_process_can_neither_renew_nor_release(a: Contender, b: Contender) -> None:
    tenure = a.must_acquire()
    assert isinstance(b.renew(tenure), NotHolder)
    stolen = Tenure(
        key=KEY, holder=b.holder, epoch=tenure.epoch, version=tenure.version, since=tenure.since
    )
    assert b.release(stolen) == NotHolder(holder="a_1", epoch=1)
    assert a.is_valid(tenure)
    assert isinstance(a.renew(tenure), Tenure)


def test_released_tenure_can_be_acquired_at_once(a: Contender, b: Contender) -> None:
    tenure = a.must_acquire()
    b.acquire()
    assert a.release(tenure) is None
    assert not a.is_valid(tenure)
    assert b.must_acquire().epoch == 2


def test_second_release_is_answered_with_not_holder(a: Contender) -> None:
    tenure = a.must_acquire()
    a.release(tenure)
    assert a.release(tenure) == NotHolder(holder="", epoch=1)
    assert isinstance(a.renew(tenure), NotHolder)


def test_second_release_does_not_free_the_next_holders_tenure(a: Contender, b: Contender) -> None:
    tenure = a.must_acquire()
    a.release(tenure)
    theirs = b.must_acquire()
    assert a.release(tenure) == NotHolder(holder="b_1", epoch=2)
    assert b.is_valid(theirs)
    assert isinstance(b.renew(theirs), Tenure)


def test_restarted_process_is_not_the_same_holder(
    harness: MemoryHarness, store: Store, a: Contender
) -> None:
    a.must_acquire()
    again = Contender(harness, store, "a", nonce="2")
    assert isinstance(again.acquire(), HeldByOther)
    wait_out(again)
    assert again.must_acquire().epoch == 2


def test_epochs_rise_over_release_expiry_restart_and_restore(
    harness: MemoryHarness, store: Store, a: Contender, b: Contender
) -> None:
    seen = [a.must_acquire()]
    a.release(seen[-1])
    seen.append(b.must_acquire())
    a.acquire()
    wait_out(a, b)
    seen.append(a.must_acquire())
    restarted = Contender(harness, store, "a", nonce="2")
    restarted.acquire()
    wait_out(a, b, restarted)
    seen.append(restarted.must_acquire(above=0))
    restarted.release(seen[-1])
    seen.append(b.must_acquire(above=1_700_000_000_000_000))  # a generation, from a backup
    b.release(seen[-1])
    seen.append(a.must_acquire(above=0))
    epochs = [each.epoch for each in seen]
    assert epochs == sorted(set(epochs))
    assert epochs[-2:] == [1_700_000_000_000_001, 1_700_000_000_000_002]


def test_tenure_record_is_a_readable_kubernetes_lease(
    harness: MemoryHarness, store: Store, a: Contender
) -> None:
    tenure = a.must_acquire()
    a.clock.move(1234)
    a.renew(tenure)
    stored = harness.run(store.get(KIND, NAMESPACE, tenure_name(KEY)))
    assert stored["apiVersion"] == "coordination.k8s.io/v1"
    assert stored["spec"] == {
        "holderIdentity": "a_1",
        "leaseDurationSeconds": 15,
        "acquireTime": "2025-11-15T01:23:30.000000Z",
        "renewTime": "2025-11-15T01:23:31.234000Z",
        "leaseTransitions": 0,
    }
    inspected = harness.run(a.tenures.inspect(KEY))
    assert inspected is not None
    assert (inspected.holder, inspected.epoch) == ("a_1", 1)
    assert harness.run(a.tenures.inspect("other")) is None


def test_wall_clocks_do_not_affect_tenure(a: Contender, b: Contender) -> None:
    tenure = a.must_acquire()
    b.clock.wall += 1_000_000_000
    assert isinstance(b.acquire(), HeldByOther)
    a.clock.wall -= 1_000_000_000
    assert a.is_valid(tenure)
    assert isinstance(a.renew(tenure), Tenure)


def test_annotating_the_record_neither_renews_nor_ends_tenure(
    harness: MemoryHarness, store: Store, a: Contender, b: Contender
) -> None:
    """An annotation is a new version but no renewal: it stops neither holder nor contender."""
    tenure = a.must_acquire()
    b.acquire()
    wait_out(b, ms=MARGINS.take)

    async def annotate(note: str) -> None:
        obj = await store.get(KIND, NAMESPACE, tenure_name(KEY))
        part(part(obj, "metadata"), "annotations")["note"] = note
        await store.update(obj)

    harness.run(annotate("hello"))
    assert isinstance(a.renew(tenure), Tenure)
    harness.run(annotate("again"))
    b.acquire()
    wait_out(b, ms=MARGINS.take)
    harness.run(annotate("hello"))
    b.clock.move(1)
    assert b.must_acquire().epoch == 2
    stored = harness.run(store.get(KIND, NAMESPACE, tenure_name(KEY)))
    annotations = part(part(stored, "metadata"), "annotations")
    assert text_at(annotations, "note") == "hello"
    assert text_at(annotations, EPOCH) == "2"


def test_tenure_of_a_deleted_record_is_not_free_at_once(
    harness: MemoryHarness, store: Store, a: Contender, b: Contender
) -> None:
    """The holder cannot know yet. (Without a ledger there never was a holder.)"""
    a.must_acquire()
    harness.run(store.delete(KIND, NAMESPACE, tenure_name(KEY), uid=None))
    assert b.acquire(above=1) == HeldByOther(holder="", epoch=0, wait=MARGINS.take + 1)
    wait_out(b)
    assert b.must_acquire(above=1).epoch == 2


def test_holder_of_a_deleted_record_loses_tenure_when_it_renews(
    harness: MemoryHarness, store: Store, a: Contender
) -> None:
    tenure = a.must_acquire()
    harness.run(store.delete(KIND, NAMESPACE, tenure_name(KEY), uid=None))
    assert a.renew(tenure) == NotHolder(holder="", epoch=0)
    assert not a.is_valid(tenure)
