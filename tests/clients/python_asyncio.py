"""`kubernetes_asyncio`: the same interfaces, each call awaited."""

import asyncio
from pathlib import Path
from typing import Any

from kubernetes_asyncio import client, config, watch
from kubernetes_asyncio.client.exceptions import ApiException
from tests.clients.rows import NAMESPACE, Refused, Wire

from leasehold.adapters.api.resources import Resource

WATCH_S = 2  # usually ends earlier: after one event per existing object


class KubernetesAsyncio:
    """A client that uses a new event loop and connection for each call; speed does not matter."""

    def __init__(self, kubeconfig: Path) -> None:
        self._kubeconfig = kubeconfig

    def names(self, resource: Resource) -> list[str]:
        found = self._asked("list", resource)
        items = found["items"] if isinstance(found, dict) else found.items
        return [_name(each) for each in items]

    def watch(self, resource: Resource) -> list[str]:
        there = len(self.names(resource))

        async def watched(api: Any) -> list[str]:
            call, *args = _called(api, "list", resource)
            names = list[str]()
            async with watch.Watch().stream(call, *args, timeout_seconds=WATCH_S) as events:
                async for event in events:
                    names.append(_name(event["object"]))
                    if len(names) >= there:
                        break
            return names

        found = asyncio.run(self._with(watched))
        assert isinstance(found, list)
        return found

    def create(self, resource: Resource, obj: Wire) -> None:
        self._asked("create", resource, obj)

    def patch(self, resource: Resource, name: str, patch: Wire) -> None:
        self._asked("patch", resource, name, patch)

    def delete(self, resource: Resource, name: str) -> None:
        self._asked("delete", resource, name)

    def close(self) -> None:
        pass

    def _asked(self, verb: str, resource: Resource, *args: Any) -> Any:
        async def ask(api: Any) -> Any:
            call, *where = _called(api, verb, resource)
            named = args[:1] if verb in ("patch", "delete") else ()
            rest = args[len(named) :]
            if resource.is_ours:
                # For custom objects the library would send a mapping as a JSON patch.
                how = {"_content_type": "application/merge-patch+json"} if verb == "patch" else {}
                return await call(*where, *named, *rest, **how)
            return await call(*named, *where, *rest)

        return asyncio.run(self._with(ask))

    async def _with(self, work: Any) -> Any:
        configuration = client.Configuration()
        await config.load_kube_config(str(self._kubeconfig), client_configuration=configuration)
        async with client.ApiClient(configuration) as api:
            try:
                return await work(api)
            except ApiException as error:
                raise Refused(int(error.status)) from None


def _called(api: Any, verb: str, resource: Resource) -> tuple[Any, ...]:
    where = (NAMESPACE,) if resource.is_namespaced else ()
    if resource.is_ours:
        scope = "namespaced" if resource.is_namespaced else "cluster"
        call = getattr(client.CustomObjectsApi(api), f"{verb}_{scope}_custom_object")
        return call, resource.group, resource.version, *where, resource.plural
    scope = "namespaced_" if resource.is_namespaced else ""
    of_group = client.CoordinationV1Api(api) if resource.group else client.CoreV1Api(api)
    return getattr(of_group, f"{verb}_{scope}{resource.singular}"), *where


def _name(found: Any) -> str:
    name = found["metadata"]["name"] if isinstance(found, dict) else found.metadata.name
    return str(name)
