"""Canonical JSON: one value, one text, in every language."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leasehold.core.ledger.chain import GENESIS, canonical, digest_of, next_digest

texts = st.text(st.characters(exclude_categories=["Cs"]))
values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | texts,
    lambda inner: st.lists(inner) | st.dictionaries(texts, inner),
)


@given(values)
def test_canonical_json_equals_output_of_the_standard_library(value: object) -> None:
    text = json.dumps(value, sort_keys=True, ensure_ascii=False, separators=(",", ":"))
    assert canonical(value) == text.encode()


def test_canonical_json_sorts_keys_by_code_point_not_by_utf_16() -> None:
    assert canonical({"\U00010000": 1, "\uffff": 2}) == '{"\uffff":2,"\U00010000":1}'.encode()


@pytest.mark.parametrize("value", [1.0, [0.5], {"a": {"b": 1e3}}, {"a": b"x"}, {1: 2}, {"a": {1}}])
def test_canonical_json_refuses_floats_and_non_json_values(value: object) -> None:
    with pytest.raises(AssertionError):
        canonical(value)


def test_digests_of_the_first_links_are_fixed() -> None:
    assert GENESIS == "0" * 64
    one = next_digest(GENESIS, canonical({"seq": 1}))
    assert one == "a453da8151216b5ae0a15c5377bc79da35cc4f629a9e9a3dcab70bf0b485609a"
    assert digest_of({}) == "44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a"
