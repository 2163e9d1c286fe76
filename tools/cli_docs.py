"""Writes docs/cli.md from the commands themselves: `python tools/cli_docs.py [--check]`.

`make docs` and a test call it with --check. It then writes nothing, and fails if the file differs
from the help of the commands. The text depends on the commands alone: not on the terminal, the user
or the machine.
"""

import sys
from collections.abc import Iterator
from pathlib import Path

import click

from leasehold.cli.main import main as leasehold
from leasehold.cli.runs.command import command as runs

PAGE = Path(__file__).resolve().parents[1] / "docs" / "cli.md"
COMMON = {"--namespace", "--output", "--context", "--kubeconfig", "--request-timeout"}
_BEGINNING = """\
# Commands

<!-- Made by tools/cli_docs.py from the commands; edit their help instead, and run it again. -->

`leasehold` works on this machine: it starts a control plane, and reads a data folder or files.
`kubectl runs` (the same as `leasehold runs`) talks to the server that the kubeconfig names.

Errors are one sentence on standard error. Exit status 0 means success, 1 a failure or a
disagreement that was found, 2 a command that was not understood.
"""
_COMMON_SAYS = """\
## Common options of `kubectl runs`

Every command of `kubectl runs`, and `leasehold fence` and `leasehold drain`, have these as well.
`-o json` is stable. Names of runs are `NAME` in the chosen namespace, or `NAMESPACE/NAME`.
"""


def page() -> str:
    """Return the text of docs/cli.md."""
    parts = [_BEGINNING]
    parts += _commands(leasehold, "leasehold", skip=("runs",))
    parts.append(_COMMON_SAYS)
    some = runs.get_command(click.Context(runs), "list")
    assert some is not None
    parts.append(_table(option for option in _options(some) if _is_common(option)))
    parts += _commands(runs, "kubectl runs", skip=())
    return "\n".join(parts)


def _commands(group: click.Group, path: str, *, skip: tuple[str, ...]) -> Iterator[str]:
    """Yield a section for every command of the group, in order of its name. A command that only
    contains other commands has no section."""
    context = click.Context(group, info_name=path)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None, name
        if name in skip:
            continue
        if isinstance(command, click.Group):
            yield from _commands(command, f"{path} {name}", skip=())
        else:
            yield _section(command, f"{path} {name}")


def _section(command: click.Command, path: str) -> str:
    context = click.Context(command, info_name=path)
    usage = " ".join([path, *command.collect_usage_pieces(context)])
    says = [" ".join(each.split()) for each in (command.help or "").split("\n\n")]
    mine = [
        option
        for option in _options(command)
        if not (_is_common(option) and _has_all_common(command))
    ]
    lines = [f"## `{path}`", "", "```text", usage, "```", "", *_spaced(says)]
    return "\n".join([*lines, _table(mine)]) if mine else "\n".join(lines)


def _spaced(paragraphs: list[str]) -> Iterator[str]:
    for each in paragraphs:
        yield each
        yield ""


def _options(command: click.Command) -> list[click.Option]:
    return [each for each in command.params if isinstance(each, click.Option) and not each.hidden]


def _is_common(option: click.Option) -> bool:
    return bool(COMMON & set(option.opts))


def _has_all_common(command: click.Command) -> bool:
    """Return whether the command has all the common options. A command without some of them may
    have an option of its own under such a name, and that option must be listed."""
    return {name for option in _options(command) for name in option.opts} >= COMMON


def _table(options: Iterator[click.Option] | list[click.Option]) -> str:
    rows = ["| option | |", "|---|---|"]
    for option in options:
        context = click.Context(click.Command("none"))
        record = option.get_help_record(context)
        assert record is not None, option.name
        flags, says = (each.replace("|", "\\|").replace("\n", " ") for each in record)
        said = " ".join(says.replace("  [", " [").split())
        rows.append(f"| `{flags}` | {said} |")
    return "\n".join([*rows, ""])


def main(arguments: list[str]) -> int:
    text = page()
    if arguments == ["--check"]:
        stored = PAGE.read_text(encoding="utf-8") if PAGE.exists() else ""
        if stored != text:
            print(
                "docs/cli.md is not what the commands say; run python tools/cli_docs.py",
                file=sys.stderr,
            )
            return 1
        return 0
    if arguments:
        print("usage: python tools/cli_docs.py [--check]", file=sys.stderr)
        return 2
    PAGE.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
