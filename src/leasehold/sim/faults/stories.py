"""Random stories: each seed gives a small, valid scenario file full of faults.

Used by `leasehold sim` and by property tests; `python -m leasehold.sim.faults.stories 17` prints
the story of seed 17. A step may name something that no longer exists (an ended pod), or may be
refused (an edit); the story then continues.
"""

import json
import sys
from collections.abc import Sequence
from random import Random
from typing import cast

START = "2026-01-01T00:00:00Z"
FLAVORS = ("H", "A")
PLACES = (("r1", "c1"), ("r1", "c2"), ("r2", "c1"))
OWNERS = ("org:a", "org:a:x", "org:a:y", "org:b", "org:b:z")
MINUTES_BETWEEN = (0, 0, 1, 1, 5, 10, 14, 15, 16, 31, 60, 121, 300)

Spec = dict[str, object]


def story_of(seed: int, *, gaps: Sequence[int] = MINUTES_BETWEEN, steps_max: int = 40) -> str:
    """Return the scenario file of a seed, with one step per line. `gaps`: the possible minutes
    between two steps."""
    return _Teller(Random(seed), gaps).story(seed, steps_max)


def with_broken_gpus(text: str, random: Random) -> str:
    """Return the story with added steps: GPUs of one to three nodes break, and some are repaired
    later."""
    lines = text.rstrip("\n").split("\n")
    cut = lines.index("steps:") + 1
    rows = json.loads(next(line for line in lines if line.startswith("fleet: "))[len("fleet: ") :])
    gpus = {
        f"{row['domain']}-{each:02d}": row["gpus"] for row in rows for each in range(row["nodes"])
    }
    steps = [(_minutes(line), line) for line in lines[cut:]]
    last = steps[-1][0]
    for _ in range(random.randint(1, 3)):
        at, node = random.randint(0, last), random.choice(sorted(gpus))
        broken: Spec = {"name": node, "gpus": gpus[node] - random.randint(1, gpus[node])}
        if random.random() < 0.7:
            broken["exit"] = 1
        told = [(at, broken)]
        if random.random() < 0.6:
            mended = random.randint(at, last)
            told.append((mended, {"name": node, "gpus": gpus[node]}))
        steps += [
            (minute, f"  - {json.dumps({'at': f'{minute}m', 'node': what})}")
            for minute, what in told
        ]
    steps.sort(key=lambda step: step[0])  # stable within a minute
    return "\n".join([*lines[:cut], *(line for _, line in steps), ""])


def minutes_of(text: str) -> list[int]:
    """Return the minute of each step of a story."""
    lines = text.rstrip("\n").split("\n")
    return [_minutes(line) for line in lines[lines.index("steps:") + 1 :]]


def _minutes(line: str) -> int:
    return int(line.split('"at": "', 1)[1].split("m", 1)[0])


def _instant(minutes: int) -> str:
    days, rest = divmod(minutes, 24 * 60)
    return f"2026-01-{1 + days:02d}T{rest // 60:02d}:{rest % 60:02d}:00Z"


class _Teller:
    def __init__(self, random: Random, gaps: Sequence[int]) -> None:
        self._random = random
        self._gaps = gaps
        self._flavors = FLAVORS[: 1 if random.random() < 0.8 else 2]
        self._places = random.sample(PLACES, 1 if random.random() < 0.6 else 2)
        self._owners = sorted(random.sample(OWNERS, random.randint(2, 5)))
        self._fleet: list[Spec] = []
        self._nodes: list[str] = []
        self._widest = 0
        self._budgets: dict[str, Spec] = {}
        self._runs: dict[str, Spec] = {}
        self._minutes = 0
        self._calm = random.random() < 0.3  # no machine fails

    def story(self, seed: int, steps_max: int) -> str:
        self._make_fleet()
        for owner in self._owners:
            if not self._budgets or self._chance(0.9):
                self._budgets[self._key(owner)] = self._budget(owner)
        head = [
            f"title: Random story {seed}",
            f"config: {json.dumps(self._config())}",
            f"fleet: {json.dumps(self._fleet)}",
            f"budgets: {json.dumps(self._budgets)}",
            "steps:",
        ]
        steps = [self._step() for _ in range(self._random.randint(10, steps_max))]
        return "\n".join([*head, *(f"  - {json.dumps(step)}" for step in steps), ""])

    # The initial state.

    def _chance(self, odds: float) -> bool:
        return self._random.random() < odds

    def _key(self, owner: str) -> str:
        name = owner.replace(":", "")
        return f"{name}/{name}"

    def _config(self) -> Spec:
        config: Spec = {}
        if self._chance(0.2):
            config["activationLead"] = self._random.choice(["0s", "1m", "2h"])
        if self._chance(0.15):
            config["resolver.minTenure"] = self._random.choice(["0s", "10m"])
        if self._chance(0.15):
            config["overdraft.grace"] = self._random.choice(["0s", "1h"])
        if self._chance(0.1):
            config["resize.interval"] = "0s"
        if self._chance(0.1):
            config["reservation.depthPerOwner"] = 1
        if self._chance(0.1):
            config["forbidReciprocalLending"] = True
        return config

    def _make_fleet(self) -> None:
        for domain in ("a", "b", "c")[: self._random.randint(1, 3)]:
            region, cluster = self._random.choice(self._places)
            nodes, gpus = self._random.randint(1, 5), self._random.choice((1, 2, 4, 8))
            row: Spec = {"domain": domain, "nodes": nodes, "gpus": gpus,
                         "flavor": self._random.choice(self._flavors), "region": region,
                         "cluster": cluster}  # fmt: skip
            self._fleet.append(row)
            self._nodes += [f"{domain}-{each:02d}" for each in range(nodes)]
            self._widest = max(self._widest, nodes * gpus)

    def _budget(self, owner: str) -> Spec:
        envelopes = [self._envelope(f"e{each}") for each in range(self._random.randint(1, 3))]
        budget: Spec = {"owner": owner, "envelopes": envelopes}
        flavor = envelopes[0]["flavor"]
        named = [each["name"] for each in envelopes if each["flavor"] == flavor]
        if self._chance(0.25):
            most = self._random.randint(1, 2 * self._widest)
            budget["aggregateCaps"] = [
                {"name": "cap", "flavor": flavor, "envelopes": named, "maxConcurrency": most}
            ]
        return budget

    def _envelope(self, name: str) -> Spec:
        random = self._random
        envelope: Spec = {"name": name, "flavor": random.choice(self._flavors),
                          "concurrency": random.randint(1, 2 * self._widest)}  # fmt: skip
        if self._chance(0.4):
            region, cluster = random.choice(self._places)
            envelope["selector"] = {"region": region, "cluster": cluster}
        if self._chance(0.3):
            envelope["maxGPUHours"] = random.choice((1, 5, 20, 100, 400))
        if self._chance(0.2):
            envelope["start"] = _instant(self._minutes + random.choice((1, 30, 120, 600)))
        if self._chance(0.3):
            envelope["end"] = _instant(self._minutes + random.choice((601, 720, 1500)))
        if self._chance(0.2):
            envelope["sharing"] = "none"
        if self._chance(0.5):
            envelope["lending"] = self._lending()
        return envelope

    def _lending(self) -> Spec:
        lending: Spec = {"allow": self._chance(0.9), "to": ["org:*"]}
        if self._chance(0.3):
            lending["maxConcurrency"] = self._random.randint(1, self._widest)
        if self._chance(0.2):
            lending["maxGPUHours"] = self._random.choice((2, 20, 200))
        return lending

    def _run(self, owner: str) -> Spec:
        random = self._random
        pod = random.choice((1, 1, 2, 4))
        group = pod * random.randint(1, 3)
        groups = random.randint(1, 4)
        run: Spec = {
            "owner": owner,
            "resources": {"gpuType": random.choice(self._flavors), "totalGPUs": group * groups,
                          "gpusPerPod": pod},
            "locality": {"groupGPUs": group, "allowCrossGroupSpread": self._chance(0.8)},
        }  # fmt: skip
        if self._chance(0.3):
            run["sparesPerGroup"] = pod * random.randint(1, 2)
        if self._chance(0.25):
            run["gang"] = "Group"
        if self._chance(0.35):
            run["malleable"] = self._malleable(group, groups)
        if self._chance(0.2):
            run["opportunistic"] = True
        if self._chance(0.3):
            run["funding"] = self._funding(group * groups)
        run["runtime"] = self._runtime()
        return run

    def _malleable(self, group: int, groups: int) -> Spec:
        least, most = self._random.randint(1, groups), groups + self._random.randint(0, 3)
        return {"minTotalGPUs": least * group, "maxTotalGPUs": most * group,
                "desiredTotalGPUs": self._random.randint(least, most) * group}  # fmt: skip

    def _funding(self, most: int) -> Spec:
        others = self._random.sample(OWNERS, self._random.randint(1, 2))
        funding: Spec = {"allowBorrow": True, "sponsors": others}
        if self._chance(0.4):
            funding["maxBorrowGPUs"] = self._random.randint(0, most)
        return funding

    def _runtime(self) -> Spec:
        runtime: Spec = {}
        if self._chance(0.5):
            runtime["maxDuration"] = self._random.choice(("10m", "1h", "2h", "5h", "30h"))
        if self._chance(0.4):
            runtime["checkpoint"] = self._random.choice(("5m", "30m"))
        if self._chance(0.3):
            runtime["retries"] = self._random.randint(1, 3)
        if self._chance(0.4):
            runtime["gracePeriod"] = self._random.choice(("0s", "2s", "2m", "20m"))
        return runtime

    def _works(self) -> list[Spec]:
        return [self._work() for _ in range(self._random.randint(1, 3))]

    def _work(self) -> Spec:
        work: Spec = {}
        if self._chance(0.7):
            work["lasts"] = self._random.choice(("0s", "1s", "20m", "1h", "3h", "8h"))
            work["exit"] = self._random.choice((0, 0, 0, 1))
        if self._chance(0.4):
            work["stops"] = self._random.choice(("1s", "10s", "1m", "30m"))
        return work

    # The steps.

    def _step(self) -> Spec:
        self._minutes += self._random.choice(self._gaps)
        happens = self._submit() if len(self._runs) < 2 or self._chance(0.35) else self._trouble()
        return {"at": f"{self._minutes}m", **happens}

    def _submit(self) -> Spec:
        submitted = {}
        for _ in range(self._random.choice((1, 1, 2, 3))):
            owner = self._random.choice(self._owners)
            key = f"{owner.replace(':', '')}/run{len(self._runs)}"
            self._runs[key] = submitted[key] = self._run(owner)
        return {"submit": submitted, "work": self._works()}

    def _trouble(self) -> Spec:
        kinds = [self._edit_run, self._edit_run, self._edit_envelope, self._edit_envelope,
                 self._cancel, self._put_budget, self._delete_budget, self._restart,
                 self._pod]  # fmt: skip
        if not self._calm:
            kinds += [self._node, self._node, self._node, self._foreign, self._binds, self._pod,
                      self._delete_node]  # fmt: skip
        return self._random.choice(kinds)()

    def _edit_run(self) -> Spec:
        key = self._random.choice(sorted(self._runs))
        run = self._runs[key]
        choice = self._random.choice(("desired", "desired", "duration", "sponsors"))
        spec: Spec = {"runtime": {"maxDuration": self._random.choice(("10m", "90m", "10h", None))}}
        malleable = run.get("malleable")
        if choice == "desired" and isinstance(malleable, dict):
            group = cast(int, cast(Spec, run["locality"])["groupGPUs"])
            least, most = malleable["minTotalGPUs"], malleable["maxTotalGPUs"]
            width = self._random.randrange(least, most + 1, group)
            spec = {"malleable": {"desiredTotalGPUs": width}}
        elif choice == "sponsors" and "funding" in run:
            spec = {"funding": {"sponsors": self._random.sample(OWNERS, 2)}}
        return {"edit": {"run": key, "spec": spec}}

    def _edit_envelope(self) -> Spec:
        if not self._budgets:
            return self._restart()
        key = self._random.choice(sorted(self._budgets))
        envelope = self._random.choice(cast(list[Spec], self._budgets[key]["envelopes"]))
        fields: Spec = {"concurrency": self._random.randint(1, 2 * self._widest)}
        match self._random.randrange(7):
            case 0:
                fields = {"end": _instant(self._minutes + self._random.choice((1, 60, 700, 1600)))}
            case 1:
                fields = {"lending": self._lending()}
            case 2:
                fields = {"maxGPUHours": self._random.choice((1, 5, 20, 400, None))}
            case 3:
                fields = {"concurrency": self._random.randint(1, 3)}
        return {"edit": {"envelope": f"{key}/{envelope['name']}", **fields}}

    def _put_budget(self) -> Spec:
        owner = self._random.choice(self._owners)
        key = self._key(owner)
        self._budgets[key] = self._budget(owner)
        return {"budget": {key: self._budgets[key]}}

    def _delete_budget(self) -> Spec:
        if not self._budgets or self._chance(0.5):
            return self._put_budget()
        return {"delete": {"budget": self._random.choice(sorted(self._budgets))}}

    def _cancel(self) -> Spec:
        key = self._random.choice(sorted(self._runs))
        return {"delete": {"run": key}} if self._chance(0.3) else {"cancel": key}

    def _restart(self) -> Spec:
        return {"restart": "controller"}

    def _node(self) -> Spec:
        states = ("dead", "dead", "silent", "ready", "ready", "ready", "cordoned", "uncordoned",
                  "draining", "draining")  # fmt: skip
        name = self._random.choice(self._nodes)
        return {"node": {"name": name, "is": self._random.choice(states)}}

    def _delete_node(self) -> Spec:
        return {"delete": {"node": self._random.choice(self._nodes)}}

    def _foreign(self) -> Spec:
        return {"foreign": {"node": self._random.choice(self._nodes),
                            "gpus": self._random.choice((0, 0, 1))}}  # fmt: skip

    def _binds(self) -> Spec:
        return {"binds": {"fail": self._random.choice((1, 2, 6))}}

    def _pod(self) -> Spec:
        does = self._random.choice(("exit 0", "exit 1", "stick", "unstick"))
        return {"pod": {"run": self._random.choice(sorted(self._runs)),
                        "group": self._random.choice((0, 0, 0, 1)),
                        "pod": self._random.choice((0, 0, 0, 1)), "does": does}}  # fmt: skip


if __name__ == "__main__":
    sys.stdout.write(story_of(int(sys.argv[1])))
