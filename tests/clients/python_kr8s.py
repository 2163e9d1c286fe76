"""`kr8s`: objects that save themselves; classes for our kinds are made from their names."""

from pathlib import Path
from typing import Any

import kr8s
from kr8s.objects import new_class, object_from_spec
from tests.clients.rows import NAMESPACE, Refused, Wire, manifest

from leasehold.adapters.api.resources import RESOURCES, Resource

WATCH_S = 2.0


class Kr8s:
    def __init__(self, kubeconfig: Path) -> None:
        self._api = kr8s.api(kubeconfig=str(kubeconfig), namespace=NAMESPACE)
        self._classes = {
            (each.api_version, each.served_kind): new_class(
                kind=each.served_kind,
                version=each.api_version,
                namespaced=each.is_namespaced,
                plural=each.plural,
                asyncio=False,
            )
            for each in RESOURCES
            if each.group
        }

    def names(self, resource: Resource) -> list[str]:
        return [str(each.name) for each in self._asked(self._get, resource)]

    def _get(self, resource: Resource) -> Any:
        kind = f"{resource.plural}.{resource.api_version}" if resource.group else resource.plural
        namespace = NAMESPACE if resource.is_namespaced else None
        return [*self._api.get(kind, namespace=namespace)]

    def watch(self, resource: Resource) -> list[str]:
        """Watch until there was one event per existing object, because kr8s never ends a watch."""
        names: list[str] = []
        known = len(self.names(resource))
        kind = f"{resource.plural}.{resource.api_version}" if resource.group else resource.plural
        namespace = NAMESPACE if resource.is_namespaced else None
        if known:
            for _, found in self._api.watch(kind, namespace=namespace):
                names.append(str(found.name))
                if len(names) >= known:
                    break
        return names

    def create(self, resource: Resource, obj: Wire) -> None:  # noqa: ARG002 - `obj` has its kind
        self._asked(lambda: self._made(obj).create())

    def patch(self, resource: Resource, name: str, patch: Wire) -> None:
        self._asked(lambda: self._object(resource, name).patch(patch))

    def delete(self, resource: Resource, name: str) -> None:
        self._asked(lambda: self._object(resource, name).delete())

    def close(self) -> None:
        pass

    def _object(self, resource: Resource, name: str) -> Any:
        return self._made(manifest(resource, name))

    def _made(self, obj: Wire) -> Any:
        kind = self._classes.get((str(obj["apiVersion"]), str(obj["kind"])))
        if kind is not None:
            return kind(obj, api=self._api)
        return object_from_spec(obj, api=self._api)

    def _asked(self, call: Any, *args: Any) -> Any:
        try:
            return call(*args)
        except kr8s.ServerError as error:
            status = getattr(error.response, "status_code", 0)
            raise Refused(int(status)) from None
        except kr8s.NotFoundError:
            raise Refused(404) from None
