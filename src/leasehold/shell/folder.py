"""The data folder of an embedded control plane: what lies where, and who may look at it.

`leasehold up` makes it; the commands that work on a folder directly (`token`, `ledger`, `backup`)
find their files through it. Nobody but its owner may enter it.
"""

import os
import secrets
from pathlib import Path

from leasehold.adapters.private_file import write_private
from leasehold.adapters.sqlite.errors import remedy_of_damage
from leasehold.adapters.unusable import Unusable
from leasehold.shell.archive.segments import BadArchive

KEY_BYTES = 32


class BadFolder(Unusable):
    """The folder, or something in it, cannot be used."""


class DataFolder:
    """Paths only; `prepare` makes what is missing."""

    def __init__(self, root: Path) -> None:
        self.root = root.absolute()
        self.store = self.root / "store.sqlite"
        self.archive = self.root / "archive"
        self.tokens = self.root / "tokens.json"
        self.tls = self.root / "tls"
        self.agent = self.root / "agent"
        self.users = self.agent / "users.json"
        self.restored_users = self.root / "users.json"  # not in agent/: the old one is moved there
        self.config = self.root / "config.yaml"
        self.kubeconfig = self.root / "kubeconfig"
        self.lottery_key = self.root / "lottery.key"

    @property
    def title(self) -> str:
        """What it is called in messages."""
        return str(self.root)

    def loss(self, why: str) -> str:
        """Return the sentence about something of the ledger that is missing, with what to do."""
        return f"{self.store}: {why}; {remedy_of_damage(self.store)}"

    def misfit(self, bad: BadArchive) -> str:
        """Return the sentence about an archive that does not go with the store."""
        return str(bad)

    def renew(self) -> None:
        """Called before it is looked at: a copy of something else is made anew."""

    @property
    def work(self) -> Path:
        """Where jobs start, a folder per namespace; beside the data, which jobs may not enter."""
        return self.root.with_name(f"{self.root.name}.work")

    def prepare(self) -> None:
        """Makes the folder, or refuses one that others could enter."""
        try:
            self.root.mkdir(mode=0o700, parents=True, exist_ok=True)
            status = self.root.stat()
        except OSError as error:
            remedy = "name a folder that can be made and written (--data)"
            raise BadFolder(self.root, error.strerror or "cannot be made", remedy) from None
        if status.st_uid != os.geteuid():
            remedy = "start as that user, or name another folder (--data)"
            raise BadFolder(self.root, f"belongs to uid {status.st_uid}", remedy)
        if status.st_mode & 0o077:
            remedy = f"chmod 700 {self.root}"
            raise BadFolder(self.root, "may be entered by others than its owner", remedy)

    def check_store(self) -> None:
        """A folder that was used has a store: to begin with a new one would be to lose the old."""
        files = (self.store, self.store.with_name(f"{self.store.name}-wal"))
        has_store = any(file.exists() and file.stat().st_size for file in files)
        if self.is_used and not has_store:
            remedy = "restore it (leasehold restore), or begin anew in another folder (--data)"
            why = "is missing or empty, although this folder was used before"
            raise BadFolder(self.store, why, remedy)

    @property
    def is_used(self) -> bool:
        """Whether a server began with it before."""
        return self.kubeconfig.exists()

    @property
    def lacks_key(self) -> bool:
        """Whether what was announced before can be proved by nobody any more."""
        return self.is_used and not self.lottery_key.exists()

    def key(self) -> bytes:
        """The secret from which the lottery's nonces are derived; made once. One that was lost is
        made anew, and what was announced under it is announced again (`control.reannounce`)."""
        try:
            found = self.lottery_key.read_bytes()
        except FileNotFoundError:
            found = secrets.token_bytes(KEY_BYTES)
            write_private(self.lottery_key, found)
        except OSError as error:
            raise BadFolder(self.lottery_key, str(error.strerror), "check its rights") from None
        if len(found) != KEY_BYTES:
            remedy = (
                "restore it from a backup: commitments that were announced depend on it; or remove "
                "it, and they are announced anew"
            )
            raise BadFolder(self.lottery_key, f"has {len(found)} bytes, not {KEY_BYTES}", remedy)
        return found
