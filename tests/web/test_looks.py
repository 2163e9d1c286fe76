"""Messages with links: known names become links, and an attacker's text stays text."""

import pytest

from leasehold.web.templating import linked

ADDRESSES = {"vision/train": "/ui/runs/vision/train", "h-01": "/ui/nodes/h-01"}


@pytest.mark.parametrize(
    ("sentence", "found"),
    [
        ("It is on h-01.", 'It is on <a href="/ui/nodes/h-01">h-01</a>.'),
        ("h-01", '<a href="/ui/nodes/h-01">h-01</a>'),
        ("vision/train: cut", '<a href="/ui/runs/vision/train">vision/train</a>: cut'),
        ("h-011 and xh-01", "h-011 and xh-01"),
        ("<script>alert(1)</script>", "&lt;script&gt;alert(1)&lt;/script&gt;"),
        ("<h-01>", '&lt;<a href="/ui/nodes/h-01">h-01</a>&gt;'),
        ('"h-01" onload=x', '&#34;<a href="/ui/nodes/h-01">h-01</a>&#34; onload=x'),
        ("", ""),
    ],
)
def test_only_known_names_become_links(sentence: str, found: str) -> None:
    assert linked(sentence, ADDRESSES) == found


def test_address_of_a_link_is_escaped() -> None:
    assert linked("a", {"a": '"><script>'}) == '<a href="&#34;&gt;&lt;script&gt;">a</a>'
