"""A secret of the whole control plane, kept by the cluster: made by whoever comes first."""

import base64
import secrets
from contextlib import suppress

import msgspec

from leasehold.adapters.kubernetes.client import Client
from leasehold.core.objects.wire import part, text_at
from leasehold.ports.store import AlreadyExists, NotFound, OutcomeUnknown, Wire

FIELD = "key"
_decode = msgspec.json.Decoder(dict[str, object]).decode


class BadSecret(Exception):  # noqa: N818 - it says what it is
    """It is there, and is not what we keep there; the text says what to do."""


async def kept_secret(client: Client, namespace: str, name: str, *, size: int) -> bytes:
    """So many bytes, always the same."""
    base, key = f"/api/v1/namespaces/{namespace}/secrets", ("Secret", namespace, name)
    while True:
        try:
            found = _decode(await client.read(f"{base}/{name}", key=key))
        except NotFound:
            made: Wire = {
                "apiVersion": "v1",
                "kind": "Secret",
                "metadata": {"name": name, "namespace": namespace},
                "data": {FIELD: base64.b64encode(secrets.token_bytes(size)).decode()},
            }
            with suppress(AlreadyExists, OutcomeUnknown):  # what is stored counts, whosever it is
                await client.write("POST", base, made, key=key)
            continue
        value = base64.b64decode(text_at(part(found, "data"), FIELD))
        if len(value) != size:
            raise BadSecret(
                f"Secret {namespace}/{name} has no {FIELD} of {size} bytes; restore it from a "
                "backup, or delete it, and what was announced under it is announced again"
            )
        return value
