"""Reads manifests from files or standard input, as plain data. A file may have several
documents."""

import sys
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import click

from leasehold.app.failure import Failure
from leasehold.core.names import Wire

F = TypeVar("F", bound=Callable[..., Any])


def filename_option(*, required: bool = False) -> Callable[[F], F]:
    """Return a decorator that adds `-f` to a command; the flag may be given several times."""
    return click.option(
        "-f",
        "--filename",
        "filenames",
        multiple=True,
        required=required,
        metavar="FILE",
        help="A file with Runs; - is standard input. May be given several times.",
    )


def manifests(paths: Sequence[str], namespace: str) -> list[Wire]:
    """Return every document of every file. Objects without a namespace get `namespace`."""
    if paths.count("-") > 1:
        raise Failure("standard input can be read only once; name - only once")
    return [each for path in paths for each in _manifests(path, namespace)]


def _manifests(path: str, namespace: str) -> list[Wire]:
    from leasehold.shell.config.yamlfile import BadFile, load_documents, parse_documents

    try:
        if path == "-":
            documents = parse_documents(sys.stdin.buffer.read(), "standard input")
        else:
            documents = load_documents(path)
    except BadFile as bad:
        first, *rest = str(bad).splitlines()
        raise Failure(first, [("", line) for line in rest]) from None
    found = []
    for document in documents:
        data = document.data
        if not isinstance(data, dict):
            raise Failure(f"{path}:{document.line}: use an object with kind and spec")
        metadata = data.get("metadata")
        if isinstance(metadata, dict) and not metadata.get("namespace"):
            data = {**data, "metadata": {**metadata, "namespace": namespace}}
        found.append(data)
    return found


def runs_only(paths: Sequence[str], namespace: str) -> list[Wire]:
    """Return the Runs in the files and leave out other objects. Raise `Failure` if there is no
    Run."""
    found = [each for each in manifests(paths, namespace) if each.get("kind") == "Run"]
    if not found:
        raise Failure(f"{', '.join(paths)} has no Run")
    return found
