"""What somebody may see and do, asked of the API server's own authorizer and remembered briefly."""

from collections.abc import Iterable

import msgspec

from leasehold.adapters.kubernetes.client import Client
from leasehold.adapters.kubernetes.front_proxy import Asker
from leasehold.core.names import GROUP, Wire
from leasehold.core.objects.access import Caller, CallerRole
from leasehold.core.objects.wire import part
from leasehold.core.units import SECOND, Millis
from leasehold.ports.runtime import Clock

REVIEWS = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
LASTS: Millis = 10 * SECOND
KNOWN_MAX = 10_000
_decode = msgspec.json.Decoder(dict[str, object]).decode
_Asked = tuple[Asker, str, str, str, str]  # who, verb, resource, namespace, name


class Reviews:
    def __init__(self, client: Client, clock: Clock) -> None:
        self._client = client
        self._clock = clock
        self._known: dict[_Asked, tuple[bool, Millis]] = {}

    async def caller(self, asker: Asker, namespaces: Iterable[str], owner: str) -> Caller:
        """Who reads Runs everywhere sees everything; anybody else sees those of `namespaces` whose
        Runs they may read. `owner` is the one whose money is spoken of, if any."""
        if await self._may(asker, "list", "runs", "", ""):
            return Caller(user=asker.user, role=CallerRole.ADMIN)
        seen = [each for each in namespaces if await self._may(asker, "get", "runs", each, "")]
        spends = owner and seen and await self._may(asker, "spend", "owners", seen[0], owner)
        return Caller(user=asker.user, namespaces=tuple(seen), spend=(owner,) if spends else ())

    async def may(self, asker: Asker, verb: str, resource: str) -> bool:
        """Of all objects of a resource of ours."""
        return await self._may(asker, verb, resource, "", "")

    async def _may(self, asker: Asker, verb: str, resource: str, namespace: str, name: str) -> bool:
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
