"""The templates, and the functions that they may call. Everything is escaped except our own
markup."""

import re
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import quote, urlencode

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape

from leasehold.web import formats
from leasehold.web.pages.view import MENU

HERE = Path(__file__).parent
# Names within a sentence; a trailing full stop or colon belongs to the sentence.
_WORD = re.compile(r"[A-Za-z0-9](?:[-A-Za-z0-9_.:/]*[A-Za-z0-9])?")


def environment() -> Environment:
    found = Environment(
        loader=FileSystemLoader(HERE / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        auto_reload=False,  # keep one version while another is being installed
        trim_blocks=True,
        lstrip_blocks=True,
    )
    found.filters.update(
        clock=formats.clock,
        date_and_clock=formats.date_and_clock,
        span=formats.span,
        short=formats.short,
        grouped=formats.grouped,
        linked=linked,
        anchor=formats.anchor,
        segment=lambda text: quote(text, safe=""),
        query=lambda pairs: urlencode({key: value for key, value in pairs.items() if value}),
    )
    found.globals.update(run_path=formats.run_path, plural=formats.plural, menu=MENU)
    return found


def linked(sentence: str, addresses: Mapping[str, str]) -> Markup:
    """Return the sentence with each name in `addresses` as a link; the other text is escaped."""
    found, at = Markup(), 0
    for word in _WORD.finditer(sentence):
        address = addresses.get(word.group())
        if address is not None:
            found += escape(sentence[at : word.start()])
            found += Markup('<a href="{}">{}</a>').format(address, word.group())
            at = word.end()
    return found + escape(sentence[at:])


def changed(filters: Mapping[str, str], **given: str) -> str:
    """Return the filters as a query string, with some of them replaced."""
    return urlencode({key: value for key, value in {**filters, **given}.items() if value})
