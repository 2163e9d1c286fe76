"""`leasehold ui`: a link that signs a browser in, with the rights of your token."""

from urllib.parse import quote

import click

from leasehold.cli.runs.failure import Failure
from leasehold.cli.runs.options import Session, with_session
from leasehold.core.names import Wire

CODE = "/ui/code"


@click.command("ui")
@with_session(forms=("table", "json"), namespaced=False)
def command(session: Session) -> None:
    """Print a link to the dashboard; it works once, within a quarter of an hour.

    What its visitor may see and for how long is what the token in your kubeconfig may see, until
    that ends.
    """
    answer = session.server.send("POST", CODE, {})
    code, path = answer.get("code"), answer.get("path")
    if not isinstance(code, str) or not isinstance(path, str):
        raise Failure(f"{session.server.context.server} has no dashboard; `leasehold up` serves it")
    link = f"{session.server.context.server.rstrip('/')}{path}?code={quote(code, safe='')}"
    found: Wire = {"link": link}
    session.show(found, lambda _answer, _wide: [link])
