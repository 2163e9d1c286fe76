"""`leasehold ui`: print a link that signs a browser in, with the rights of the caller's token."""

from urllib.parse import quote

import click

from leasehold.app.failure import Failure
from leasehold.cli.runs.options import Session, with_session
from leasehold.core.names import Wire

CODE = "/ui/code"


@click.command("ui")
@click.option(
    "--here", is_flag=True, help="Serve the dashboard on this machine, for a server that has none."
)
@click.option("--port", type=click.IntRange(0, 65535), default=0, show_default="a free one",
              help="The port on this machine.")  # fmt: skip
@with_session(forms=("table", "json"), namespaced=False)
def command(session: Session, *, here: bool, port: int) -> None:
    """Print a link to the dashboard; it works once, within a quarter of an hour.

    The link has the rights of the token in your kubeconfig, until that token expires. With --here,
    the command serves the pages on this machine's loopback address until Ctrl-C, and uses your own
    credentials.
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
