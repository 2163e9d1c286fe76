"""Who runs what: the Unix user of each namespace.

Made by the composition root, asked by `agent` for every start. Started as root, a namespace has a
configured user or a uid of its own out of a private range, which it keeps (a file remembers it), so
that two namespaces cannot touch each other's files and processes. Started as a user there is one
user for all. No job runs as root.
"""

import json
import os
import pwd
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from leasehold.adapters.agent.limits import AgentError, CannotStart
from leasehold.adapters.private_file import write_private

PRIVATE_FIRST = 2_000_000_000  # no distribution gives these out, nor do container runtimes
PRIVATE_FIRST_SMALL = 61_184  # systemd's range for services, where high numbers are not mapped
PRIVATE_COUNT = 4_000
ROOT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


@dataclass(frozen=True, slots=True)
class Account:
    """Who a namespace's jobs run as; `uid` None: as whoever runs the agent."""

    uid: int | None
    gid: int
    name: str


class Users:
    def __init__(
        self,
        folder: Path,
        *,
        configured: Mapping[str, str] | None = None,
        private_first: int | None = None,
    ) -> None:
        """`configured`: namespace to user name. Raises `AgentError` when a name cannot be used."""
        self._file = folder / "users.json"
        self._is_root = os.geteuid() == 0
        self._named = {
            namespace: self._look_up(namespace, user)
            for namespace, user in (configured or {}).items()
        }
        self._first = _mapped_first() if private_first is None else private_first
        self._private: dict[str, int] = {}
        if self._is_root and self._file.exists():
            self._private = _remembered(self._file)

    @property
    def trust(self) -> str:
        """For the person who starts it: who is protected from whom."""
        if self._is_root:
            return (
                "Jobs run as Unix users of their namespaces: one namespace cannot read another's "
                "files, nor the data folder. Namespaces share the machine's network and /tmp."
            )
        name = pwd.getpwuid(os.geteuid()).pw_name
        return (
            f"Everything runs as {name}: this is one trust domain. Any job can read all files of "
            f"{name}, also the data folder and its tokens. Start it as root to keep namespaces "
            "apart."
        )

    @property
    def path(self) -> str:
        """The search path of jobs. Who runs jobs as themselves expects their own commands."""
        return ROOT_PATH if self._is_root else os.environ.get("PATH", ROOT_PATH)

    def account(self, namespace: str) -> Account:
        if not self._is_root:
            me = pwd.getpwuid(os.geteuid())
            return Account(uid=None, gid=me.pw_gid, name=me.pw_name)
        known = self._named.get(namespace)
        if known is not None:
            return known
        uid = self._private.get(namespace)
        if uid is None:
            uid = self._give_out(namespace)
        return Account(uid=uid, gid=uid, name=namespace)

    def home(self, work: Path, namespace: str) -> Path:
        """The namespace's folder, made if it is not there; it stays when its runs are over."""
        account = self.account(namespace)
        home = work / namespace
        try:
            there = home.lstat()
        except FileNotFoundError:
            home.mkdir(mode=0o700)
            there = home.lstat()
        if stat.S_ISLNK(there.st_mode):
            raise CannotStart(f"{home} is a link; jobs of {namespace} need a folder there")
        if not stat.S_ISDIR(there.st_mode):
            raise CannotStart(f"{home} is a file; jobs of {namespace} need a folder there")
        if account.uid is not None and there.st_uid != account.uid:
            os.chown(home, account.uid, account.gid, follow_symlinks=False)
            home.chmod(0o700)
        elif there.st_mode & stat.S_IRWXU != stat.S_IRWXU:
            # A job that shut itself out must not shut out all jobs after it.
            home.chmod(stat.S_IMODE(there.st_mode) | stat.S_IRWXU)
        return home

    def _give_out(self, namespace: str) -> int:
        taken = set(self._private.values()) | {entry.pw_uid for entry in pwd.getpwall()}
        free = range(self._first, self._first + PRIVATE_COUNT)
        uid = next((uid for uid in free if uid not in taken), None)
        if uid is None:
            last = self._first + PRIVATE_COUNT - 1
            raise CannotStart(f"no uid is left for {namespace} among {self._first} to {last}")
        self._private[namespace] = uid
        write_private(self._file, json.dumps(self._private, sort_keys=True).encode())
        return uid

    def _look_up(self, namespace: str, user: str) -> Account:
        if not self._is_root:
            raise AgentError(
                f"namespace {namespace} is to run as {user}, which only root can arrange; "
                "start it as root, or leave the mapping out"
            )
        try:
            entry = pwd.getpwnam(user)
        except KeyError as error:
            raise AgentError(
                f"namespace {namespace} is to run as {user}, and there is no such user; "
                "make the user, or map the namespace to another"
            ) from error
        if entry.pw_uid == 0:
            raise AgentError(
                f"namespace {namespace} is to run as {user}, which is root; map it to another user"
            )
        return Account(uid=entry.pw_uid, gid=entry.pw_gid, name=user)


def _remembered(file: Path) -> dict[str, int]:
    """Which uid each namespace has. Another one would lock a namespace out of its own files."""
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
    except ValueError:
        found = None
    if not isinstance(found, dict) or not all(
        type(uid) is int and uid > 0 for uid in found.values()
    ):
        raise AgentError(
            f"{file} does not say which uid each namespace has; restore it from a backup, or write "
            '{"namespace": uid} with the owners of the folders under the work folder'
        )
    return found


def _mapped_first() -> int:
    """In a user namespace of a container only some numbers exist."""
    try:
        lines = Path("/proc/self/uid_map").read_text(encoding="ascii").splitlines()
    except OSError:
        return PRIVATE_FIRST
    spans = [(int(inside), int(count)) for inside, _, count in (line.split() for line in lines)]
    last = PRIVATE_FIRST + PRIVATE_COUNT
    if any(first <= PRIVATE_FIRST and last <= first + count for first, count in spans):
        return PRIVATE_FIRST
    return PRIVATE_FIRST_SMALL
