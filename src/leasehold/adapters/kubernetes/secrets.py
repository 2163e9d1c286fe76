"""Secrets of the control plane, stored in the cluster; the first replica creates them."""

import asyncio
import base64
import secrets
from collections.abc import Callable, Mapping
from contextlib import suppress

import msgspec

from leasehold.adapters.kubernetes.client import Client
from leasehold.core.names import Wire
from leasehold.core.objects.wire import part, text_at
from leasehold.ports.store import AlreadyExists, NotFound, OutcomeUnknown, Unavailable

FIELD = "key"
PAUSE_S = 0.2
_decode = msgspec.json.Decoder(dict[str, object]).decode


class BadSecret(Exception):  # noqa: N818 - named for the condition
    """The Secret exists with unexpected content; the message has a remedy."""


async def kept_secret(client: Client, namespace: str, name: str, *, size: int) -> bytes:
    """Return the secret, a key of `size` bytes; create it if it does not exist."""
    fields = await kept_fields(client, namespace, name, lambda: {FIELD: secrets.token_bytes(size)})
    if len(fields.get(FIELD, b"")) != size:
        raise BadSecret(
            f"Secret {namespace}/{name} has no {FIELD} of {size} bytes; restore the Secret from "
            "a backup, or delete it, and leasehold repeats its announcements with a new key"
        )
    return fields[FIELD]


async def kept_fields(
    client: Client, namespace: str, name: str, make: Callable[[], Mapping[str, bytes]]
) -> dict[str, bytes]:
    """Return the fields of the Secret; if it does not exist, create it with the fields that `make`
    returns."""
    base, key = f"/api/v1/namespaces/{namespace}/secrets", ("Secret", namespace, name)
    while True:
        try:
            found = part(_decode(await client.read(f"{base}/{name}", key=key)), "data")
            return {field: base64.b64decode(text_at(found, field)) for field in found}
        except Unavailable:
            await asyncio.sleep(PAUSE_S)
        except NotFound:
            data = {field: base64.b64encode(value).decode() for field, value in make().items()}
            made: Wire = {
                "apiVersion": "v1",
                "kind": "Secret",
                "metadata": {"name": name, "namespace": namespace},
                "data": data,
            }
            # Use what is stored, even if another replica created it.
            with suppress(AlreadyExists, OutcomeUnknown, Unavailable):
                await client.write("POST", base, made, key=key)
