"""The API paths of each kind on a Kubernetes API server.

The table of `api.resources` has our kinds and the core kinds that every store has. Kinds that only
this adapter writes are added here.
"""

from dataclasses import dataclass
from urllib.parse import quote

from leasehold.adapters.api.resources import RESOURCES
from leasehold.adapters.kubernetes import events
from leasehold.core.objects import tenure


@dataclass(frozen=True, slots=True)
class Place:
    """Where the API server has the objects of a kind. `api_version` is written into the objects;
    `base` is the path of their group and version."""

    kind: str
    api_version: str
    plural: str
    is_namespaced: bool
    called: str  # the server's name of the kind, if it differs
    home: str = ""  # the only namespace to read; others contain unrelated objects of the kind

    @property
    def base(self) -> str:
        group = "apis" if "/" in self.api_version else "api"
        return f"/{group}/{self.api_version}"

    def all(self, namespace: str = "") -> str:
        """Return the path of all objects of the kind: those of `namespace`, or without one those of
        all namespaces."""
        namespace = namespace or self.home
        if not namespace or not self.is_namespaced:
            return f"{self.base}/{self.plural}"
        return f"{self.base}/namespaces/{quote(namespace, safe='')}/{self.plural}"

    def one(self, namespace: str, name: str, part: str = "") -> str:
        tail = f"/{part}" if part else ""
        return f"{self.all(namespace)}/{quote(name, safe='')}{tail}"


def place_of(kind: str) -> Place:
    return _PLACES[kind]


# Every node has such a lease in another namespace and renews it every ten seconds.
_HOMES = {tenure.KIND: tenure.NAMESPACE}
_PLACES = {
    each.kind: Place(
        each.kind,
        each.api_version,
        each.plural,
        each.is_namespaced,
        each.served_kind,
        _HOMES.get(each.kind, ""),
    )
    for each in RESOURCES
}
_PLACES["Event"] = Place("Event", events.API_VERSION, "events", is_namespaced=True, called="Event")
