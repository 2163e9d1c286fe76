"""The OpenAPI document of the query API: each question and the schema of its answer.

Generated from the answer records (`control.questions.answers`), so it always matches the answers.
"""

import msgspec

from leasehold.control.questions.answers import ANSWERS
from leasehold.control.questions.parameters import PARAMETERS, WITH_BODY
from leasehold.core.names import Wire

PLACE = "query/v1"
_REFERENCE = "#/components/schemas/{name}"
_HEAD: Wire = {
    "question": {"type": "string", "description": "The question."},
    "now": {"type": "string", "format": "date-time", "description": "The time of this answer."},
}


def query_document() -> Wire:
    kinds = [kind for found in ANSWERS.values() for kind in found]
    _, components = msgspec.json.schema_components(kinds, ref_template=_REFERENCE)
    return {
        "openapi": "3.0.0",
        "info": {"title": "leasehold", "version": "v1"},
        "paths": {f"/{PLACE}/{question}": _path(question) for question in ANSWERS},
        "components": {"schemas": {name: _of_3_0(each) for name, each in components.items()}},
    }


def _path(question: str) -> Wire:
    kinds: list[Wire] = [
        {"$ref": _REFERENCE.format(name=kind.__name__)} for kind in ANSWERS[question]
    ]
    answer: Wire = kinds[0] if len(kinds) == 1 else {"oneOf": kinds}
    head: Wire = {"type": "object", "properties": _HEAD, "required": list(_HEAD)}
    schema: Wire = {"allOf": [head, answer]}
    operation: Wire = {
        "description": f"the question {question}",
        "parameters": [
            {"name": name, "in": "query", "schema": {"type": "string"}}
            for name in PARAMETERS[question]
        ],
        "responses": {
            "200": {"description": "OK", "content": {"application/json": {"schema": schema}}}
        },
    }
    manifest: Wire = {"content": {"application/json": {"schema": {"type": "object"}}}}
    of_manifest: Wire = {**operation, "requestBody": manifest}
    if question not in WITH_BODY:
        return {"get": operation}
    return {"get": operation, "post": of_manifest}


def _of_3_0(value: object) -> object:
    """Convert a schema to OpenAPI 3.0. That version has no type null; it marks a value as
    `nullable`."""
    if isinstance(value, list):
        return [_of_3_0(each) for each in value]
    if not isinstance(value, dict):
        return value
    options = value.get("anyOf")
    if isinstance(options, list) and {"type": "null"} in options:
        kept = [_of_3_0(each) for each in options if each != {"type": "null"}]
        rest = {key: _of_3_0(each) for key, each in value.items() if key != "anyOf"}
        only = kept[0]
        if len(kept) == 1 and isinstance(only, dict) and "$ref" not in only:
            return {**rest, **only, "nullable": True}
        return {**rest, "allOf" if len(kept) == 1 else "anyOf": kept, "nullable": True}
    return {key: _of_3_0(each) for key, each in value.items()}
