"""Applies documents to a cluster like `kubectl apply --server-side`, and removes them.

A field that another manager set on one of these objects is kept. A field that we applied before,
and that a document no longer lists, is removed.
"""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress

import msgspec

from leasehold.adapters.kubernetes.client import APPLY, MERGE_PATCH, ApiRequest, Client
from leasehold.adapters.kubernetes.install.roles import QUERY_GROUP
from leasehold.core.names import API_VERSION, LEASE_CLOSED, LEASES_CLOSED, Wire
from leasehold.core.objects.lease import ARCHIVED
from leasehold.core.objects.wire import list_at, part, text_at
from leasehold.ports.store import (
    Conflict,
    Forbidden,
    NotFound,
    OutcomeUnknown,
    StoreError,
    Unavailable,
)

MANAGER = "leasehold"
TRIES, PAUSE_S = 60, 0.5
CRDS = "CustomResourceDefinition"
_decode = msgspec.json.Decoder(dict[str, object]).decode
_encode = msgspec.json.Encoder().encode
# Missing on older servers; leasehold works without them.
OPTIONAL = frozenset({"MutatingAdmissionPolicy", "MutatingAdmissionPolicyBinding"})


class NotApplied(Exception):  # noqa: N818 - named for the condition
    """The server refused a document; the message names the document and has the server's words."""


async def apply_all(
    client: Client, documents: Sequence[Wire], note: Callable[[str], None]
) -> list[str]:
    """Apply the documents in order, then wait until the server accepts Runs. Return the optional
    kinds that the server does not have."""
    kinds = _Kinds(client)
    missing: dict[str, None] = {}
    for document in documents:
        kind, name = text_at(document, "kind"), text_at(part(document, "metadata"), "name")
        path = await kinds.path_of(document)
        if path is None and kind in OPTIONAL:
            missing[kind] = None
            continue
        if path is None:
            raise NotApplied(f"{kind} {name}: this server has no {document['apiVersion']} {kind}")
        await _apply(client, path, document)
        note(f"{kind} {name}")
    for document in documents:
        if document["kind"] == CRDS:
            await _wait_until_established(client, document)
    await _wait_until_taken(client, completed=not missing)
    return list(missing)


class _Kinds:
    """The server's paths by kind, from its discovery API."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._known: dict[str, dict[str, tuple[str, bool]]] = {}

    async def path_of(self, document: Wire) -> str | None:
        version = text_at(document, "apiVersion")
        base = f"/apis/{version}" if "/" in version else f"/api/{version}"
        if base not in self._known:
            self._known[base] = await self._look(base)
        found = self._known[base].get(text_at(document, "kind"))
        if found is None:
            return None
        metadata = part(document, "metadata")
        inside = f"/namespaces/{metadata['namespace']}" if found[1] else ""
        return f"{base}{inside}/{found[0]}/{metadata['name']}"

    async def _look(self, base: str) -> dict[str, tuple[str, bool]]:
        try:
            listed = _decode(await self._client.read(base))
        except NotFound:
            return {}
        except StoreError as error:
            raise NotApplied(f"the API server does not answer: {error}") from error
        return {
            text_at(each, "kind"): (text_at(each, "name"), each.get("namespaced") is True)
            for each in list_at(listed, "resources")
            if isinstance(each, dict) and "/" not in text_at(each, "name")
        }


async def _apply(client: Client, path: str, document: Wire) -> None:
    request = ApiRequest(
        "PATCH",
        path,
        (str(document["kind"]), "", path.rpartition("/")[2]),
        {"fieldManager": MANAGER, "force": "true"},
        _encode(document),
        APPLY,
    )
    for _ in range(TRIES):
        try:
            await client.ask(request)
            return
        except Unavailable:
            await asyncio.sleep(PAUSE_S)
        except StoreError as error:
            notes = " ".join(getattr(error, "__notes__", []))
            raise NotApplied(f"{error} {notes}".strip()) from error
    raise NotApplied(f"{document['kind']} {path}: the API server does not answer")


async def _wait_until_established(client: Client, document: Wire) -> None:
    name = text_at(part(document, "metadata"), "name")
    path = f"/apis/{document['apiVersion']}/customresourcedefinitions/{name}"
    for _ in range(TRIES):
        status = part(_decode(await client.read(path)), "status")
        if {"Established": "True"} in [
            {each.get("type"): each.get("status")}
            for each in list_at(status, "conditions")
            if isinstance(each, dict)
        ]:
            return
        await asyncio.sleep(PAUSE_S)
    raise NotApplied(f"the API server does not serve {name}; see the conditions of the object")


async def _wait_until_taken(client: Client, *, completed: bool) -> None:
    """Wait until the server accepts Runs, which is tried by dry runs.

    If `completed`, wait also until the mutating policy adds our finalizer to a Run. That policy
    takes effect a moment after its creation, and knows the definition of Runs a moment later still.
    Until then, the server refuses every Run."""
    namespace = "default"
    run: Wire = {
        "apiVersion": API_VERSION,
        "kind": "Run",
        "metadata": {"generateName": "tried-", "namespace": namespace},
        "spec": {"owner": "org", "resources": {"gpuType": "any", "totalGPUs": 1}},
    }
    request = ApiRequest(
        "POST",
        f"/apis/{API_VERSION}/namespaces/{namespace}/runs",
        query={"dryRun": "All"},
        data=_encode(run),
    )
    for _ in range(TRIES):
        try:
            made = _decode(await client.ask(request))
            if not completed or LEASES_CLOSED in list_at(part(made, "metadata"), "finalizers"):
                return
        except Forbidden:
            return  # the policies are in force, and the installer may not spend
        except (NotFound, OutcomeUnknown, Unavailable):
            pass  # not yet
        await asyncio.sleep(PAUSE_S)
    raise NotApplied("the API server does not accept Runs yet; try again")


async def remove_all(
    client: Client, documents: Sequence[Wire], note: Callable[[str], None], *, ledger: bool
) -> None:
    """Remove the installed objects in reverse order.

    First remove what would block the removal of others: the API service and our finalizers. The
    definitions and the namespace are removed only if `ledger` is True, because the ledger's objects
    disappear with their definitions."""
    await _delete(client, f"/apis/apiregistration.k8s.io/v1/apiservices/v1.{QUERY_GROUP}", note)
    await _let_go(client, note, _HELD_BY_LEDGER if ledger else ())
    kinds = _Kinds(client)
    kept = () if ledger else (CRDS, "Namespace")
    for document in reversed(documents):
        if document["kind"] in kept:
            continue
        path = await kinds.path_of(document)
        if path is not None:
            await _delete(client, path, note)


async def _delete(client: Client, path: str, note: Callable[[str], None]) -> None:
    try:
        await client.write("DELETE", path, {"propagationPolicy": "Background"})
    except NotFound:
        return
    except StoreError as error:
        notes = " ".join(getattr(error, "__notes__", []))
        raise NotApplied(f"{path}: {error} {notes}".strip()) from error
    kind, name = path.split("/")[-2:]
    note(f"{kind} {name}")


_HELD_BY_LEDGER = tuple(
    (f"/apis/{API_VERSION}", kind, ARCHIVED)
    for kind in ("leases", "ledgerbatches", "ledgercheckpoints", "ledgerheads")
)


async def _let_go(
    client: Client, note: Callable[[str], None], more: Sequence[tuple[str, str, str]]
) -> None:
    """Remove the finalizers that only a running controller would otherwise remove: from Runs, from
    pods, and from the kinds in `more`."""
    for path, kind, ours in (
        (f"/apis/{API_VERSION}", "runs", LEASES_CLOSED),
        ("/api/v1", "pods", LEASE_CLOSED),
        *more,
    ):
        try:
            listed = _decode(await client.read(f"{path}/{kind}"))
        except NotFound:
            continue
        for each in list_at(listed, "items"):
            metadata = part(each, "metadata")
            held = [str(one) for one in list_at(metadata, "finalizers")]
            if ours not in held:
                continue
            namespace, name = text_at(metadata, "namespace"), text_at(metadata, "name")
            others = [one for one in held if one != ours]
            change = {"metadata": {"finalizers": others, "uid": metadata["uid"]}}
            with suppress(NotFound, Conflict):
                where = f"namespaces/{namespace}/{kind}" if namespace else kind
                await client.ask(
                    ApiRequest(
                        "PATCH",
                        f"{path}/{where}/{name}",
                        data=_encode(change),
                        content_type=MERGE_PATCH,
                    )
                )
            if namespace:
                note(f"the hold on {kind.removesuffix('s')} {namespace}/{name}")
