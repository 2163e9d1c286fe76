"""Makes control characters in users' text visible, so that a terminal does not interpret them.

Used by every command that prints text for people. A job's message or an owner's name may contain
anything: escapes that clear the screen, a line break with a forged line, or marks that reverse the
text direction. JSON, YAML and logs of pods are data and stay unchanged.
"""

import click


def visible(text: str) -> str:
    r"""Return the text on one line, with escapes such as `\x1b` and `\n` for unprintable
    characters."""
    if text.isprintable():
        return text
    return "".join(
        each if each.isprintable() else each.encode("unicode_escape").decode() for each in text
    )


def say(text: str, *, err: bool = False) -> None:
    """Print one line of text; characters that cannot be printed are shown as escape sequences."""
    click.echo(visible(text), err=err)
