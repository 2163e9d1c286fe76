"""A channel that does not answer costs a bounded queue, and delays no other channel."""

import asyncio
import threading

import pytest

from leasehold.adapters.asyncio_runtime import AsyncioClock, AsyncioTasks
from leasehold.adapters.notify.channels import Message, NotDelivered, Webhook, signature
from leasehold.control.views.news import RunNews
from leasehold.shell.observe import notifications
from leasehold.shell.observe.notifications import QUEUE_MAX, Notifications


class Blocking:
    """A channel that blocks until `free` is set."""

    words = "deaf"

    def __init__(self) -> None:
        self.free = threading.Event()
        self.told: list[bytes] = []

    def tell(self, message: Message) -> None:
        self.free.wait(20)
        self.told.append(message.body)


class Refusing:
    words = "refusing"

    def __init__(self, *, is_final: bool) -> None:
        self.tries = 0
        self._is_final = is_final

    def tell(self, message: Message) -> None:
        self.tries += 1
        raise NotDelivered(f"no to {message.event}", is_final=self._is_final)


def news(index: int, namespace: str = "team") -> RunNews:
    return RunNews(event="end", namespace=namespace, wire={"run": f"r{index}"})


def test_oldest_messages_of_a_blocked_channel_are_dropped() -> None:
    counted: list[str] = []
    blocking, other = Blocking(), Blocking()
    other.free.set()

    async def play() -> None:
        tasks = AsyncioTasks()
        told = Notifications(
            [("team", blocking), ("*", other)], AsyncioClock(), tasks, count=counted.append
        )
        running = [asyncio.ensure_future(work()) for _, work in told.tasks()]
        for index in range(QUEUE_MAX + 500):
            told._queue(news(index))
        told._queue(news(0, "elsewhere"))
        async with asyncio.timeout(20):
            while not other.told:
                await asyncio.sleep(0.01)
        blocking.free.set()
        async with asyncio.timeout(20):
            while len(blocking.told) < QUEUE_MAX:
                await asyncio.sleep(0.01)
        for task in running:
            task.cancel()

    asyncio.run(play())

    assert counted.count("dropped") == 500
    assert b'"r1499"' in blocking.told[-1]
    assert len(other.told) == 1, "a channel of its own is not everybody's"


def test_failing_message_is_retried_unless_the_failure_is_final(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(notifications, "PAUSE", 1)
    for is_final, tries in ((False, notifications.TRIES), (True, 1)):
        counted: list[str] = []
        refusing = Refusing(is_final=is_final)

        async def play(refusing: Refusing = refusing, counted: list[str] = counted) -> None:
            told = Notifications(
                [("team", refusing)], AsyncioClock(), AsyncioTasks(), count=counted.append
            )
            [(_, work)] = told.tasks()
            running = asyncio.ensure_future(work())
            told._queue(news(1))
            async with asyncio.timeout(20):
                while not counted:
                    await asyncio.sleep(0.005)
            running.cancel()

        asyncio.run(play())
        assert (counted, refusing.tries) == (["failed"], tries)


def test_signature_depends_on_time_and_secret() -> None:
    one = Message(delivery="d", event="end", at_s=1_700_000_000, body=b"{}")
    again = Message(delivery="d", event="end", at_s=1_700_000_001, body=b"{}")

    assert signature(b"secret", one) != signature(b"secret", again)
    assert signature(b"secret", one) != signature(b"other", one)
    assert Webhook("https://user:word@example.com:8443/x", b"s").words == "example.com:8443"
