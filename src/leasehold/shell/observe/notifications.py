"""Notifications about runs by webhook or command: queued, retried and finally dropped.

The plane passes every committed turn to `after_turn`; no decision waits for a message. Each channel
(a webhook or a command) has a bounded queue and a task of its own, so a hanging channel delays no
other. A message may arrive twice, with the same delivery id. After a crash it may be missing.
"""

import asyncio
import secrets
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence

import msgspec
import structlog

from leasehold.adapters.notify.channels import Channel, Command, Message, NotDelivered, Webhook
from leasehold.control.turn import Turn
from leasehold.control.views.news import EVENTS, EndedRuns, RunNews
from leasehold.core.units import SECOND, Millis
from leasehold.ports.runtime import Clock, Tasks

QUEUE_MAX = 1_000
TRIES = 6
PAUSE: Millis = SECOND  # after the first failed attempt; doubles each time
EVERYWHERE = "*"

_log = structlog.get_logger(__name__)
Count = Callable[[str], None]  # outcome of a message: sent, failed or dropped


class Notifications:
    def __init__(
        self,
        channels: Iterable[tuple[str, Channel]],
        clock: Clock,
        tasks: Tasks,
        *,
        events: Sequence[str] = EVENTS,
        count: Count = lambda _: None,
    ) -> None:
        """`channels`: pairs of a namespace and a channel. The namespace `*` stands for all
        namespaces that have no channel."""
        self._lines: dict[str, list[_Line]] = {}
        for namespace, channel in channels:
            line = _Line(channel, clock, tasks, count)
            self._lines.setdefault(namespace, []).append(line)
        self._events = frozenset(events)
        self._clock = clock
        self._newsroom = EndedRuns()

    def after_turn(self, turn: Turn) -> None:
        """Queue the messages about a turn; return at once."""
        if not self._lines:
            return
        for news in self._newsroom.news_of(turn):
            if news.event in self._events:
                self._queue(news)

    def _queue(self, news: RunNews) -> None:
        lines = self._lines.get(news.namespace) or self._lines.get(EVERYWHERE, [])
        for line in lines:
            delivery = secrets.token_hex(16)
            body = msgspec.json.encode({**news.wire, "delivery": delivery})
            at_s = self._clock.now() // SECOND
            line.put(Message(delivery=delivery, event=news.event, at_s=at_s, body=body))

    def tasks(self) -> list[tuple[str, Callable[[], Awaitable[None]]]]:
        """Return the name and the coroutine function of each channel's task; the caller runs them
        for ever."""
        return [
            (f"notify {namespace} {line.words}", line.run)
            for namespace, lines in self._lines.items()
            for line in lines
        ]


class _Line:
    """The queue of the messages that one channel must send, in order."""

    def __init__(self, channel: Channel, clock: Clock, tasks: Tasks, count: Count) -> None:
        self._channel = channel
        self._clock = clock
        self._count = count
        self._waiting: deque[Message] = deque()
        self._signal = tasks.signal()
        self.words = channel.words

    def put(self, message: Message) -> None:
        """Queue a message. If the queue is full, drop the oldest one first, because the newest
        matters most."""
        if len(self._waiting) >= QUEUE_MAX:
            self._waiting.popleft()
            self._count("dropped")
            _log.warning(
                "notification dropped", to=self.words, message="too many notifications are waiting"
            )
        self._waiting.append(message)
        self._signal.set()

    async def run(self) -> None:
        while True:
            while self._waiting:
                await self._tell(self._waiting.popleft())
            await self._signal.wait(None)

    async def _tell(self, message: Message) -> None:
        pause = PAUSE
        for attempt in range(1, TRIES + 1):
            try:
                await asyncio.to_thread(self._channel.tell, message)
            except NotDelivered as error:
                if error.is_final or attempt == TRIES:
                    self._count("failed")
                    _log.warning(
                        "notification failed",
                        to=self.words,
                        event_told=message.event,
                        tries=attempt,
                        message=str(error),
                    )
                    return
                await self._clock.sleep(pause)
                pause *= 2
            else:
                self._count("sent")
                return


def channels_of(
    webhooks: Mapping[str, str], commands: Mapping[str, Sequence[str]], secret: bytes
) -> list[tuple[str, Channel]]:
    """Return a webhook or command channel for each entry of the configuration, with its
    namespace."""
    found: list[tuple[str, Channel]] = [
        (namespace, Webhook(url, secret)) for namespace, url in webhooks.items()
    ]
    return found + [(namespace, Command(tuple(argv))) for namespace, argv in commands.items()]
