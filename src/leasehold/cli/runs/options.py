"""The flags that all commands of `kubectl runs` have, and the Session made from them.

A Session has the server of the chosen context, the namespace and the output format.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from typing import Concatenate, ParamSpec

import click

from leasehold.app.failure import Failure
from leasehold.cli.runs.output import Render, show
from leasehold.cli.runs.server import TIMEOUT_S, Server, connect
from leasehold.core.names import Wire

P = ParamSpec("P")
_FLAGS = ("namespace", "form", "context", "kubeconfig", "timeout")
FORMS = ("table", "wide", "json", "yaml")


@dataclass
class Session:
    """What every command needs: the server, the namespace and the output format."""

    server: Server
    namespace: str
    form: str
    named_namespace: str = ""  # set by -n; for commands that otherwise cover all namespaces
    reach: Callable[[], Server] | None = None  # reads the kubeconfig again and connects

    def reconnect(self) -> None:
        """Read the kubeconfig again and connect. A server that was restarted may have another port
        and another certificate."""
        if self.reach is not None:
            server = self.reach()
            self.server.close()
            self.server = server

    def run(self, name: str) -> tuple[str, str]:
        """Return namespace and name of a run. `train` is a run in the chosen namespace,
        `vision/train` names another namespace."""
        namespace, slash, rest = name.partition("/")
        found = (namespace, rest) if slash else (self.namespace, name)
        if not all(found) or "/" in found[1]:
            raise Failure(f"{name!r} is not a run name; use NAME or NAMESPACE/NAME")
        return found

    def of_run(self, name: str) -> dict[str, str | None]:
        """Return the parameters by which a query names this run."""
        namespace, run = self.run(name)
        return {"namespace": namespace, "run": run}

    def show(self, answer: Wire, render: Render) -> None:
        show(answer, self.form, render)


def with_session(
    *,
    forms: tuple[str, ...] = FORMS,
    namespaced: bool = True,
    everywhere: bool = False,
    namespace_help: str = "The namespace.  [default: that of the context]",
) -> Callable[[Callable[Concatenate[Session, P], None]], Callable[..., None]]:
    """Return a decorator that adds the common flags to a command and passes it the Session.

    `namespaced`: the command has -n. `everywhere`: without -n the command covers all namespaces,
    and it also has -A.
    """

    def decorate(function: Callable[Concatenate[Session, P], None]) -> Callable[..., None]:
        @click.option(
            "-o",
            "--output",
            "form",
            type=click.Choice(forms),
            default=forms[0],
            show_default=True,
            help="The output format.",
        )
        @click.option("--context", default="", help="The kubeconfig context to use.")
        @click.option("--kubeconfig", default="", help="The kubeconfig file to use.")
        @click.option(
            "--request-timeout",
            "timeout",
            type=click.FloatRange(min=0.01),
            default=TIMEOUT_S,
            show_default=True,
            metavar="SECONDS",
            help="How long to wait for each answer.",
        )
        @wraps(function)
        def inner(*args: P.args, **kwargs: P.kwargs) -> None:
            flags = {name: kwargs.pop(name, "") for name in _FLAGS}
            if everywhere and kwargs.pop("all_namespaces", False):
                flags["namespace"] = ""
            namespace, form, context, kubeconfig = (str(flags[name]) for name in _FLAGS[:4])
            timeout = flags["timeout"]
            assert isinstance(timeout, float), timeout

            def reach() -> Server:
                return connect(kubeconfig, context, timeout_s=timeout)

            server = reach()
            chosen = namespace or server.context.namespace
            session = Session(server, chosen, form, namespace, reach)
            try:
                function(session, *args, **kwargs)
            finally:
                session.server.close()

        if not namespaced:
            return inner
        found = click.option("-n", "--namespace", default="", help=namespace_help)(inner)
        if not everywhere:
            return found
        said = "All namespaces, as without -n."
        return click.option("-A", "--all-namespaces", is_flag=True, help=said)(found)

    return decorate
