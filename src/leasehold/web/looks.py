"""Templates, and the few functions that they may use. Everything is escaped unless it is ours."""

from collections.abc import Mapping
from pathlib import Path
from urllib.parse import quote, urlencode

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from leasehold.web import words
from leasehold.web.pages.look import MENU

HERE = Path(__file__).parent


def environment() -> Environment:
    found = Environment(
        loader=FileSystemLoader(HERE / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        auto_reload=False,  # one server is one version, also while another is being installed
        trim_blocks=True,
        lstrip_blocks=True,
    )
    found.filters.update(
        clock=words.clock,
        date_and_clock=words.date_and_clock,
        span=words.span,
        short=words.short,
        grouped=words.grouped,
        segment=lambda text: quote(text, safe=""),
        query=lambda pairs: urlencode({key: value for key, value in pairs.items() if value}),
    )
    found.globals.update(run_path=words.run_path, plural=words.plural, menu=MENU)
    return found


def changed(filters: Mapping[str, str], **given: str) -> str:
    """The address's filters with some of them other."""
    return urlencode({key: value for key, value in {**filters, **given}.items() if value})
