"""Manifests from files or standard input, several documents in each, as plain data."""

import sys

from leasehold.cli.runs.failure import Failure
from leasehold.cli.runs.kubeconfig import Wire


def manifests(path: str, namespace: str) -> list[Wire]:
    """Every document; one without a namespace belongs to the chosen one."""
    from leasehold.shell.yamlfile import BadFile, load_documents, parse_documents

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
            raise Failure(f"{path}:{document.line}: write an object with kind and spec")
        metadata = data.get("metadata")
        if isinstance(metadata, dict) and not metadata.get("namespace"):
            data = {**data, "metadata": {**metadata, "namespace": namespace}}
        found.append(data)
    return found


def runs_only(path: str, namespace: str) -> list[Wire]:
    """For commands that are about Runs; other documents of the file are passed over."""
    found = [each for each in manifests(path, namespace) if each.get("kind") == "Run"]
    if not found:
        raise Failure(f"{path}: there is no Run in it")
    return found
