"""A group of commands, each of which is imported only when it is named, so that commands start
fast.
"""

import os
import sys
from importlib import import_module

import click


class LazyGroup(click.Group):
    """A group that imports a command only when it is named.

    `members`: for each command, its module (or `module:attribute`) and its help text. The default
    attribute is `command`.
    """

    def __init__(
        self, *args: object, members: dict[str, tuple[str, str]], **kwargs: object
    ) -> None:
        super().__init__(*args, **kwargs)  # type: ignore[arg-type]
        self._members = members

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - as click has it
        return sorted(self._members)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        if cmd_name not in self._members:
            return None
        module, _, name = self._members[cmd_name][0].partition(":")
        found = getattr(import_module(module), name or "command")
        assert isinstance(found, click.Command), f"{module} has no {name or 'command'}"
        return found

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        with formatter.section("Commands"):
            formatter.write_dl([(name, self._members[name][1]) for name in sorted(self._members)])

    def invoke(self, ctx: click.Context) -> object:
        try:
            found: object = super().invoke(ctx)
            sys.stdout.flush()  # flush here, where a full disk can still be reported
        except BrokenPipeError:
            raise  # the reader has seen enough; click ends quietly
        except OSError as error:
            if sys.stdout is sys.__stdout__:
                _drop_output()
            raise click.ClickException(f"cannot write the answer: {error.strerror}") from None
        return found


def _drop_output() -> None:
    """Redirect standard output to nowhere, after a write to it has failed. Otherwise Python would
    flush it at exit, fail again, and replace our message and exit status with its own."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.close(nowhere)
