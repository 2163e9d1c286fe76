"""Answers match the OpenAPI document: every field with its type, and no other field."""

import pytest
from tests.questions.played import Played
from tests.questions.test_documented import ASKED
from tests.questions.test_the_past import STORY

from leasehold.adapters.rest.query_document import query_document
from leasehold.control.questions.answers import ANSWERS
from leasehold.control.questions.parameters import PARAMETERS
from leasehold.shell.queries.query import QUESTIONS

DOCUMENT = query_document()
TYPES: dict[str, type | tuple[type, ...]] = {
    "string": str, "integer": int, "boolean": bool, "array": list, "object": dict,
}  # fmt: skip


def schema_at(reference: object) -> dict[str, object]:
    components = DOCUMENT["components"]
    assert isinstance(components, dict)
    return components["schemas"][str(reference).rpartition("/")[2]]  # type: ignore[no-any-return]


def differences(value: object, schema: dict[str, object], path: str) -> list[str]:
    """Return the differences, for the few keywords of JSON Schema that the document uses."""
    if value is None:
        return [] if schema.get("nullable") else [f"{path} is null"]
    if "$ref" in schema:
        return differences(value, schema_at(schema["$ref"]), path)
    for word in ("anyOf", "allOf"):
        options = schema.get(word)
        if isinstance(options, list):
            found = [differences(value, each, path) for each in options]
            return [] if [] in found else found[0]
    if "enum" in schema:
        return [] if value in schema["enum"] else [f"{path} is none of them"]  # type: ignore[operator]
    wanted = TYPES[str(schema["type"])]
    if not isinstance(value, wanted) or (wanted is int and isinstance(value, bool)):
        return [f"{path} is no {schema['type']}"]
    if isinstance(value, list):
        items = schema["items"]
        assert isinstance(items, dict)
        return [each for member in value for each in differences(member, items, f"{path}[]")]
    if isinstance(value, dict):
        return _of_object(value, schema, path)
    return []


def _of_object(value: dict[str, object], schema: dict[str, object], path: str) -> list[str]:
    known, needed = schema["properties"], schema.get("required", [])
    assert isinstance(known, dict)
    assert isinstance(needed, list)
    found = [f"{path}.{key} is missing" for key in needed if key not in value]
    for key, each in value.items():
        if key in known:
            found += differences(each, known[key], f"{path}.{key}")
        else:
            found.append(f"{path}.{key} is not in the document")
    return found


def test_every_question_has_answer_and_parameter_records() -> None:
    assert sorted(ANSWERS) == list(QUESTIONS)
    assert sorted(PARAMETERS) == list(QUESTIONS)


@pytest.mark.parametrize("question", QUESTIONS)
def test_answer_of_each_question_matches_its_schema(question: str) -> None:
    played = Played(STORY)
    for params in ASKED.get(question, [{}]):
        answer = played.ask(question, **params)
        assert (answer.pop("question"), isinstance(answer.pop("now"), str)) == (question, True)
        found = [
            differences(answer, schema_at(kind.__name__), question) for kind in ANSWERS[question]
        ]
        assert [] in found, found[0]


def test_document_uses_nullable_and_no_null_type() -> None:
    assert "null" not in str(DOCUMENT).replace("nullable", "")
