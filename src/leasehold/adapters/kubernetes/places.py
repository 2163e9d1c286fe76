"""Where objects of a kind are found on a Kubernetes API server.

Our own kinds and the few of Kubernetes' that the port speaks of come from the table of `api`; what
only this adapter writes is added here.
"""

from dataclasses import dataclass
from urllib.parse import quote

from leasehold.adapters.api.resources import RESOURCES
from leasehold.adapters.kubernetes import events
from leasehold.core.objects import tenure


@dataclass(frozen=True, slots=True)
class Place:
    """`base` leads to all objects of the kind; `api_version` is what they say of themselves."""

    kind: str
    api_version: str
    plural: str
    is_namespaced: bool
    called: str  # what the server calls the kind, where that is another word
    home: str = ""  # the only namespace that we look into: others have objects of the kind too

    @property
    def base(self) -> str:
        group = "apis" if "/" in self.api_version else "api"
        return f"/{group}/{self.api_version}"

    def all(self, namespace: str = "") -> str:
        """Of every namespace, or of one."""
        namespace = namespace or self.home
        if not namespace or not self.is_namespaced:
            return f"{self.base}/{self.plural}"
        return f"{self.base}/namespaces/{quote(namespace, safe='')}/{self.plural}"

    def one(self, namespace: str, name: str, part: str = "") -> str:
        tail = f"/{part}" if part else ""
        return f"{self.all(namespace)}/{quote(name, safe='')}{tail}"


def place_of(kind: str) -> Place:
    return _PLACES[kind]


# Every node renews such a lease every ten seconds, in a namespace of its own.
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
