"""How quickly a Run of an otherwise idle team starts while another team loads the system."""

import statistics
import time

from tests.apiserver.client import Client
from tests.kubernetes.plane import API, DEADLINE_S, Plane, budget

OWNER, NAMESPACE, FLAVOR = "lab:probe", "other", "PROBE-1"
RUNS = f"/apis/{API}/namespaces/{NAMESPACE}/runs"
PROMISE_S = 2.0
SLOWER = 4  # on a slow machine: this many times the start time on an idle system
REQUESTS = 40  # or the time of this many requests to the API server, whose speed is not ours


class Probe:
    """A team whose Runs need one GPU each, on a node for which no other team has a Budget."""

    def __init__(self, plane: Plane) -> None:
        plane.kubelets.add("probe", flavor=FLAVOR)
        money = budget(OWNER, NAMESPACE)
        money["spec"] = {
            "owner": OWNER,
            "envelopes": [{"name": "e", "flavor": FLAVOR, "concurrency": 8}],
        }
        plane.kubectl.ok("apply", "-f", plane.kubectl.file(money))
        self._connect = plane.cluster.connect
        self._number = 0
        self.quiet = 0.0  # the median on an idle system
        self._asks: list[float] = []  # seconds that requests of the probe took

    def calm(self) -> None:
        """Start one Run to warm up, then measure how long a start takes on an idle system."""
        self.started(1)
        self.quiet = statistics.median(self.started(5))

    def started(self, count: int) -> list[float]:
        """Start `count` Runs; return how many seconds each took from its creation to Running."""
        client = self._connect()
        try:
            return [self.once(client) for _ in range(count)]
        finally:
            client.close()

    def once(self, client: Client) -> float:
        self._number += 1
        path = f"{RUNS}/probe-{self._number}"
        began = time.monotonic()
        made = client.ask("POST", RUNS, _run(f"probe-{self._number}"))
        assert made.status == 201, made.body
        phase = ""
        while phase != "Running":
            assert time.monotonic() - began < DEADLINE_S, f"{path} is {phase or 'not considered'}"
            time.sleep(0.01)
            asked = time.monotonic()
            phase = client.ask("GET", path).json.get("status", {}).get("phase", "")
            self._asks.append(time.monotonic() - asked)
        took = time.monotonic() - began
        client.ask("DELETE", path)
        return took

    def judge(self, took: list[float]) -> str:
        """Assert that the median is within the bound, and return a line for the report."""
        median = statistics.median(took)
        a_request = statistics.median(self._asks)
        bound = max(PROMISE_S, SLOWER * self.quiet, REQUESTS * a_request)
        assert median <= bound, (took, self.quiet, a_request)
        return (
            f"the probe started within {median:.2f} s at the median of {len(took)} "
            f"({max(took):.2f} s at most; {self.quiet:.2f} s while all was quiet)"
        )


def _run(name: str) -> dict[str, object]:
    container = {"name": "main", "image": "none", "command": ["train"]}
    return {
        "apiVersion": API,
        "kind": "Run",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {
            "owner": OWNER,
            "resources": {"gpuType": FLAVOR, "totalGPUs": 1, "gpusPerPod": 1},
            "template": {"spec": {"containers": [container]}},
        },
    }
