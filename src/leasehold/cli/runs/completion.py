"""Candidates for the word that is being typed, for kubectl's shell completion.

`kubectl_complete-runs` is called with the words so far, the last one unfinished. Candidates for
commands and flags come from the commands themselves. Names of runs, owners, nodes and namespaces
come from the server, which has a second to answer. On any error there are no candidates.
"""

from collections.abc import Callable, Sequence

import click

from leasehold.cli.runs.command import command
from leasehold.cli.runs.output import cell, rows
from leasehold.cli.runs.server import Server, connect

WAIT_S = 1.0


def candidates(typed: Sequence[str]) -> list[str]:
    """Return the candidates for the last of the typed words."""
    given = list(typed[1:] if typed[:1] == ["__complete"] else typed) or [""]
    *before, unfinished = given
    found: click.Command = command
    values: dict[str, str] = {}
    positional: list[str] = []
    wanting: click.Option | None = None
    for word in before:
        if wanting is not None:
            values[str(wanting.name)] = word
            wanting = None
        elif word.startswith("-") and word != "-":
            wanting = _note_flag(found, word, values)
        elif isinstance(found, click.Group):
            found = found.get_command(click.Context(found), word) or found
        else:
            positional.append(word)
    choices = _choices(found, wanting, unfinished, values, positional)
    return sorted({each for each in choices if each.startswith(unfinished)})


def _note_flag(found: click.Command, word: str, values: dict[str, str]) -> click.Option | None:
    """Handle a word that is a flag: note its value in `values` if the word contains one. Return the
    flag's option if the next word will be its value."""
    name, equals, value = word.partition("=")
    for option in _options(found):
        if name in option.opts:
            if equals:
                values[str(option.name)] = value
            return None if option.is_flag or equals else option
    return None


def _options(found: click.Command) -> list[click.Option]:
    return [each for each in found.params if isinstance(each, click.Option)]


def _choices(
    found: click.Command,
    wanting: click.Option | None,
    unfinished: str,
    values: dict[str, str],
    positional: list[str],
) -> list[str]:
    if wanting is not None:
        return _values_of(wanting, values)
    if unfinished.startswith("-"):
        return [name for option in _options(found) for name in option.opts] + ["--help"]
    if isinstance(found, click.Group):
        return found.list_commands(click.Context(found))
    arguments = [each for each in found.params if isinstance(each, click.Argument)]
    if len(positional) >= len(arguments):
        return []
    return _from_server(str(arguments[len(positional)].name), values)


def _values_of(option: click.Option, values: dict[str, str]) -> list[str]:
    if isinstance(option.type, click.Choice):
        return list(map(str, option.type.choices))
    return _from_server(str(option.name), values)


def _from_server(name: str, values: dict[str, str]) -> list[str]:
    ask = _ASK.get(name)
    if ask is None:
        return []
    server = connect(values.get("kubeconfig", ""), values.get("context", ""), timeout_s=WAIT_S)
    try:
        return ask(server, values.get("namespace") or server.context.namespace)
    finally:
        server.close()


def _runs(server: Server, namespace: str) -> list[str]:
    return [cell(row, "name") for row in rows(server.ask("runs", {"namespace": namespace}))]


def _owners(server: Server, _namespace: str) -> list[str]:
    answer = server.ask("budgets", {"form": "usage"})
    return [cell(row, "owner") for row in rows(answer, "owners")]


def _payers(server: Server, _namespace: str) -> list[str]:
    return [cell(row, "envelope") for row in rows(server.ask("budgets", {"form": "usage"}))]


def _nodes(server: Server, _namespace: str) -> list[str]:
    return [cell(row, "metadata.name") for row in rows(server.send("GET", "/api/v1/nodes"))]


def _namespaces(server: Server, _namespace: str) -> list[str]:
    return [cell(row, "metadata.name") for row in rows(server.send("GET", "/api/v1/namespaces"))]


_ASK: dict[str, Callable[[Server, str], list[str]]] = {
    "run": _runs,
    "owner": _owners,
    "payer": _payers,
    "node": _nodes,
    "namespace": _namespaces,
}
