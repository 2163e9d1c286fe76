"""What is asked of a namespace's quotas before a Run is considered, and how long that may take."""

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


def _says(known: str, really: str) -> Scripted:
    """A server that has heard of one quota, and would find the other if it asked etcd."""

    async def reply(request: web.Request) -> web.StreamResponse:
        if not request.path.endswith("/resourcequotas"):
            return web.json_response(POD, status=201)
        most = known if request.query.get("resourceVersion") == "0" else really
        spec = {"hard": {"requests.nvidia.com/gpu": most}}
        return web.json_response({"items": [{"metadata": {"name": "q"}, "spec": spec}]})

    return Scripted([reply])


def _rehearsed(server: Scripted) -> TriedPod | StoreError:
    async def story(store: KubernetesStore) -> TriedPod | StoreError:
        [found] = await store.rehearse([GANG])
        return found

    return server.tell(story)


def test_a_run_that_a_quota_holds_waits_for_no_word_of_etcd() -> None:
    server = _says(known="16", really="16")
    assert isinstance(_rehearsed(server), TriedPod)
    [asked] = [each for each in server.heard if each.path.endswith("/resourcequotas")]
    assert asked.query["resourceVersion"] == "0"


def test_a_quota_that_was_raised_a_moment_ago_refuses_nobody() -> None:
    assert isinstance(_rehearsed(_says(known="8", really="16")), TriedPod)


def test_a_gang_that_no_quota_can_hold_is_refused() -> None:
    refused = _rehearsed(_says(known="8", really="8"))
    assert isinstance(refused, Invalid)
    assert "the ResourceQuota q of its namespace allows 8" in str(refused.problems)
