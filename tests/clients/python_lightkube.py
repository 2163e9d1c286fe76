"""`lightkube`: typed models for core kinds, generic resources for ours."""

from itertools import islice
from pathlib import Path
from typing import Any

import lightkube
from lightkube.config.kubeconfig import KubeConfig
from lightkube.core.exceptions import ApiError
from lightkube.generic_resource import create_global_resource, create_namespaced_resource
from lightkube.resources import coordination_v1, core_v1
from tests.clients.rows import NAMESPACE, Refused, Wire

from leasehold.adapters.api.resources import Resource


class Lightkube:
    def __init__(self, kubeconfig: Path) -> None:
        config = KubeConfig.from_file(kubeconfig)
        self._client = lightkube.Client(config=config, namespace=NAMESPACE)

    def names(self, resource: Resource) -> list[str]:
        call = self._client.list
        return self._asked(lambda: [_name(each) for each in call(_class(resource))])

    def watch(self, resource: Resource) -> list[str]:
        """Read one event per existing object, because the watch has no end."""
        known = len(self.names(resource))
        events = self._client.watch(_class(resource), server_timeout=2)
        try:
            return self._asked(lambda: [_name(obj) for _, obj in islice(events, known)])
        finally:
            events.close()

    def create(self, resource: Resource, obj: Wire) -> None:
        made = _class(resource).from_dict(obj)
        self._asked(lambda: self._client.create(made))

    def patch(self, resource: Resource, name: str, patch: Wire) -> None:
        from lightkube.types import PatchType

        kind = PatchType.MERGE if resource.is_ours else PatchType.STRATEGIC
        self._asked(lambda: self._client.patch(_class(resource), name, patch, patch_type=kind))

    def delete(self, resource: Resource, name: str) -> None:
        self._asked(lambda: self._client.delete(_class(resource), name))

    def close(self) -> None:
        pass

    def _asked(self, call: Any) -> Any:
        try:
            return call()
        except ApiError as error:
            raise Refused(int(error.status.code or 0)) from None


def _class(resource: Resource) -> Any:
    if not resource.is_ours:
        module = coordination_v1 if resource.group else core_v1
        return getattr(module, resource.served_kind)
    make = create_namespaced_resource if resource.is_namespaced else create_global_resource
    return make(resource.group, resource.version, resource.kind, resource.plural)


def _name(found: Any) -> str:
    return str(found.metadata.name)
