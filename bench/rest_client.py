"""A lean HTTP client for load: keep-alive TLS connections that send prepared requests.

Used by `bench.embedded` in a process of its own, so that its CPU time is not counted as the
server's. It reads only answers with a Content-Length.
"""

import asyncio
import base64
import json
import ssl
import sys
import time
from pathlib import Path
from urllib.parse import urlsplit

import yaml

RUNS = "/apis/rq.davidlangworthy.io/v1/namespaces/{namespace}/runs"


class Target:
    def __init__(self, kubeconfig: Path) -> None:
        config = yaml.safe_load(kubeconfig.read_text())
        cluster = config["clusters"][0]["cluster"]
        url = urlsplit(cluster["server"])
        self.host, self.port = str(url.hostname), int(url.port or 443)
        self.token = str(config["users"][0]["user"]["token"])
        ca = base64.b64decode(cluster["certificate-authority-data"]).decode()
        self.tls = ssl.create_default_context(cadata=ca)

    def post(self, path: str, obj: object) -> bytes:
        body = json.dumps(obj).encode()
        head = (
            f"POST {path} HTTP/1.1\r\nHost: {self.host}:{self.port}\r\n"
            f"Authorization: Bearer {self.token}\r\nContent-Type: application/json\r\n"
            f"Accept: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        return head.encode() + body


async def send_all(target: Target, requests: list[bytes], clients: int) -> float:
    """Send all requests over `clients` connections; return the seconds that this took. The time to
    connect does not count."""
    waiting = iter(requests)
    pairs = [
        await asyncio.open_connection(target.host, target.port, ssl=target.tls)
        for _ in range(clients)
    ]

    async def work(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for request in waiting:
            writer.write(request)
            status = await _answer(reader)
            assert status == 201, status

    started = time.perf_counter()
    await asyncio.gather(*(work(*pair) for pair in pairs))
    took = time.perf_counter() - started
    for _, writer in pairs:
        writer.close()
    return took


async def _answer(reader: asyncio.StreamReader) -> int:
    head = await reader.readuntil(b"\r\n\r\n")
    lines = head.split(b"\r\n")
    length = 0
    for line in lines[1:]:
        name, _, value = line.partition(b":")
        if name.lower() == b"content-length":
            length = int(value)
    await reader.readexactly(length)
    return int(lines[0].split()[1])


def run(name: str, *, namespace: str, owner: str, command: list[str]) -> dict[str, object]:
    container = {"name": "main", "image": "none", "command": command}
    return {
        "apiVersion": "rq.davidlangworthy.io/v1",
        "kind": "Run",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "owner": owner,
            "resources": {"gpuType": "virtual", "totalGPUs": 1, "gpusPerPod": 1},
            "template": {"spec": {"containers": [container]}},
        },
    }


def main() -> None:
    """Run `python -m bench.rest_client KUBECONFIG NAMESPACE OWNER PREFIX COUNT CLIENTS COMMAND…`:
    submit Runs and print the seconds."""
    kubeconfig, namespace, owner, prefix, count, clients, *command = sys.argv[1:]
    target = Target(Path(kubeconfig))
    path = RUNS.format(namespace=namespace)
    requests = [
        target.post(path, run(f"{prefix}{i}", namespace=namespace, owner=owner, command=command))
        for i in range(int(count))
    ]
    print(asyncio.run(send_all(target, requests, int(clients))))


if __name__ == "__main__":
    main()
