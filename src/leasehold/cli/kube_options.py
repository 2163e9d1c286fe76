"""Options of commands that talk to a Kubernetes API server, and the messages for its errors."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

import click

from leasehold.adapters.kubeconfig.read import BadKubeconfig, KubeContext, load_context
from leasehold.adapters.kubernetes.trust import in_cluster, is_in_cluster

F = TypeVar("F", bound=Callable[..., object])


def kube_options(command: F) -> F:
    """Add `--kubeconfig` and `--context` to a command."""
    command = click.option("--context", default="", help="The context of the kubeconfig to use.")(
        command
    )
    return click.option(
        "--kubeconfig",
        default="",
        help="The kubeconfig file.  [default: $KUBECONFIG, ~/.kube/config, or the service "
        "account of this pod]",
    )(command)


def loader(kubeconfig: str, context: str) -> Callable[[], KubeContext]:
    """Return a function that reads server and credentials from the kubeconfig. The client calls it
    again when the server refuses the credentials."""
    if not kubeconfig and not context and is_in_cluster():
        return in_cluster
    return lambda: load_context(kubeconfig, context)


@contextmanager
def kube_sentences() -> Iterator[None]:
    try:
        yield
    except BadKubeconfig as bad:
        raise click.ClickException(str(bad)) from None
