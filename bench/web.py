"""Measures the dashboard over a large fleet: the cost of one page, and of fifty open pages.

The benchmark asks for pages as a browser does, but without a socket, so that only CPU time of the
server is measured. Once per change, one lease ends and another is opened.
"""

import asyncio
import resource
import time
from collections.abc import Mapping, MutableMapping
from typing import Any

from msgspec.structs import replace

from bench.worlds import FLAVOR, NOW, empty_world, make_run, owners
from leasehold.core.facts import Closed, Closure, ClosureReason, Lease, Opened, Relation, Role
from leasehold.core.objects.access import Caller, CallerRole
from leasehold.core.units import HOUR, Instant
from leasehold.core.world.world import World
from leasehold.shell.queries.query import Answered, Questions
from leasehold.web.app import Pages
from leasehold.web.authentication import LinkAuthentication
from leasehold.web.dependencies import Chain, PageDependencies, Visitor
from leasehold.web.news import PageNews
from leasehold.web.sessions import COOKIE

RUNS = 5_000
PAGES = 50
CHANGES = 8
ADMIN = Caller(user="admin", role=CallerRole.ADMIN)
DIGEST = "0" * 64


def measure(nodes: int) -> dict[str, float]:
    return asyncio.run(WebBench(nodes).measured())


class _Clock:
    def now(self) -> Instant:
        return NOW + HOUR

    def monotonic(self) -> Instant:
        return time.monotonic_ns() // 1_000_000

    async def sleep(self, span: int) -> None:
        await asyncio.sleep(span / 1000)


class WebBench:
    """The pages over a full fleet, and one signed-in visitor that may open any number of pages."""

    def __init__(self, nodes: int) -> None:
        self.world = _filled(nodes)
        self.news = PageNews()
        questions = Questions(self._at_rest, _Clock())

        async def ask(visitor: Visitor, question: str, params: Mapping[str, str]) -> Answered:
            assert isinstance(visitor, Caller)
            return await questions.answer(visitor, question, params)

        async def chain(_visitor: Visitor, _after: int, _limit: int) -> Chain:
            return Chain(DIGEST, [])

        async def logs(_visitor: Visitor, _namespace: str, _pod: str) -> str:
            return ""

        self.door = door = LinkAuthentication(
            visitor_of=lambda _: ADMIN, digest_of=lambda _: DIGEST, key=bytes(32)
        )
        house = PageDependencies(
            ask=ask,
            chain=chain,
            logs=logs,
            news=self.news,
            door=door,
        )
        self.pages = Pages(house)
        self.cookie = door.sessions.redeem(door.sessions.new_code(DIGEST)) or ""

    async def _at_rest(self, _patience: int) -> World:
        return self.world

    async def see(self, address: str) -> tuple[float, bytes]:
        """Ask for an address; return the CPU seconds that this took, and the body of the answer."""
        path, _, query = address.partition("?")
        scope = {
            "type": "http",
            "method": "GET",
            "scheme": "https",
            "path": path,
            "raw_path": path.encode(),
            "query_string": query.encode(),
            "headers": [(b"host", b"localhost"), (b"cookie", f"{COOKIE}={self.cookie}".encode())],
        }
        received: list[Any] = []

        async def receive() -> MutableMapping[str, Any]:
            return {"type": "http.request", "body": b"", "more_body": False}

        async def send(message: MutableMapping[str, Any]) -> None:
            received.append(message)

        began = time.process_time()
        await self.pages(scope, receive, send)
        took = time.process_time() - began
        assert received[0]["status"] == 200, received
        return took, b"".join(each.get("body", b"") for each in received[1:])

    async def measured(self) -> dict[str, float]:
        before = _mib()
        page, _ = await self.see("/ui/fleet")
        data, body = await self.see("/ui/fleet.json")
        found = {
            "web_fleet_page_s": page + data,
            "web_fleet_mib_sent": len(body) / (1 << 20),
            "web_now_page_s": (await self.see("/ui/"))[0],
            "web_runs_page_s": (await self.see("/ui/runs"))[0],
            "web_past_s": (await self.see("/ui/fleet.json?at=2026-01-01T00:30:00Z"))[0],
        }
        version, spent = self.news.name, 0.0
        for number in range(CHANGES):
            change(self.world, number)
            self.news.note()
            changed = f"/ui/fleet.json?since={version}"
            took = []
            for _ in range(PAGES):
                took.append((await self.see("/ui/fleet"))[0] + (await self.see(changed))[0])
            version = self.news.name
            spent += sum(took)
            found["web_change_s"] = took[0]
        found["web_50_pages_core_percent"] = 100 * spent / CHANGES
        found["web_50_pages_mib"] = _mib() - before
        return found


def _mib() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def _filled(nodes: int) -> World:
    """Return a World in which runs of two nodes each hold all nodes."""
    world = empty_world(nodes)
    teams = [owner for owner in owners() if owner.count(":") == 3]
    names = sorted(world.fleet.nodes)
    for index in range(RUNS):
        owner = teams[index % len(teams)]
        run = make_run(index, owner, 16)
        world.put_run(run)
        for place in (0, 1):
            if 2 * index + place < len(names):
                world.fold_open(_lease(run.name, owner, index, place, names[2 * index + place]))
    assert world.fleet.nodes[names[0]].node.flavor == FLAVOR
    return world


def _lease(run: str, owner: str, index: int, place: int, node: str, batch: int = 2) -> Lease:
    name = owner.replace(":", "-")
    return Lease(
        name=f"{run}-{batch}-{place}",
        owner=owner,
        namespace=name,
        run=run,
        uid=f"u{index}",
        attempt=1,
        group=0,
        index=place,
        node=node,
        slots=tuple(range(8)),
        role=Role.ACTIVE,
        start=NOW - 1,
        payer=f"{name}/{name}/open",
        payer_owner=owner,
        relation=Relation.OWNED,
        reason=Opened.START,
        batch=batch,
        pod=f"{run}-p{place}",
    )


def change(world: World, number: int) -> None:
    """Close one lease and open another for the same pod on the same node. Each `number` chooses
    another node."""
    node = sorted(world.open_by_node)[number * 7]
    (name,) = world.open_by_node[node]
    old = world.leases[name]
    batch = 3 + number
    world.fold_close(
        name, Closure(why=ClosureReason(reason=Closed.SWAP), at=NOW + number, batch=batch)
    )
    world.fold_open(replace(old, name=f"{old.run}-{batch}-{old.index}", batch=batch, slots=(0, 1)))
