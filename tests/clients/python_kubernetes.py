"""The official Python client, `kubernetes`: typed for core kinds, custom objects for ours."""

from pathlib import Path
from typing import Any

from kubernetes.client.exceptions import ApiException
from tests.clients.rows import NAMESPACE, Refused, Wire

from kubernetes import client, config, watch
from leasehold.adapters.api.resources import Resource

WATCH_S = 2  # usually ends earlier: after one event per existing object


class Kubernetes:
    def __init__(self, kubeconfig: Path) -> None:
        self._api = config.new_client_from_config(str(kubeconfig))
        self._core = client.CoreV1Api(self._api)
        self._coordination = client.CoordinationV1Api(self._api)
        self._custom = client.CustomObjectsApi(self._api)

    def names(self, resource: Resource) -> list[str]:
        found = self._asked(*self._lister(resource))
        items = found["items"] if isinstance(found, dict) else found.items
        return [_name(each) for each in items]

    def watch(self, resource: Resource) -> list[str]:
        there, names = len(self.names(resource)), list[str]()
        call, *args = self._lister(resource)
        watched = watch.Watch()
        for event in watched.stream(call, *args, timeout_seconds=WATCH_S):
            names.append(_name(event["object"]))
            if len(names) >= there:
                watched.stop()
        return names

    def create(self, resource: Resource, obj: Wire) -> None:
        if resource.is_ours:
            self._asked(*self._of_ours("create", resource), obj)
        else:
            self._asked(*self._of_core("create", resource), obj)

    def patch(self, resource: Resource, name: str, patch: Wire) -> None:
        if resource.is_ours:
            self._asked(*self._of_ours("patch", resource), name, patch)
        else:
            call, *where = self._of_core("patch", resource)
            self._asked(call, name, *where, patch)

    def delete(self, resource: Resource, name: str) -> None:
        if resource.is_ours:
            self._asked(*self._of_ours("delete", resource), name)
        else:
            call, *where = self._of_core("delete", resource)
            self._asked(call, name, *where)

    def _lister(self, resource: Resource) -> tuple[Any, ...]:
        return self._of_ours("list", resource) if resource.is_ours else self._of_core(
            "list", resource)  # fmt: skip

    def _of_ours(self, verb: str, resource: Resource) -> tuple[Any, ...]:
        scope = "namespaced" if resource.is_namespaced else "cluster"
        call = getattr(self._custom, f"{verb}_{scope}_custom_object")
        where = [NAMESPACE] if resource.is_namespaced else []
        return call, resource.group, resource.version, *where, resource.plural

    def _of_core(self, verb: str, resource: Resource) -> tuple[Any, ...]:
        kind = resource.singular
        scope = "namespaced_" if resource.is_namespaced else ""
        api = self._coordination if resource.group else self._core
        call = getattr(api, f"{verb}_{scope}{kind}")
        return (call, NAMESPACE) if resource.is_namespaced else (call,)

    def _asked(self, call: Any, *args: Any) -> Any:
        try:
            return call(*args)
        except ApiException as error:
            raise Refused(int(error.status)) from None

    def close(self) -> None:
        self._api.close()


def _name(found: Any) -> str:
    name = found["metadata"]["name"] if isinstance(found, dict) else found.metadata.name
    return str(name)
