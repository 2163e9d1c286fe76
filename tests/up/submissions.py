"""Send hostile or careless submissions to a server: shared by `fuzz` and the storm on a cluster.

The submissions are Runs, Budgets, edits of running Runs, patches of Nodes and Pods, and deletions.
Every answer must be typed.
"""

import random
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from tests.up.mutations import Mutations
from tests.up.raw import (
    APPLY,
    BUDGETS,
    JSON_PATCH,
    MERGE,
    NODES,
    PODS,
    RUNS,
    STRATEGIC,
    Raw,
)

CLIENTS = 2
NODE_NAMES = tuple(f"a-0{index}" for index in range(4))
LONG = 120  # makes some names nearly as long as allowed
PATIENCE_S = 120.0
LIVE_MAX = 60  # about how many runs exist at a time


@dataclass
class Findings:
    seed: int
    submissions: int = 0
    counts: Counter[str] = field(default_factory=Counter)
    problems: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        counts = ", ".join(f"{name} {count}" for name, count in sorted(self.counts.items()))
        return f"fuzz: seed {self.seed}: {self.submissions} submissions ({counts})"


class Submissions:
    """Submissions by several concurrent clients, each with its own connection."""

    def __init__(
        self, connect: Callable[[], Raw], *, seed: int, excused: int = 0, pause_s: float = 0.0
    ) -> None:
        """`excused`: a status that is never a problem. `pause_s`: the pause of each client after
        each submission."""
        self._pause_s = pause_s
        self.found = Findings(seed)
        self._excused = excused
        self._connect = connect
        self._lock = threading.Lock()
        self._number = 0
        self._live: list[str] = []
        self._budgets: list[str] = []

    def send(self, goal: int, part: int) -> None:
        """Send until `goal` submissions have been sent in all, or there is a problem."""
        workers = [
            threading.Thread(target=self._work, args=(goal, f"{self.found.seed}/{part}/{client}"))
            for client in range(CLIENTS)
        ]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()

    def _work(self, goal: int, seed: str) -> None:
        chance = random.Random(seed)
        mutations = Mutations(chance)
        client = self._connect()
        try:
            while self._next(goal) and not self.found.problems:
                self._send(client, chance, mutations)
                time.sleep(self._pause_s)
        except OSError as error:
            self.found.problems.append(f"the server did not answer: {error}")
        finally:
            client.close()

    def _next(self, goal: int) -> bool:
        with self._lock:
            if self.found.submissions >= goal:
                return False
            self.found.submissions += 1
            self._number += 1
            return True

    def _send(self, client: Raw, chance: random.Random, mutations: Mutations) -> None:
        draw = chance.random()
        if draw < 0.45:
            self._submit_run(client, mutations)
        elif draw < 0.60:
            self._submit_budget(client, chance, mutations)
        elif draw < 0.85:
            self._edit_run(client, chance, mutations)
        elif draw < 0.93:
            media = chance.choice((MERGE, STRATEGIC))
            patch = mutations.spoiled(mutations.node())
            where = f"{NODES}/{chance.choice(NODE_NAMES)}"
            where += chance.choice(("", "", "/status"))
            self._ask(client, "node", "PATCH", where, patch, media)
            if chance.random() < 0.3:
                self.mend(client, chance.choice(NODE_NAMES))
        elif draw < 0.97:
            self._touch_pod(client, chance, mutations)
        else:
            self._delete(client, chance)

    def _submit_run(self, client: Raw, mutations: Mutations) -> None:
        name = f"f{self._number}" + ("" if self._number % 20 else "-x" * LONG)
        sent = mutations.spoiled(mutations.run(name))
        if self._ask(client, "run", "POST", RUNS, sent) == 201:
            with self._lock:
                self._live.append(name)
        while len(self._live) > LIVE_MAX:
            self._drop(client, 0)

    def _submit_budget(self, client: Raw, chance: random.Random, mutations: Mutations) -> None:
        if self._budgets and chance.random() < 0.4:
            name = chance.choice(self._budgets)
            patch = mutations.spoiled({"spec": mutations.budget(name)["spec"]})
            self._ask(client, "budget edit", "PATCH", f"{BUDGETS}/{name}", patch, MERGE)
            return
        name = f"b{self._number}"
        sent = mutations.spoiled(mutations.budget(name))
        if self._ask(client, "budget", "POST", BUDGETS, sent) == 201:
            with self._lock:
                self._budgets.append(name)
        if len(self._budgets) > 20:
            with self._lock:
                gone = self._budgets.pop(0)
            self._ask(client, "deletion", "DELETE", f"{BUDGETS}/{gone}")

    def _edit_run(self, client: Raw, chance: random.Random, mutations: Mutations) -> None:
        name = chance.choice(self._live) if self._live else "nobody"
        where = f"{RUNS}/{name}"
        how = chance.randrange(4)
        if how == 0:
            whole = mutations.spoiled(mutations.run(name))
            where += "?fieldManager=me&force=true"
            self._ask(client, "edit", "PATCH", where, whole, APPLY)
        elif how == 1:
            status, stored = client.ask("GET", where)
            if status == 200:
                self._ask(client, "edit", "PUT", where, mutations.spoiled(stored))
        elif how == 2:
            steps = [
                {"op": chance.choice(("add", "replace", "remove", "test")),
                 "path": chance.choice(("/spec", "/spec/stop", "/spec/runtime", "/metadata/labels",
                                        "/spec/template/spec/containers/0", "/metadata")),
                 "value": mutations.spoiled({"x": {"y": [1]}})}
            ]  # fmt: skip
            self._ask(client, "edit", "PATCH", where, steps, JSON_PATCH)
        else:
            self._ask(client, "edit", "PATCH", where, mutations.spoiled(mutations.edit()), MERGE)

    def _touch_pod(self, client: Raw, chance: random.Random, mutations: Mutations) -> None:
        _, listed = client.ask("GET", f"{PODS}?limit=20")
        names = [each["metadata"]["name"] for each in listed.get("items", [])]
        if not names:
            return
        where = f"{PODS}/{chance.choice(names)}"
        if chance.random() < 0.5:
            self._ask(client, "pod", "DELETE", where)
        else:
            patch = mutations.spoiled({"metadata": {"labels": {"a": "b"}, "annotations": {}}})
            self._ask(client, "pod", "PATCH", where, patch, MERGE)

    def _delete(self, client: Raw, chance: random.Random) -> None:
        if self._live:
            self._drop(client, chance.randrange(len(self._live)))

    def _drop(self, client: Raw, index: int) -> None:
        with self._lock:
            name = self._live.pop(index) if index < len(self._live) else "nobody"
        self._ask(client, "deletion", "DELETE", f"{RUNS}/{name}")

    def _ask(
        self,
        client: Raw,
        what: str,
        method: str,
        path: str,
        body: object = None,
        media: str = "application/json",
    ) -> int:
        status, answer = client.ask(method, path, body, media=media)
        verdict = "accepted" if status < 300 else "refused"
        with self._lock:
            self.found.counts[f"{what} {verdict}"] += 1
            if status == self._excused:
                return status
            if status >= 500:
                self.found.problems.append(f"{status} for {method} {path} {body!r}: {answer}")
            elif status >= 400 and not (isinstance(answer, dict) and answer.get("reason")):
                self.found.problems.append(
                    f"no typed refusal: {answer} of {method} {path} {body!r}"
                )
        return status

    def mend(self, client: Raw, node: str) -> None:
        """Undo all changes to a node, so that it takes work again."""
        for _ in range(3):
            _, stored = client.ask("GET", f"{NODES}/{node}")
            keys = stored.get("metadata", {}).get("annotations", {})
            wanted: dict[str, Any] = {
                "metadata": {"annotations": dict.fromkeys(keys), "finalizers": None},
                "spec": {"taints": None, "unschedulable": None},
            }
            if client.ask("PATCH", f"{NODES}/{node}", wanted, media=MERGE)[0] < 300:
                return


def clear(client: Raw, problems: list[str]) -> None:
    """Delete all Runs and Budgets as an administrator; wait until the Runs and Pods are gone."""
    for kind in (RUNS, BUDGETS):
        _, listed = client.ask("GET", kind)
        for name in [each["metadata"]["name"] for each in listed.get("items", [])]:
            status, answer = client.ask("DELETE", f"{kind}/{name}")
            if status >= 500:
                problems.append(f"{kind}/{name} cannot be deleted: {answer}")
    deadline = time.monotonic() + PATIENCE_S
    while left := [*_kept(client, RUNS), *_kept(client, PODS)]:
        if time.monotonic() > deadline:
            problems.append(f"left behind: {left[:10]}")
            break
        time.sleep(0.1)


def _kept(client: Raw, kind: str) -> list[str]:
    """Return the objects that still exist; remove finalizers that are not leasehold's own."""
    _, listed = client.ask("GET", kind)
    kept = []
    for each in listed.get("items", []):
        metadata = each["metadata"]
        others = [name for name in metadata.get("finalizers", ())
                  if not str(name).startswith("rq.davidlangworthy.io/")]  # fmt: skip
        if others:
            patch = {"metadata": {"finalizers": None}}
            client.ask("PATCH", f"{kind}/{metadata['name']}", patch, media=MERGE)
        kept.append(f"{kind}/{metadata['name']}")
    return kept
