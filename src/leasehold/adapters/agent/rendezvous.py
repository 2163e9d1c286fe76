"""Rendezvous addresses of a gang whose nodes are all on one host: loopback with a port of its own.

Called by `agent` for every start. The controller writes the rendezvous address into a pod's
environment: a node name and a port that follows from the slot, or a name made for the run. Here all
nodes share the ports of one machine. So each such address is replaced by `127.0.0.1` and a free
port, the same for every pod of the gang, even one started later. The pods' requests record the
ports, so that they survive a restart of the agent. A port is released when its last pod is gone.
"""

import socket
from collections.abc import Callable, Iterable
from itertools import islice

from leasehold.adapters.agent.limits import CannotStart

HOST = "127.0.0.1"
PORT_FIRST, PORT_LAST = 20_000, 28_999  # below the ports that hosts assign themselves
TRIES = 64  # a job may occupy the whole range, and each probe takes time
KERNEL_TRIES = 16

Place = tuple[str, str, str]  # (run uid, attempt or "" for all attempts, host:port)
_PAIRS = (("MASTER_ADDR", "MASTER_PORT"), ("PET_MASTER_ADDR", "PET_MASTER_PORT"))
_ENDPOINT = "PET_RDZV_ENDPOINT"


class Rendezvous:
    def __init__(
        self,
        *,
        is_free: Callable[[int], bool] | None = None,
        choose: Callable[[], int | None] | None = None,
    ) -> None:
        self._is_free = is_free or _can_bind
        self._choose = choose or _of_the_kernel
        self._ports: dict[Place, int] = {}
        self._taken: set[int] = set()
        self._pods: dict[Place, set[str]] = {}
        self._places: dict[str, list[Place]] = {}  # by pod
        self._next = PORT_FIRST

    def translate(
        self, env: dict[str, str], *, pod: str, run: str, attempt: str, hosts: Iterable[str]
    ) -> tuple[dict[str, str], list[tuple[Place, int]]]:
        """Return the variables to change, and the ports that the pod's request must record.

        `MASTER_ADDR` and `PET_MASTER_ADDR` are changed, with their ports, if the host is in
        `hosts`, the names of this machine's nodes. `PET_RDZV_ENDPOINT` is changed if its host is in
        `hosts`, or is a name other than `localhost` and this machine's own. Every other value was
        set by the user and is kept."""
        changed: dict[str, str] = {}
        used: dict[Place, int] = {}
        known = set(hosts)
        for host_name, port_name in _PAIRS:
            host, port = env.get(host_name, ""), env.get(port_name, "")
            if host in known and port:
                place = (run, attempt, f"{host}:{port}")
                used[place] = self._port(place, pod)
                changed |= {host_name: HOST, port_name: str(used[place])}
        host = env.get(_ENDPOINT, "").rpartition(":")[0]
        if host and (host in known or not _is_resolved(host)):
            place = (run, "", env[_ENDPOINT])
            used[place] = self._port(place, pod)
            changed[_ENDPOINT] = f"{HOST}:{used[place]}"
        return changed, list(used.items())

    def remember(self, pod: str, places: Iterable[tuple[Place, int]]) -> None:
        """Restore the ports that a pod got when it was started by an earlier agent."""
        for place, port in places:
            self._take(place, port)
            self._come(place, pod)

    def leave(self, pod: str) -> None:
        for place in self._places.pop(pod, ()):
            self._pods[place].discard(pod)
            if not self._pods[place]:
                del self._pods[place]
                self._taken.discard(self._ports.pop(place))

    def _port(self, place: Place, pod: str) -> int:
        if place not in self._ports:
            self._take(place, self._free_port())
        self._come(place, pod)
        return self._ports[place]

    def _take(self, place: Place, port: int) -> None:
        self._taken.discard(self._ports.get(place, port))
        self._ports[place] = port
        self._taken.add(port)

    def _come(self, place: Place, pod: str) -> None:
        there = self._pods.setdefault(place, set())
        if pod not in there:
            there.add(pod)
            self._places.setdefault(pod, []).append(place)

    def _free_port(self) -> int:
        count = PORT_LAST - PORT_FIRST + 1
        # Search onward from the last port, so that late connections do not meet a new gang.
        first = self._next - PORT_FIRST
        onward = (PORT_FIRST + (first + step) % count for step in range(count))
        for port in islice((port for port in onward if port not in self._taken), TRIES):
            self._next = port + 1
            if self._is_free(port):
                return port
        for _ in range(KERNEL_TRIES):
            chosen = self._choose()
            if chosen is not None and chosen not in self._taken:
                return chosen
        raise CannotStart(
            f"no port is free on {HOST} for the rendezvous of its pods; stop the programs that "
            f"listen on ports {PORT_FIRST} to {PORT_LAST} (ss -ltnp shows them), or wait until "
            "other runs have ended"
        )


def _is_resolved(host: str) -> bool:
    """Return whether the host is an address, `localhost` or this machine's name. Only users write
    such hosts; the controller writes other names."""
    return host in ("localhost", socket.gethostname()) or host.replace(".", "").isdigit()


def _of_the_kernel() -> int | None:
    with socket.socket() as probe:
        try:
            probe.bind((HOST, 0))
        except OSError:
            return None
        port: int = probe.getsockname()[1]
    return port


def _can_bind(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
    return True
