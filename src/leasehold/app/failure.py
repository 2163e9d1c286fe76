"""The error of a command: one sentence and an exit status."""

from collections.abc import Iterable

import click

from leasehold.app.visible import say


class Failure(click.ClickException):
    """An error that a command prints as `error: …` on stderr, without a traceback."""

    def __init__(
        self, message: str, causes: Iterable[tuple[str, str]] = (), status: int = 0
    ) -> None:
        super().__init__(message)
        self.causes = tuple(causes)  # (path, what is wrong there)
        self.status = status  # of the server; 0 if it was not asked

    def show(self, file: object = None) -> None:  # noqa: ARG002 - as click has it
        say(f"error: {self.format_message()}", err=True)
        for path, why in self.causes:
            say(f"  {path}: {why}" if path else f"  {why}", err=True)
