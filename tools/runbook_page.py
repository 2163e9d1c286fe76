"""Writes the runbook of the dashboard from the operator's guide.

    python tools/runbook_page.py [--check]

The dashboard has its own copy because an operator with an alert has no time to search, and may not
be able to reach the documentation. `make docs` and a test call it with --check. It then writes
nothing, and fails if the page is stale.
"""

import re
import sys
from pathlib import Path

from markdown_it import MarkdownIt
from markdown_it.token import Token

from leasehold.web.formats import anchor

ROOT = Path(__file__).resolve().parents[1]
GUIDE = ROOT / "docs" / "operator-guide" / "runbook.md"
PAGE = ROOT / "src" / "leasehold" / "web" / "templates" / "runbook_text.html"


def made() -> str:
    reader = MarkdownIt("commonmark", {"html": False}).enable("table")
    tokens = reader.parse(GUIDE.read_text(encoding="utf-8"))
    for at, token in enumerate(tokens):
        if token.type == "heading_open":
            token.attrSet("id", anchor(tokens[at + 1].content))
        for child in token.children or ():
            _stay_here(child, token.children or [])
    text = str(reader.renderer.render(tokens, reader.options, {}))
    assert not {"{%", "{{", "{#"} & set(re.findall(r"{.", text)), "no template of its own"
    return text


def _stay_here(token: Token, siblings: list[Token]) -> None:
    """Turn a link that leads out of the runbook into plain text: its target does not exist in the
    dashboard."""
    if token.type == "link_open" and not str(token.attrGet("href")).startswith("#"):
        token.tag = "span"
        token.attrs = {}
        # Not `index`: a changed link is equal to another changed link of the same paragraph.
        at = next(place for place, each in enumerate(siblings) if each is token)
        close = next(each for each in siblings[at:] if each.type == "link_close")
        close.tag = "span"


def main() -> int:
    text = made()
    if "--check" in sys.argv:
        if not PAGE.exists() or PAGE.read_text(encoding="utf-8") != text:
            print("the dashboard's runbook is stale; run tools/runbook_page.py")
            return 1
        return 0
    PAGE.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
