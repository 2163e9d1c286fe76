"""Globs over owner paths, against a slow and obvious matcher."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leasehold.core.objects.owners import (
    default_parents,
    glob_admits,
    is_owner,
    is_owner_glob,
)

OWNERS = st.text(alphabet="ab:", min_size=1, max_size=8)
GLOBS = st.text(alphabet="ab:*", min_size=1, max_size=8)


@given(glob=GLOBS, owner=OWNERS)
def test_glob_admits_the_same_owners_as_a_regular_expression(glob: str, owner: str) -> None:
    expression = "".join(".*" if each == "*" else re.escape(each) for each in glob)

    assert glob_admits(glob, owner) is (re.fullmatch(expression, owner) is not None)


@given(glob=GLOBS, owner=OWNERS)
def test_a_glob_that_admits_an_owner_is_legal(glob: str, owner: str) -> None:
    if is_owner(owner) and glob_admits(glob, owner):
        assert is_owner_glob(glob)


@given(glob=GLOBS)
def test_legal_glob_admits_some_owner(glob: str) -> None:
    if is_owner_glob(glob):
        assert any(glob_admits(glob, glob.replace("*", each)) for each in ("a", ""))


@pytest.mark.parametrize(
    ("owner", "parents"), [("org:ai:mm", ("org:ai",)), ("org:ai", ("org",)), ("org", ())]
)
def test_default_parent_is_the_path_without_its_last_part(
    owner: str, parents: tuple[str, ...]
) -> None:
    assert default_parents(owner) == parents
