"""Plain HTTP to one of the two servers, with a bearer token and JSON; answers are unchanged."""

import http.client
import json
import ssl
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

DEADLINE_S = 30


@dataclass(frozen=True)
class Answer:
    status: int
    headers: Mapping[str, str]
    body: bytes
    warnings: tuple[str, ...]

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class Watch:
    def __init__(self, response: http.client.HTTPResponse) -> None:
        self._response = response

    def take(self, count: int) -> list[Any]:
        """Return `count` events, or fewer if the watch ends; on an error return its Status."""
        if self._response.status != 200:
            return [json.loads(self._response.read())]
        events: list[Any] = []
        while len(events) < count and (line := self._response.readline()):
            events.append(json.loads(line))
        return events


class Client:
    """A client with one kept connection, and a separate one for each watch."""

    def __init__(self, port: int, ca: str, tokens: Mapping[str, str]) -> None:
        self._port = port
        self._context = ssl.create_default_context(cadata=ca)
        self._tokens = tokens
        self._kept = self._connection()

    def close(self) -> None:
        self._kept.close()

    def ask(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        who: str = "system",
        headers: Mapping[str, str] | None = None,
        query: Mapping[str, str] | None = None,
    ) -> Answer:
        """Send one request. An empty `who` sends no token; a body that is not bytes is sent as
        JSON."""
        response = self._send(self._kept, method, path, body, who, headers or {}, query or {})
        found = {name.lower(): value for name, value in response.getheaders()}
        warnings = tuple(response.headers.get_all("warning") or ())
        return Answer(response.status, found, response.read(), warnings)

    @contextmanager
    def watch(self, path: str, query: Mapping[str, str]) -> Iterator["Watch"]:
        with closing(self._connection()) as connection:
            asked = {"watch": "true", **query}
            accept = {"Accept": asked.pop("accept", "application/json")}
            yield Watch(self._send(connection, "GET", path, None, "system", accept, asked))

    def _connection(self) -> http.client.HTTPSConnection:
        return http.client.HTTPSConnection(
            "127.0.0.1", self._port, context=self._context, timeout=DEADLINE_S
        )

    def _send(
        self,
        connection: http.client.HTTPSConnection,
        method: str,
        path: str,
        body: object,
        who: str,
        headers: Mapping[str, str],
        query: Mapping[str, str],
    ) -> http.client.HTTPResponse:
        sent = dict(headers)
        if who:
            sent.setdefault("Authorization", f"Bearer {self._tokens.get(who, who)}")
        if body is not None and not isinstance(body, bytes):
            body = json.dumps(body).encode()
            sent.setdefault("Content-Type", "application/json")
        url = f"{path}?{urlencode(query)}" if query else path
        for is_last in (False, True):  # a server may close a connection that it kept
            try:
                connection.request(method, url, body=body, headers=sent)
                return connection.getresponse()
            except OSError as error:
                connection.close()
                is_old = isinstance(error, (ConnectionError, ssl.SSLEOFError))
                if is_last or not is_old:
                    raise
        raise AssertionError("unreachable")
