"""The schemas and the manifest checks know the same fields."""

from collections.abc import Iterator
from copy import deepcopy
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from tests.rest.facade import budget, run

from leasehold.adapters.api.resources import RESOURCES, resource_of
from leasehold.adapters.api.schema_words import OPEN
from leasehold.adapters.api.schemas import schema_of
from leasehold.adapters.http.messages import Request
from leasehold.adapters.http.refusal import RequestRefused
from leasehold.adapters.rest.field_validation import check_fields
from leasehold.adapters.rest.openapi import documents
from leasehold.core.objects.manifests import check_manifest

# The examples of the design, unchanged.
BUDGET = """
apiVersion: rq.davidlangworthy.io/v1
kind: Budget
metadata: {name: vision, namespace: vision}
spec:
  owner: org:ai:mm:vision
  parents: [org:ai:mm]
  namespaces: [vision-batch]
  envelopes:
    - name: west-h100
      flavor: H100-80GB
      selector: {region: us-west, cluster: gpu-a}
      concurrency: 256
      maxGPUHours: 40000
      start: "2026-11-01T00:00:00Z"
      end: "2026-12-01T00:00:00Z"
      sharing: family
      lending: {allow: true, to: ["org:ai:rai:*"], maxConcurrency: 64, maxGPUHours: 5000}
    - {name: east-h100, flavor: H100-80GB, concurrency: 64}
  aggregateCaps:
    - {name: all-h100, flavor: H100-80GB, envelopes: [west-h100, east-h100], maxConcurrency: 300}
"""
RUN = """
apiVersion: rq.davidlangworthy.io/v1
kind: Run
metadata: {name: train-128, namespace: vision}
spec:
  owner: org:ai:mm:vision
  resources: {gpuType: H100-80GB, totalGPUs: 128, gpusPerPod: 8}
  locality:
    groupGPUs: 32
    allowCrossGroupSpread: true
    selector: {region: us-west, cluster: gpu-a, fabric.domain: a}
  gang: Run
  malleable: {minTotalGPUs: 96, maxTotalGPUs: 160, stepGPUs: 32, desiredTotalGPUs: 160}
  sparesPerGroup: 8
  opportunistic: false
  stop: false
  runtime: {maxDuration: 6h, checkpoint: 30m, retries: 2, gracePeriod: 30s, startTimeout: 5m}
  funding: {allowBorrow: true, maxBorrowGPUs: 32, sponsors: ["org:ai:mm:audio"]}
  template:
    metadata: {labels: {a: b}, annotations: {c: d}}
    spec: {containers: [{name: main, image: i, command: [x]}], tolerations: [{key: k}]}
"""
EXAMPLES = [yaml.safe_load(BUDGET), yaml.safe_load(RUN)]


async def _never() -> Any:
    raise AssertionError("nothing is received")


def strict(mode: str = "Strict") -> Request:
    scope = {
        "method": "POST",
        "headers": [],
        "path": "/",
        "raw_path": b"/",
        "query_string": f"fieldValidation={mode}".encode(),
    }
    return Request(scope, _never)


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda each: each["kind"])
def test_examples_pass_manifest_check_and_schema(example: Any) -> None:
    assert check_manifest(example) == []
    check_fields(strict(), resource_of(example["kind"]), deepcopy(example))


def closed_places(value: Any, schema: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the path of every mapping of an example that allows no fields outside the schema."""
    if isinstance(value, list):
        for index, each in enumerate(value):
            yield from closed_places(each, schema["items"], (*path, index))
    elif isinstance(value, dict) and "properties" in schema:
        if not schema.get(OPEN):
            yield path
        for key, each in value.items():
            if key in schema["properties"]:
                yield from closed_places(each, schema["properties"][key], (*path, key))


def described(schema: Any, path: str = "") -> Iterator[str]:
    """Yield the path of every field of a schema."""
    for key, each in schema.get("properties", {}).items():
        yield f"{path}.{key}"
        yield from described(each, f"{path}.{key}")
    if "items" in schema:
        yield from described(schema["items"], path)


def written(value: Any, path: str = "") -> Iterator[str]:
    if isinstance(value, dict):
        for key, each in value.items():
            yield f"{path}.{key}"
            yield from written(each, f"{path}.{key}")
    elif isinstance(value, list):
        for each in value:
            yield from written(each, path)


PLACES = [
    (example, place)
    for example in EXAMPLES
    for place in closed_places(example, schema_of(example["kind"]))
]


@given(where=st.sampled_from(PLACES), name=st.from_regex(r"[a-z][A-Za-z]{3,12}", fullmatch=True))
def test_field_unknown_to_manifest_check_is_unknown_to_schema_too(
    where: tuple[Any, tuple[Any, ...]], name: str
) -> None:
    example, place = where
    spoiled = deepcopy(example)
    holder = spoiled
    for key in place:
        holder = holder[key]
    if name in holder:
        return
    schema_knows = True
    holder[name] = 1
    try:
        check_fields(strict(), resource_of(example["kind"]), deepcopy(spoiled))
    except RequestRefused as refused:
        schema_knows = f'{name}"' not in refused.message
    said = " ".join(problem.remedy for problem in check_manifest(spoiled) if name in problem.path)

    assert schema_knows == ("there is no such field" not in said)


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda each: each["kind"])
def test_examples_use_every_field_of_the_schema(example: Any) -> None:
    """With this, the test above also finds a field that the checks no longer know."""
    fields = {
        path
        for path in described(schema_of(example["kind"])["properties"]["spec"], ".spec")
        if not path.startswith((".spec.template.spec.containers.",))
    }

    assert fields <= set(written(example))


@pytest.mark.parametrize("resource", RESOURCES, ids=lambda each: each.kind)
def test_every_schema_field_has_description(resource: Any) -> None:
    def undescribed(schema: Any, path: str) -> Iterator[str]:
        for key, each in schema.get("properties", {}).items():
            if not each.get("description"):
                yield f"{path}.{key}"
            yield from undescribed(each, f"{path}.{key}")
        if "items" in schema:
            yield from undescribed(schema["items"], f"{path}[]")

    assert list(undescribed(schema_of(resource.kind), resource.kind)) == []


def test_unknown_fields_are_dropped_in_warn_and_ignore_modes() -> None:
    obj = run("r", zork={"a": 1})
    obj["zonk"] = 1
    request = strict("Warn")
    check_fields(request, resource_of("Run"), obj)

    assert obj == run("r")
    assert request.warnings == ['unknown field "spec.zork"', 'unknown field "zonk"']
    listed = budget("b")
    listed["spec"]["envelopes"][0]["zork"] = 1  # type: ignore[index]
    check_fields(strict("Ignore"), resource_of("Budget"), listed)
    assert listed == budget("b")


def test_every_api_group_has_openapi_document() -> None:
    assert set(documents()) == {
        "api/v1",
        "apis/coordination.k8s.io/v1",
        "apis/rq.davidlangworthy.io/v1",
        "query/v1",
    }
