"""Thousands of mutated manifests, really submitted to a running server with its agent.

`python -m tests.up.fuzz [--submissions N] [--seed S]` plays it and prints its counts; a round of
`SUBMISSIONS` is part of the suite. Runs, Budgets, edits of what runs, patches of Nodes and Pods,
deletions; a kill and a stop in between. The server never exits, answers nothing with a 5xx, keeps
no failure of its own to any object, and when everything is deleted nothing is left behind.
"""

import argparse
import os
import random
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
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
from tests.up.server import Up, marked, team

SUBMISSIONS = 5_000
CLIENTS = 2
FLEET = """
fleet:
  - {domain: a, nodes: 4, gpus: 8, flavor: virtual, region: r, cluster: c}
"""
CONFIG = """
activationLead: 2s
resolver.minTenure: 0s
retry.backoff: 200ms
bind.backoff: 200ms
resize.interval: 0s
"""
NODE_NAMES = tuple(f"a-0{index}" for index in range(4))
PATIENCE_S = 120.0
LONG = 120  # some names are nearly as long as a name may be
LIVE_MAX = 60  # runs that are there at a time, or a few more


@dataclass
class Findings:
    seed: int
    submissions: int = 0
    counts: Counter[str] = field(default_factory=Counter)
    problems: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        counts = ", ".join(f"{name} {count}" for name, count in sorted(self.counts.items()))
        return f"fuzz: seed {self.seed}: {self.submissions} submissions ({counts})"


class Fuzz:
    def __init__(self, folder: Path, *, seed: int) -> None:
        fleet = folder / "fleet.yaml"
        fleet.write_text(FLEET)
        self.server = Up(folder, "--fleet", str(fleet), "--log-level", "warning", config=CONFIG)
        self.found = Findings(seed)
        self._seed = seed
        self._lock = threading.Lock()
        self._number = 0
        self._live: list[str] = []
        self._budgets: list[str] = []

    def play(self, submissions: int) -> Findings:
        """In three parts: the server is killed after the first, stopped after the second."""
        server = self.server
        server.start()
        server.submit(*team(concurrency=32))
        for part, end in enumerate((server.kill, server.stop, lambda: None)):
            goal = submissions * (part + 1) // 3
            workers = [
                threading.Thread(target=self._work, args=(goal, f"{self._seed}/{part}/{client}"))
                for client in range(CLIENTS)
            ]
            for worker in workers:
                worker.start()
            for worker in workers:
                worker.join()
            if self._is_over():
                return self.found
            end()
            if part < 2:
                server.start()
        self._clear()
        self._compare()
        return self.found

    def _is_over(self) -> bool:
        code = self.server.process.poll()
        if code is not None:
            log = (self.server.folder / "up.log").read_text()[-3000:]
            self.found.problems.append(f"the server exited with {code}: {log}")
        return code is not None or bool(self.found.problems)

    # What is sent.

    def _work(self, goal: int, seed: str) -> None:
        chance = random.Random(seed)
        mutations = Mutations(chance)
        client = Raw(self.server.kubeconfig)
        try:
            while self._next(goal) and not self.found.problems:
                self._send(client, chance, mutations)
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
                self._mend(client, chance.choice(NODE_NAMES))
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
            if status >= 500:
                self.found.problems.append(f"{status} for {method} {path} {body!r}: {answer}")
            elif status >= 400 and not (isinstance(answer, dict) and answer.get("reason")):
                self.found.problems.append(f"no typed refusal of {method} {path} {body!r}")
        return status

    def _mend(self, client: Raw, node: str) -> None:
        """Whatever was done to a node, it takes work again."""
        for _ in range(3):
            _, stored = client.ask("GET", f"{NODES}/{node}")
            keys = stored.get("metadata", {}).get("annotations", {})
            wanted: dict[str, Any] = {
                "metadata": {"annotations": dict.fromkeys(keys), "finalizers": None},
                "spec": {"taints": None, "unschedulable": None},
            }
            if client.ask("PATCH", f"{NODES}/{node}", wanted, media=MERGE)[0] < 300:
                return

    # What is left.

    def _clear(self) -> None:
        """Everything that users made is deleted, and goes."""
        client = Raw(self.server.kubeconfig)
        for node in NODE_NAMES:
            self._mend(client, node)
        for kind in (RUNS, BUDGETS):
            for name in self._names(client, kind):
                status, answer = client.ask("DELETE", f"{kind}/{name}")
                if status >= 500:
                    self.found.problems.append(f"{kind}/{name} cannot be deleted: {answer}")
        deadline = time.monotonic() + PATIENCE_S
        while left := [*self._kept(client, RUNS), *self._kept(client, PODS)]:
            if time.monotonic() > deadline:
                self.found.problems.append(f"left behind: {left[:10]}")
                break
            time.sleep(0.1)
        client.close()

    def _kept(self, client: Raw, kind: str) -> list[str]:
        """Those that are there and should not be. A finalizer of somebody else's is his to take."""
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

    def _names(self, client: Raw, kind: str) -> list[str]:
        _, listed = client.ask("GET", kind)
        return [each["metadata"]["name"] for each in listed.get("items", [])]

    def _compare(self) -> None:
        server, problems = self.server, self.found.problems
        deadline = time.monotonic() + PATIENCE_S
        while (left := marked(server.data)) and time.monotonic() < deadline:
            time.sleep(0.1)
        if left:
            problems.append(f"processes are left: {left}")
        open_leases = [row for row in server.rows("leases") if row["end"] is None]
        if open_leases:
            problems.append(f"GPUs are held: {open_leases[:5]}")
        log = (server.folder / "up.log").read_text().splitlines()
        bad = [line for line in log if '"exception"' in line or '"contained"' in line]
        if bad:
            problems.append(f"the log has failures of ours: {bad[:3]}")
        for command in (("ledger", "verify"), ("audit",)):
            done = server.cli("leasehold", *command, "--data", str(server.data), ok=False)
            if done.returncode:
                problems.append(f"{command}: {done.stdout}{done.stderr}")
        code = server.stop()
        if code:
            problems.append(f"it stopped with {code}")


def seed_of_commit() -> int:
    """Another one with every commit; `FUZZ_SEED` repeats one."""
    given = os.environ.get("FUZZ_SEED")
    if given:
        return int(given)
    asked = ["git", "rev-parse", "HEAD"]
    here = Path(__file__).parent
    done = subprocess.run(asked, cwd=here, capture_output=True, text=True, check=False)
    return int(done.stdout[:12], 16) if done.returncode == 0 else int(time.time())


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.up.fuzz")
    parser.add_argument("--submissions", type=int, default=SUBMISSIONS)
    parser.add_argument("--seed", type=int, default=None)
    given = parser.parse_args()
    seed = seed_of_commit() if given.seed is None else given.seed
    with tempfile.TemporaryDirectory(prefix="leasehold-fuzz-", ignore_cleanup_errors=True) as root:
        Path(root).chmod(0o755)
        fuzz = Fuzz(Path(root), seed=seed)
        began = time.monotonic()
        try:
            found = fuzz.play(given.submissions)
        finally:
            fuzz.server.end()
    print(f"{found} in {time.monotonic() - began:.0f} s")
    for problem in found.problems:
        print(problem)
    return 1 if found.problems else 0


if __name__ == "__main__":
    sys.exit(main())
