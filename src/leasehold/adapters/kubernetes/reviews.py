"""Checks a user's rights with Kubernetes' authorizer; answers are cached for ten seconds."""

import asyncio

import msgspec

from leasehold.adapters.kubernetes.client import Client
from leasehold.adapters.kubernetes.front_proxy import ProxiedUser
from leasehold.core.names import GROUP, Wire
from leasehold.core.objects.access import Caller, CallerRole
from leasehold.core.objects.wire import part
from leasehold.core.units import SECOND, Millis
from leasehold.core.world.world import World
from leasehold.ports.runtime import Clock

REVIEWS = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
LASTS: Millis = 10 * SECOND
KNOWN_MAX = 10_000
_decode = msgspec.json.Decoder(dict[str, object]).decode
_Asked = tuple[ProxiedUser, str, str, str, str]  # (asker, verb, resource, namespace, name)


class Reviews:
    def __init__(self, client: Client, clock: Clock) -> None:
        self._client = client
        self._clock = clock
        self._known: dict[_Asked, tuple[bool, Millis]] = {}

    async def caller(
        self, asker: ProxiedUser, world: World, *, namespace: str = "", owner: str = ""
    ) -> Caller:
        """Return the caller with everything that the asker may see.

        An asker that may list Runs in all namespaces sees everything; any other asker sees the
        namespaces whose Runs it may read. `namespace` is the namespace named in the question.
        `owner` is the owner whose budget a manifest in that namespace would spend."""
        if await self._may(asker, "list", "runs", "", ""):
            return Caller(user=asker.user, role=CallerRole.ADMIN)
        spends = False
        if owner and namespace:
            spends = await self._may(asker, "spend", "owners", namespace, owner)
        asked = sorted(_namespaces(world) | ({namespace} if namespace else set()))
        answers = await asyncio.gather(
            *(self._may(asker, "get", "runs", each, "") for each in asked)
        )
        seen = tuple(each for each, is_seen in zip(asked, answers, strict=True) if is_seen)
        return Caller(user=asker.user, namespaces=seen, spend=(owner,) if spends else ())

    async def may(self, asker: ProxiedUser, verb: str, resource: str) -> bool:
        """Return whether the asker may use the verb on every object of this resource of ours."""
        return await self._may(asker, verb, resource, "", "")

    async def _may(
        self, asker: ProxiedUser, verb: str, resource: str, namespace: str, name: str
    ) -> bool:
        asked, now = (asker, verb, resource, namespace, name), self._clock.monotonic()
        known = self._known.get(asked)
        if known is not None and now - known[1] < LASTS:
            return known[0]
        attributes = {
            "group": GROUP,
            "resource": resource,
            "verb": verb,
            "namespace": namespace,
            "name": name,
        }
        review: Wire = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SubjectAccessReview",
            "spec": {
                "user": asker.user,
                "groups": list(asker.groups),
                "resourceAttributes": attributes,
            },
        }
        answer = _decode(await self._client.write("POST", REVIEWS, review))
        is_allowed = part(answer, "status").get("allowed") is True
        if len(self._known) >= KNOWN_MAX:
            self._known.clear()
        self._known[asked] = (is_allowed, now)
        return is_allowed


def _namespaces(world: World) -> set[str]:
    """Return every namespace that an answer about this World may name."""
    found = {run.namespace for run in world.runs.values()}
    found |= {budget.namespace for budget in world.budgets.values()}
    found |= {lease.namespace for lease in world.leases.values()}
    return found - {""}
