"""Objects that cases send: those of the facade's tests, in the namespace of the case."""

from typing import Any

from tests.apiserver.talk import Talk
from tests.rest import facade


def run(it: Talk, name: str, *, labels: dict[str, str] | None = None, **spec: object) -> Any:
    made = facade.run(name, **spec)
    made["metadata"] = {"name": name, "namespace": it.namespace}
    if labels:
        made["metadata"]["labels"] = labels
    return made


def budget(it: Talk, name: str, **spec: object) -> Any:
    return {**facade.budget(name, **spec), "metadata": {"name": name, "namespace": it.namespace}}


def pod(it: Talk, name: str, node: str = "") -> Any:
    return facade.pod(name, node, it.namespace)


def node(it: Talk, name: str) -> Any:
    """Return a node named after the case, because it is in no namespace."""
    made: Any = facade.node(f"{it.namespace}-{name}")
    made["metadata"]["labels"]["case"] = it.namespace
    return made


def lease(it: Talk, name: str, node_name: str = "n1") -> Any:
    made: Any = facade.lease(f"{it.namespace}-{name}", node_name)
    made["metadata"]["labels"] = {"case": it.namespace}
    return made
