"""`leasehold ui`: print a link that signs a browser in, with the rights of the caller's token."""

from urllib.parse import quote

import click

from leasehold.app.failure import Failure
from leasehold.cli.runs.options import Session, with_session
from leasehold.core.names import Wire

CODE = "/ui/code"


@click.command("ui")
@click.option("--here", is_flag=True, help="Serve it on this machine, for a server without one.")
@click.option("--port", type=click.IntRange(0, 65535), default=0, show_default="a free one",
              help="Where to serve it here.")  # fmt: skip
@with_session(forms=("table", "json"), namespaced=False)
def command(session: Session, *, here: bool, port: int) -> None:
    """Print a link to the dashboard; it works once, within a quarter of an hour.

    What its visitor may see and for how long is what the token in your kubeconfig may see, until
    that ends. With --here the pages are served on this machine's loopback until Ctrl-C, and ask
    the server with your own credentials.
    """
    if here:
        from leasehold.cli.ui_here import serve_here  # a web server, which a link does not need

        serve_here(session.server, port)
        return
    answer = session.server.send("POST", CODE, {})
    code, path = answer.get("code"), answer.get("path")
    if not isinstance(code, str) or not isinstance(path, str):
        raise Failure(f"{session.server.context.server} has no dashboard; use --here")
    link = f"{session.server.context.server.rstrip('/')}{path}?code={quote(code, safe='')}"
    found: Wire = {"link": link}
    session.show(found, lambda _answer, _wide: [link])
