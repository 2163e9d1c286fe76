"""How a namespace's quotas are read before a Run is considered, and from where."""

from aiohttp import web
from tests.kubernetes.scripted import Scripted

from leasehold.adapters.kubernetes.store import KubernetesStore
from leasehold.core.names import Wire
from leasehold.ports.store import Invalid, StoreError
from leasehold.ports.trial import Trial, TriedPod

POD: Wire = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "train-0", "namespace": "team"},
    "spec": {"containers": [{"name": "main", "image": "none"}]},
}
GANG = Trial(pod=POD, count=2, gpus=16, gpu_resource="nvidia.com/gpu")


def _server_with_quota(known: str, really: str) -> Scripted:
    """Return a server whose cache has the quota `known` while etcd has the quota `really`."""

    async def reply(request: web.Request) -> web.StreamResponse:
        if not request.path.endswith("/resourcequotas"):
            return web.json_response(POD, status=201)
        most = known if request.query.get("resourceVersion") == "0" else really
        spec = {"hard": {"requests.nvidia.com/gpu": most}}
        return web.json_response({"items": [{"metadata": {"name": "q"}, "spec": spec}]})

    return Scripted([reply])


def _rehearse(server: Scripted) -> TriedPod | StoreError:
    async def story(store: KubernetesStore) -> TriedPod | StoreError:
        [found] = await store.rehearse([GANG])
        return found

    return server.tell(story)


def test_run_within_cached_quota_needs_no_read_from_etcd() -> None:
    server = _server_with_quota(known="16", really="16")
    assert isinstance(_rehearse(server), TriedPod)
    [asked] = [each for each in server.heard if each.path.endswith("/resourcequotas")]
    assert asked.query["resourceVersion"] == "0"


def test_run_within_just_raised_quota_is_accepted() -> None:
    assert isinstance(_rehearse(_server_with_quota(known="8", really="16")), TriedPod)


def test_gang_larger_than_quota_is_refused() -> None:
    refused = _rehearse(_server_with_quota(known="8", really="8"))
    assert isinstance(refused, Invalid)
    assert "the ResourceQuota q of its namespace allows 8" in str(refused.problems)
