"""Creates the sender of notifications that the configuration asks for.

Used by `leasehold up` and by the replicas on a cluster.
"""

from collections.abc import Callable
from pathlib import Path

import click

from leasehold.ports.runtime import Clock, Tasks
from leasehold.shell.config.config import Config
from leasehold.shell.observe.notifications import Notifications, channels_of

SECRET_BYTES_MIN = 16


def notifications_of(
    config: Config, clock: Clock, tasks: Tasks, *, count: Callable[[str], None]
) -> Notifications:
    """Return the sender of notifications, with the webhooks and commands of the configuration.
    `count` is called with the outcome of each message. If the secret that signs webhooks is missing
    or too short, the command ends with an error."""
    embedding = config.embedding
    if embedding.webhooks and not embedding.notify_secret:
        raise click.ClickException(
            "notify.webhooks need a secret to sign messages; name its file with notify.secretFile"
        )
    secret = _read_secret(Path(embedding.notify_secret)) if embedding.notify_secret else b""
    return Notifications(
        channels_of(dict(embedding.webhooks), dict(embedding.commands), secret),
        clock,
        tasks,
        events=embedding.notify_events,
        count=count,
    )


def _read_secret(path: Path) -> bytes:
    try:
        secret = path.read_bytes().strip()
    except OSError as error:
        raise click.ClickException(f"notify.secretFile {path}: {error.strerror}") from None
    if len(secret) < SECRET_BYTES_MIN:
        raise click.ClickException(
            f"notify.secretFile {path}: the secret is too short; write at least "
            f"{SECRET_BYTES_MIN} bytes into it, such as `openssl rand -hex 32` prints"
        )
    return secret
