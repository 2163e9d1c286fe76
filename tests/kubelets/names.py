"""A DNS server for names of headless Services, `HOST.SERVICE.NAMESPACE.svc.cluster.local`, and for
nothing else. Like a cluster's DNS, it answers from the endpoints that the API server knows.
"""

import socket
import struct
import threading
from collections.abc import Callable
from typing import Any

DOMAIN = ".svc.cluster.local"
_A, _IN = 1, 1
_NO_SUCH_NAME = 3
_TTL_S = 1


class Names:
    """The DNS server. `ask` gets a path of the API server as JSON."""

    def __init__(self, address: str, ask: Callable[[str], Any]) -> None:
        self._ask = ask
        self.asked: list[str] = []
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.bind((address, 53))
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._socket.close()

    def _serve(self) -> None:
        while True:
            try:
                query, sender = self._socket.recvfrom(512)
            except OSError:
                return
            name, kind, end = _question(query)
            self.asked.append(name)
            found = self._addresses(name)
            answer = _answer(query, end, found if kind == _A else [], is_known=bool(found))
            self._socket.sendto(answer, sender)

    def _addresses(self, name: str) -> list[str]:
        parts = name.lower().removesuffix(DOMAIN).split(".")
        if not name.lower().endswith(DOMAIN) or len(parts) != 3:
            return []
        host, service, namespace = parts
        listed = self._ask(
            f"/apis/discovery.k8s.io/v1/namespaces/{namespace}/endpointslices"
            f"?labelSelector=kubernetes.io/service-name={service}"
        )
        found = [
            address
            for each in listed["items"]
            for endpoint in each["endpoints"] or []
            if endpoint.get("hostname") == host
            for address in endpoint["addresses"]
        ]
        return found or self._future_addresses(host, service, namespace)

    def _future_addresses(self, host: str, service: str, namespace: str) -> list[str]:
        """Return the addresses that the endpoints will have.

        The endpoint controller postpones a Service whose slices it has just changed ("informer
        cache is out of date"), sometimes for minutes.
        """
        spec = self._ask(f"/api/v1/namespaces/{namespace}/services/{service}").get("spec", {})
        if spec.get("clusterIP") != "None" or not spec.get("publishNotReadyAddresses"):
            return []
        wanted = ",".join(f"{key}={value}" for key, value in spec["selector"].items())
        pods = self._ask(f"/api/v1/namespaces/{namespace}/pods?labelSelector={wanted}")["items"]
        return [
            pod["status"]["podIP"]
            for pod in pods
            if (pod["spec"].get("hostname"), pod["spec"].get("subdomain")) == (host, service)
            and pod["status"].get("podIP")
        ]


def _question(query: bytes) -> tuple[str, int, int]:
    """Return the name, the type, and the position where the question ends."""
    labels, at = [], 12
    while length := query[at]:
        labels.append(query[at + 1 : at + 1 + length].decode())
        at += 1 + length
    return ".".join(labels), struct.unpack("!H", query[at + 1 : at + 3])[0], at + 5


def _answer(query: bytes, end: int, addresses: list[str], *, is_known: bool) -> bytes:
    flags = 0x8580 | (0 if is_known else _NO_SUCH_NAME)
    head = query[:2] + struct.pack("!HHHHH", flags, 1, len(addresses), 0, 0)
    # Each record refers to the name in the question, by its position in the message.
    records = b"".join(
        b"\xc0\x0c" + struct.pack("!HHIH", _A, _IN, _TTL_S, 4) + socket.inet_aton(each)
        for each in addresses
    )
    return head + query[12:end] + records
