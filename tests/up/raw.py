"""Raw requests to a running server, for requests that no command would send."""

import http.client
import json
import ssl
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from leasehold.adapters.kubeconfig.read import load_context

RUNS = "/apis/rq.davidlangworthy.io/v1/namespaces/team/runs"
BUDGETS = "/apis/rq.davidlangworthy.io/v1/namespaces/team/budgets"
PODS = "/api/v1/namespaces/team/pods"
NODES = "/api/v1/nodes"
MERGE = "application/merge-patch+json"
JSON_PATCH = "application/json-patch+json"
APPLY = "application/apply-patch+yaml"
STRATEGIC = "application/strategic-merge-patch+json"
TIMEOUT_S = 30.0
# An API server answers with one warning header for each unknown field, and hostile manifests have
# hundreds of them.
http.client._MAXHEADERS = 10_000  # type: ignore[attr-defined]


class Raw:
    """One connection that uses the administrator's token."""

    def __init__(self, kubeconfig: Path) -> None:
        target = load_context(str(kubeconfig), "")
        url = urlsplit(target.server)
        assert url.hostname is not None
        context = ssl.create_default_context(cadata=target.ca_data.decode())
        self._headers = {"Authorization": f"Bearer {target.token}"}
        self._connection = http.client.HTTPSConnection(
            url.hostname, url.port, timeout=TIMEOUT_S, context=context
        )

    def ask(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        media: str = "application/json",
        accept: str = "application/json",
    ) -> tuple[int, Any]:
        """Return the status, and the body: decoded if it is JSON, else as text."""
        sent = body if isinstance(body, bytes) else b"" if body is None else encoded(body)
        headers = {**self._headers, "Content-Type": media, "Accept": accept}
        self._connection.request(method, path, sent, headers)
        response = self._connection.getresponse()
        read = response.read()
        try:
            return response.status, json.loads(read)
        except ValueError:
            return response.status, read.decode("utf-8", "replace")

    def close(self) -> None:
        self._connection.close()


def encoded(body: object) -> bytes:
    """Encode as JSON; a lone surrogate becomes an escape."""
    return json.dumps(body).encode()


def causes(answer: Any) -> list[str]:
    """Return the paths that a refusal names."""
    details = answer.get("details") or {}
    return [each["field"] for each in details.get("causes", [])]
