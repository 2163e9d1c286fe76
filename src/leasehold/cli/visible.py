"""Text of users on a terminal: control characters are shown, not obeyed.

Used by every command that prints words for people. A job's message or an owner's name may hold
whatever its author liked: escapes that clear the screen, a line break with a forged line after it,
marks that turn the writing around. JSON, YAML and the logs of pods are data, and stay as they are.
"""

import click


def visible(text: str) -> str:
    r"""The same text on one line, with `\x1b` and `\n` for what is no printable character."""
    if text.isprintable():
        return text
    return "".join(
        each if each.isprintable() else each.encode("unicode_escape").decode() for each in text
    )


def say(text: str, *, err: bool = False) -> None:
    """One line."""
    click.echo(visible(text), err=err)
