"""Random stories in the scenario language, each from a seed, so that a difference is a file.

Fleets are small and overloaded and times are on a coarse grid, so that queues, cuts, backfill,
loans and simultaneous events occur often. A profile sets what a story is mostly about.
"""

from dataclasses import dataclass
from random import Random
from typing import Any

import yaml
from tests.model.story import HOUR, MINUTE, instant, short, written

PROFILES = ("line", "money", "fill", "failure", "mixed")
START = "2026-01-01T00:00:00Z"
FLAVOR = "H100"


@dataclass(frozen=True)
class Taste:
    """The probability of each feature, in percent."""

    family: int = 0
    tight: int = 0  # money is scarce
    windows: int = 0
    hours: int = 0
    aggregates: int = 0
    lending: int = 0
    places: int = 15  # a second region
    limits: int = 50
    elastic: int = 15
    sweeps: int = 10
    spares: int = 10
    fillers: int = 5
    checkpoints: int = 40
    slow: int = 20  # pods that take their time to stop
    lasting: int = 60  # work that ends by itself
    failing: int = 5
    unspread: int = 20
    events: tuple[str, ...] = ()
    most_events: int = 4


TASTES = {
    "line": Taste(events=("cancel", "limit", "cordon", "uncordon"), most_events=3, limits=65),
    "money": Taste(
        family=60, tight=70, windows=30, hours=30, aggregates=25, lending=50,
        events=("envelope", "envelope", "envelope", "cancel", "budget", "limit"), most_events=6,
    ),
    "fill": Taste(
        sweeps=35, spares=40, fillers=35, elastic=20, slow=30,
        events=("dead", "cancel", "ready", "desired", "envelope"), most_events=4,
    ),
    "failure": Taste(
        failing=25, spares=25, elastic=25, fillers=10, sweeps=20, slow=40,
        events=(
            "dead", "silent", "ready", "ready", "cordon", "uncordon", "exit", "stick", "unstick",
            "binds", "delete-node", "restart", "foreign",
        ), most_events=9,
    ),
    "mixed": Taste(
        family=40, tight=40, windows=15, hours=15, aggregates=10, lending=30, failing=10,
        elastic=25, sweeps=20, spares=20, fillers=15, slow=30,
        events=(
            "cancel", "limit", "cordon", "uncordon", "dead", "silent", "ready", "exit", "stick",
            "unstick", "binds", "restart", "foreign", "envelope", "envelope", "desired", "budget",
            "delete-node",
        ), most_events=10,
    ),
}  # fmt: skip


def story_of(seed: int, profile: str) -> dict[str, Any]:
    """Return the story of a seed, which is always the same."""
    return Teller(Random(f"{profile}/{seed}"), TASTES[profile]).tell(f"{profile} {seed}")


def text_of(document: dict[str, Any]) -> str:
    return yaml.safe_dump(document, sort_keys=False, width=120)


class Teller:
    def __init__(self, random: Random, taste: Taste) -> None:
        self.random = random
        self.taste = taste
        self.nodes: list[str] = []
        self.runs: dict[str, dict[str, Any]] = {}
        self.budgets: dict[str, dict[str, Any]] = {}
        self.submitted: dict[str, int] = {}

    def chance(self, percent: int) -> bool:
        return self.random.randrange(100) < percent

    def tell(self, title: str) -> dict[str, Any]:
        fleet = self.fleet()
        self.owners()
        start = dict(self.budgets)
        steps = self.submissions() + self.events()
        steps.sort(key=lambda each: each[0])
        end = max(at for at, _ in steps) + self.random.choice((1, 2, 4)) * HOUR
        told = [{"at": short(at), **step} for at, step in steps]
        told.append({"at": short(end), "expect": [{"ledger": "ok"}]})
        document: dict[str, Any] = {"title": title, "start": START}
        config = self.config()
        if config:
            document["config"] = config
        return {**document, "fleet": fleet, "budgets": start, "steps": told}

    def config(self) -> dict[str, Any]:
        """Return the settings of the queue, sometimes changed ones."""
        reservation: dict[str, Any] = {}
        resolver: dict[str, Any] = {}
        config: dict[str, Any] = {}
        if self.chance(20):
            config["activationLead"] = "5m"
            reservation["maxWait"] = "2h"
        if self.chance(25):
            reservation["patience"] = self.random.choice(("5m", "30m", "1h", "3h"))
        if self.chance(25):
            resolver["minTenure"] = self.random.choice(("10m", "30m", "2h"))
        if self.chance(12):
            resolver["cuts"] = self.random.choice(("Reclaim", "Never"))
        if self.chance(10):
            resolver["ownedLast"] = True
        settings = (("reservation", reservation), ("resolver", resolver))
        return {**config, **{name: group for name, group in settings if group}}

    # Nodes

    def fleet(self) -> list[dict[str, Any]]:
        two = self.chance(self.taste.places)
        self.regions = ["west", "east"] if two else ["west"]
        rows = []
        self.domains = ["a", "b", "c", "d"][: self.random.choice((1, 1, 2, 2, 3, 4))]
        if two and len(self.domains) == 1:
            self.domains = ["a", "b"]
        self.node_gpus = self.random.choice((4, 8, 8))
        total = 0
        for index, domain in enumerate(self.domains):
            nodes = self.random.choice((1, 1, 2, 2, 3, 4)) if total < 40 else 1
            region = self.regions[index % len(self.regions)]
            rows.append(
                {
                    "domain": domain, "nodes": nodes, "gpus": self.node_gpus, "flavor": FLAVOR,
                    "region": region, "cluster": "c",
                }
            )  # fmt: skip
            self.nodes += [f"{domain}-{number:02d}" for number in range(nodes)]
            total += nodes * self.node_gpus
        self.total = total
        return rows

    # Money

    def owners(self) -> None:
        count = self.random.randint(2, 5)
        if self.chance(self.taste.family):
            names = ["org", "org:a", "org:b", "org:a:x", "org:a:y", "lab:l"]
            self.random.shuffle(names)
            names = sorted(names[:count])
        else:
            names = [f"t{number}:o" for number in range(count)]
        self.names = names
        for number, owner in enumerate(names):
            self.budgets[f"n{number}/b"] = self.budget(owner)

    def budget(self, owner: str) -> dict[str, Any]:
        count = 1 + self.chance(self.taste.tight // 2) + self.chance(self.taste.aggregates)
        envelopes = [self.envelope(f"e{number}") for number in range(count)]
        spec: dict[str, Any] = {"owner": owner, "envelopes": envelopes}
        if count > 1 and self.chance(self.taste.aggregates):
            members = [each["name"] for each in envelopes]
            cap = {"name": "all", "flavor": FLAVOR, "envelopes": members}
            spec["aggregateCaps"] = [{**cap, "maxConcurrency": self.gpus()}]
        return spec

    def gpus(self) -> int:
        """Return the GPUs of an envelope: scarce or plenty."""
        if self.chance(self.taste.tight):
            return self.random.choice((2, 4, 4, 8, 8, 12, 16))
        return self.random.choice((16, 32, 64))

    def envelope(self, name: str) -> dict[str, Any]:
        envelope: dict[str, Any] = {"name": name, "flavor": FLAVOR, "concurrency": self.gpus()}
        if len(self.regions) > 1 and self.chance(40):
            envelope["selector"] = {"region": self.random.choice(self.regions)}
        if self.chance(self.taste.hours):
            envelope["maxGPUHours"] = self.random.choice((8, 16, 24, 48, 96, 200))
        if self.chance(self.taste.windows):
            begin = self.random.choice((30, 60, 120, 180)) * MINUTE
            if self.chance(50):
                envelope["start"] = written(instant(START) + begin)
            if self.chance(50):
                begin += self.random.choice((60, 120, 240)) * MINUTE
                envelope["end"] = written(instant(START) + begin)
        if self.chance(20):
            envelope["sharing"] = "none"
        if self.chance(self.taste.lending):
            lending: dict[str, Any] = {"allow": self.chance(85), "to": ["*"]}
            if self.chance(30):
                lending["to"] = [self.random.choice(("org:*", "t*", "org:a*", "lab:*"))]
            if self.chance(40):
                lending["maxConcurrency"] = self.random.choice((2, 4, 8))
            if self.chance(15):
                lending["maxGPUHours"] = self.random.choice((8, 16, 48))
            envelope["lending"] = lending
        return envelope

    # Runs

    def submissions(self) -> list[tuple[int, dict[str, Any]]]:
        steps = []
        at = 0
        for number in range(self.random.randint(4, 14)):
            index = self.random.randrange(len(self.names))
            key = f"n{index}/r{number:02d}"
            spec = self.run(self.names[index])
            self.runs[key] = spec
            self.submitted[key] = at
            step: dict[str, Any] = {"submit": {key: spec}}
            work = self.work(spec)
            if work:
                step["work"] = work
            steps.append((at, step))
            at += self.random.choice((0, 0, 1, 5, 5, 10, 15, 30)) * MINUTE
        self.last = at
        return steps

    def run(self, owner: str) -> dict[str, Any]:
        pod = self.random.choice([size for size in (1, 2, 4, 4, 8, 8) if size <= self.node_gpus])
        most = max(1, min(self.total, 24) // pod)
        pods_per_group = self.random.choice([n for n in (1, 1, 1, 2, 2, 3, 4) if n <= most])
        group = pod * pods_per_group
        groups = self.random.choice(
            [n for n in (1, 1, 1, 2, 2, 3, 4) if n * pods_per_group <= most]
        )
        total = group * groups
        spec: dict[str, Any] = {
            "owner": owner,
            "resources": {"gpuType": FLAVOR, "totalGPUs": total, "gpusPerPod": pod},
        }
        locality: dict[str, Any] = {} if groups == 1 else {"groupGPUs": group}
        if groups > 1 and self.chance(self.taste.unspread):
            locality["allowCrossGroupSpread"] = False
        if self.chance(15):
            domain = {"fabric.domain": self.random.choice(self.domains)}
            locality["selector"] = domain
        elif len(self.regions) > 1 and self.chance(25):
            locality["selector"] = {"region": self.random.choice(self.regions)}
        if groups > 1 and self.chance(self.taste.sweeps * 2):
            spec["gang"] = "Group"
        elif self.chance(self.taste.elastic * (2 if groups > 1 else 1)):
            locality["groupGPUs"] = group
            spec["malleable"] = self.elastic(group, groups)
        if locality:
            spec["locality"] = locality
        if self.chance(self.taste.spares):
            spec["sparesPerGroup"] = pod * self.random.choice((1, 1, 2))
        if self.chance(self.taste.fillers):
            spec["opportunistic"] = True
            spec.pop("sparesPerGroup", None)
        spec.update(self.runtime())
        spec.update(self.funding(total))
        return spec

    def elastic(self, group: int, groups: int) -> dict[str, Any]:
        low = self.random.randint(1, groups)
        step = group * self.random.choice((1, 1, 2))
        high = group * low + step * self.random.randint(0, 3)
        while high < group * groups or (group * groups - group * low) % step:
            if (group * groups - group * low) % step:
                step = group
            high = max(high, group * low)
            high += step
        grid = list(range(group * low, high + 1, step))
        return {
            "minTotalGPUs": group * low, "maxTotalGPUs": high, "stepGPUs": step,
            "desiredTotalGPUs": self.random.choice(grid),
        }  # fmt: skip

    def runtime(self) -> dict[str, Any]:
        runtime: dict[str, Any] = {}
        if self.chance(self.taste.limits):
            runtime["maxDuration"] = self.random.choice(("10m", "20m", "30m", "1h", "2h", "3h"))
        if self.chance(self.taste.checkpoints):
            runtime["checkpoint"] = self.random.choice(("5m", "10m", "30m", "90m"))
        if self.chance(self.taste.failing * 2):
            runtime["retries"] = self.random.choice((1, 1, 2))
        if self.chance(self.taste.slow):
            runtime["gracePeriod"] = self.random.choice(("10s", "1m", "2m", "5m"))
        return {"runtime": runtime} if runtime else {}

    def funding(self, total: int) -> dict[str, Any]:
        if not self.chance(self.taste.lending):
            return {}
        sponsors = self.random.sample(self.names, self.random.choice((1, 1, 2)))
        funding: dict[str, Any] = {"allowBorrow": True, "sponsors": sponsors}
        if self.chance(30):
            funding["maxBorrowGPUs"] = self.random.randint(1, total)
        return {"funding": funding}

    def work(self, spec: dict[str, Any]) -> Any:
        settles = "malleable" in spec or "sparesPerGroup" in spec
        stops = (
            self.random.choice(("5s", "30s", "1m", "10m")) if self.chance(self.taste.slow) else ""
        )
        works = []
        for _ in range(self.random.choice((1, 1, 2))):
            work: dict[str, Any] = {}
            if self.chance(self.taste.lasting):
                work["lasts"] = self.random.choice(("5m", "10m", "20m", "30m", "1h", "2h", "4h"))
                if self.chance(self.taste.failing) and not settles:
                    work["exit"] = 1
            if stops:
                work["stops"] = stops
            works.append(work)
        if not any(works):
            return None
        return works[0] if len(works) == 1 else works

    # Events

    def events(self) -> list[tuple[int, dict[str, Any]]]:
        steps = []
        if not self.taste.events:
            return []
        for _ in range(self.random.randint(0, self.taste.most_events)):
            at = self.random.randint(0, (self.last + 2 * HOUR) // (5 * MINUTE)) * 5 * MINUTE
            step = self.event(self.random.choice(self.taste.events), at)
            if step is not None:
                steps.append((at, step))
        return steps

    def event(self, kind: str, at: int) -> dict[str, Any] | None:
        there = [key for key in sorted(self.runs) if self.submitted[key] <= at]
        node = self.random.choice(self.nodes)
        run = self.random.choice(there)
        spec = self.runs[run]
        match kind:
            case "cancel":
                return {"cancel": run}
            case "restart":
                return {"restart": "controller"}
            case "dead" | "silent" | "ready":
                return {"node": {"name": node, "is": kind}}
            case "cordon" | "uncordon":
                return {"node": {"name": node, "is": f"{kind}ed"}}
            case "delete-node":
                return {"delete": {"node": node}}
            case "foreign":
                return {"foreign": {"node": node, "gpus": self.random.choice((0, 1, 2, 4))}}
            case "binds":
                return {"binds": {"fail": self.random.choice((1, 1, 2, 3, 6))}}
            case "exit" | "stick" | "unstick":
                does = f"exit {self.random.choice((0, 1, 1))}" if kind == "exit" else kind
                return {"pod": {"run": run, "group": 0, "pod": 0, "does": does}}
            case "limit":
                lower = {"runtime": {"maxDuration": self.random.choice(("5m", "10m"))}}
                return {"edit": {"run": run, "spec": lower}}
            case "desired":
                return self.desired(run, spec)
            case "envelope":
                return self.envelope_edit()
            case _:
                return None

    def desired(self, run: str, spec: dict[str, Any]) -> dict[str, Any] | None:
        elastic = spec.get("malleable")
        if elastic is None:
            return None
        low, high, step = (elastic[k] for k in ("minTotalGPUs", "maxTotalGPUs", "stepGPUs"))
        wanted = self.random.choice(list(range(low, high + 1, step)))
        return {"edit": {"run": run, "spec": {"malleable": {"desiredTotalGPUs": wanted}}}}

    def envelope_edit(self) -> dict[str, Any]:
        budget = self.random.choice(sorted(self.budgets))
        envelope = self.random.choice(self.budgets[budget]["envelopes"])
        fields: dict[str, Any] = {"concurrency": self.gpus()}
        if "maxGPUHours" in envelope and self.chance(50):
            fields = {"maxGPUHours": self.random.choice((4, 8, 16, 48, 200))}
        elif "lending" in envelope and self.chance(40):
            fields = {"lending": {"maxConcurrency": self.random.choice((1, 2, 4, 8))}}
        return {"edit": {"envelope": f"{budget}/{envelope['name']}", **fields}}
