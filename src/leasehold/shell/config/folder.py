"""The data folder of an embedded control plane: where each file is, and who may read it.

`leasehold up` creates the folder. Commands that work on a folder directly (`token`, `ledger`,
`backup`) find their files through this module. Only the folder's owner may enter it.
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
    """The data folder, or a file in it, cannot be used."""


class DataFolder:
    """The paths of the files in a data folder; `prepare` creates the folder."""

    def __init__(self, root: Path) -> None:
        self.root = root.absolute()
        self.store = self.root / "store.sqlite"
        self.archive = self.root / "archive"
        self.tokens = self.root / "tokens.json"
        self.tls = self.root / "tls"
        self.agent = self.root / "agent"
        self.users = self.agent / "users.json"
        # Not in agent/, which may be moved here
        self.restored_users = self.root / "users.json"
        self.config = self.root / "config.yaml"
        self.kubeconfig = self.root / "kubeconfig"
        self.lottery_key = self.root / "lottery.key"

    @property
    def title(self) -> str:
        """Return the folder's name for messages."""
        return str(self.root)

    def loss(self, why: str) -> str:
        """Return the error message for a part of the ledger that is missing, with a remedy."""
        return f"{self.store}: {why}; {remedy_of_damage(self.store)}"

    def misfit(self, bad: BadArchive) -> str:
        """Return the error message for an archive that does not match the store."""
        return str(bad)

    def renew(self) -> None:
        """Do nothing. A subclass that works on a copy of a ledger fetches the copy again here."""

    @property
    def work(self) -> Path:
        """The folder in which jobs start, with a folder per namespace. It is outside the data
        folder, because jobs cannot enter that."""
        return self.root.with_name(f"{self.root.name}.work")

    def prepare(self) -> None:
        """Create the folder; raise `BadFolder` if other users could enter it."""
        try:
            self.root.mkdir(mode=0o700, parents=True, exist_ok=True)
            status = self.root.stat()
        except OSError as error:
            remedy = "name a folder that can be created and written (--data)"
            raise BadFolder(self.root, error.strerror or "cannot be created", remedy) from None
        if status.st_uid != os.geteuid():
            remedy = "start as that user, or name another folder (--data)"
            raise BadFolder(self.root, f"belongs to uid {status.st_uid}", remedy)
        if status.st_mode & 0o077:
            remedy = f"chmod 700 {self.root}"
            raise BadFolder(self.root, "can be entered by other users than its owner", remedy)

    def check_store(self) -> None:
        """Raise `BadFolder` if the folder was used before but has no store: starting with an empty
        store would lose the ledger."""
        files = (self.store, self.store.with_name(f"{self.store.name}-wal"))
        has_store = any(file.exists() and file.stat().st_size for file in files)
        if self.is_used and not has_store:
            remedy = "restore a backup (leasehold restore), or start with an empty folder (--data)"
            why = "is missing or empty, although this folder was used before"
            raise BadFolder(self.store, why, remedy)

    @property
    def is_used(self) -> bool:
        """Whether a server has started with this folder before."""
        return self.kubeconfig.exists()

    @property
    def lacks_key(self) -> bool:
        """Whether the lottery key is lost. Draws that were announced under it can then not be
        proven."""
        return self.is_used and not self.lottery_key.exists()

    def key(self) -> bytes:
        """Return the secret from which lottery nonces are derived; create it if it is missing. If
        the old secret was lost, earlier announcements are made again under the new one
        (`control.reannounce`)."""
        try:
            found = self.lottery_key.read_bytes()
        except FileNotFoundError:
            found = secrets.token_bytes(KEY_BYTES)
            write_private(self.lottery_key, found)
        except OSError as error:
            raise BadFolder(
                self.lottery_key, str(error.strerror), "check its permissions"
            ) from None
        if len(found) != KEY_BYTES:
            remedy = (
                "restore the file from a backup, because announced commitments depend on it; or "
                "remove it, and leasehold announces them again"
            )
            raise BadFolder(self.lottery_key, f"has {len(found)} bytes, not {KEY_BYTES}", remedy)
        return found
