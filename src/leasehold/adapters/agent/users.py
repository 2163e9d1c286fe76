"""The Unix user of each namespace.

Created by the composition root, asked by `agent` for every start. If the server runs as root, each
namespace has a configured user, or a uid from a private range. A namespace keeps its uid, so that
namespaces cannot touch each other's files and processes; a file records it, and the namespace's
folder belongs to it. If the server does not run as root, all jobs run as its own user. No job runs
as root.
"""

import json
import os
import pwd
import secrets
import stat
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from shlex import quote

from leasehold.adapters.agent.limits import AgentError, CannotStart
from leasehold.adapters.private_file import write_private

PRIVATE_FIRST = 2_000_000_000  # not used by distributions or container runtimes
PRIVATE_COUNT = 100_000_000
PRIVATE_FIRST_SMALL = 61_184  # systemd's range for services, used where high uids are not mapped
PRIVATE_COUNT_SMALL = 4_000
LOOK_MAX = 1000  # files of a folder to check for other uids
ROOT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


@dataclass(frozen=True, slots=True)
class UserAccount:
    """The user of a namespace's jobs. `uid` None: the agent's own user and groups."""

    uid: int | None
    gid: int
    name: str
    groups: tuple[int, ...] = ()  # supplementary groups; none for a private uid


class Users:
    def __init__(
        self,
        folder: Path,
        *,
        work: Path | None = None,
        restored: Path | None = None,
        configured: Mapping[str, str] | None = None,
        private_first: int | None = None,
    ) -> None:
        """`work`: the folder that contains the folder of each namespace; a namespace gets back the
        uid that owns its folder. `restored`: a list of uids from a backup, used if `folder` has
        none. `configured`: user names by namespace. Raise `AgentError` if a name cannot be used."""
        self._file = folder / "users.json"
        self._work = work
        self._is_root = os.geteuid() == 0
        self._named = {
            namespace: self._look_up(namespace, user)
            for namespace, user in (configured or {}).items()
        }
        self._range = _mapped_range() if private_first is None else _small_range(private_first)
        self._private: dict[str, int] = {}
        if self._is_root:
            if restored is not None and restored.exists() and not self._file.exists():
                folder.mkdir(mode=0o700, parents=True, exist_ok=True)
                restored.rename(self._file)
            if self._file.exists():
                self._private = _remembered(self._file)

    @property
    def trust(self) -> str:
        """The message at start that says which users are protected from each other."""
        if self._is_root:
            return (
                "Jobs run as Unix users of their namespaces: one namespace cannot read another's "
                "files, nor the data folder. Namespaces share the machine's network and /tmp."
            )
        name = pwd.getpwuid(os.geteuid()).pw_name
        return (
            f"Everything runs as {name}: this is one trust domain. Any job can read all files of "
            f"{name}, including the data folder and its tokens. Start leasehold as root to keep "
            "namespaces apart."
        )

    @property
    def path(self) -> str:
        """The search path of jobs; without root, the search path of the server itself."""
        return ROOT_PATH if self._is_root else os.environ.get("PATH", ROOT_PATH)

    def account(self, namespace: str) -> UserAccount:
        if not self._is_root:
            me = pwd.getpwuid(os.geteuid())
            return UserAccount(uid=None, gid=me.pw_gid, name=me.pw_name)
        known = self._named.get(namespace)
        if known is not None:
            return known
        uid = self._private.get(namespace)
        if uid is None:
            uid = self._give_out(namespace)
        return UserAccount(uid=uid, gid=uid, name=namespace)

    def estranged(self) -> list[str]:
        """Return a message for each namespace that has files of an earlier uid, with the command
        that changes their owner. The administrator decides, because the files may be meant to stay
        separate."""
        told: list[str] = []
        if self._work is None:
            return told
        for namespace in sorted({*self._named, *self._private}):
            account, home = self.account(namespace), self._work / namespace
            for uid in sorted(self._others_in(home, namespace, account)):
                told.append(
                    f"{home} has files of uid {uid}, but jobs of {namespace} now run as uid "
                    f"{account.uid} ({account.name}); to transfer the files, run: chown -R "
                    f"--from={uid} {account.uid}:{account.gid} {quote(str(home))}"
                )
        return told

    def _others_in(self, home: Path, namespace: str, account: UserAccount) -> set[int]:
        """Return earlier uids of the namespace that still own files.

        One is the owner of the namespace's folder: after a change of the user, the first job
        changes that owner. The other is the namespace's private uid, if files in the folder still
        belong to it."""
        found: set[int] = set()
        with suppress(OSError):  # not there, or unreadable, which its jobs will report
            there = home.lstat()
            if stat.S_ISDIR(there.st_mode):
                found.add(there.st_uid)
                with os.scandir(home) as entries:
                    looks = [each.stat(follow_symlinks=False) for each in islice(entries, LOOK_MAX)]
                found |= {each.st_uid for each in looks} & {self._private.get(namespace)}
        return found - {account.uid}

    def home(self, work: Path, namespace: str) -> Path:
        """Return the namespace's folder; create it if it is missing. The folder outlives the
        namespace's runs. Files in it keep their owner, even if the namespace has got another user
        since."""
        account = self.account(namespace)
        home = work / namespace
        try:
            there = home.lstat()
        except FileNotFoundError:
            home.mkdir(mode=0o700)
            there = home.lstat()
        if stat.S_ISLNK(there.st_mode):
            raise CannotStart(
                f"{home} is a link; replace it by a folder for the jobs of {namespace}"
            )
        if not stat.S_ISDIR(there.st_mode):
            raise CannotStart(
                f"{home} is a file; replace it by a folder for the jobs of {namespace}"
            )
        if account.uid is not None and there.st_uid != account.uid:
            self._check_nobody_elses(home, there.st_uid, namespace, account)
            os.chown(home, account.uid, account.gid, follow_symlinks=False)
            home.chmod(0o700)
        elif there.st_mode & stat.S_IRWXU != stat.S_IRWXU:
            # A job that removed its own access must not lock out later jobs.
            home.chmod(stat.S_IMODE(there.st_mode) | stat.S_IRWXU)
        return home

    def _check_nobody_elses(
        self, home: Path, uid: int, namespace: str, account: UserAccount
    ) -> None:
        """Raise `CannotStart` if the folder belongs to another namespace, whose files must stay
        private."""
        other = next((name for name, its in self._private.items() if its == uid), namespace)
        if other != namespace:
            raise CannotStart(
                f"{home} belongs to uid {uid}, which is {other}'s; move it away, or give it to "
                f"{namespace}: chown -R {account.uid}:{account.gid} {home}"
            )

    def _give_out(self, namespace: str) -> int:
        owners = self._owners()
        own = owners.pop(namespace, None)
        taken = set(self._private.values()) | {entry.pw_uid for entry in pwd.getpwall()}
        taken |= set(owners.values())
        if own is not None and own in self._range and own not in taken:
            uid: int | None = own
        else:
            uid = self._unused(taken | _uids_of_processes() | ({own} if own is not None else set()))
        if uid is None:
            span = f"{self._range.start} to {self._range.stop - 1}"
            raise CannotStart(f"no free uid is left for namespace {namespace} in the range {span}")
        self._private[namespace] = uid
        write_private(self._file, json.dumps(self._private, sort_keys=True).encode())
        return uid

    def _unused(self, taken: set[int]) -> int | None:
        """Return a uid that is not in `taken`. The search starts at a random uid, because other
        control planes on this machine assign uids too."""
        start = secrets.randbelow(len(self._range))
        steps = range(len(self._range))
        numbers = (self._range[(start + step) % len(self._range)] for step in steps)
        return next((uid for uid in numbers if uid not in taken), None)

    def _owners(self) -> dict[str, int]:
        """Return the owner of each folder in the work folder. Only root creates folders there."""
        if self._work is None or not self._work.exists():
            return {}
        return {each.name: each.lstat().st_uid for each in self._work.iterdir()}

    def _look_up(self, namespace: str, user: str) -> UserAccount:
        if not self._is_root:
            raise AgentError(
                f"jobs of namespace {namespace} are configured to run as {user}, which only root "
                "can do; start leasehold as root, or leave the mapping out"
            )
        try:
            entry = pwd.getpwnam(user)
        except KeyError as error:
            raise AgentError(
                f"jobs of namespace {namespace} are configured to run as {user}, but there is no "
                "such user; create the user, or map the namespace to another user"
            ) from error
        if entry.pw_uid == 0:
            raise AgentError(
                f"jobs of namespace {namespace} are configured to run as {user}, which is "
                "root; map the namespace to another user"
            )
        # Looked up once, because a directory service may be slow.
        groups = tuple(os.getgrouplist(user, entry.pw_gid))
        return UserAccount(uid=entry.pw_uid, gid=entry.pw_gid, name=user, groups=groups)


def _remembered(file: Path) -> dict[str, int]:
    """Return the uid of each namespace from the file. Raise `AgentError` if the file is damaged:
    with a new uid, a namespace could not read its own files."""
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


def _uids_of_processes() -> set[int]:
    """Return the uids of running processes, such as another control plane's jobs."""
    uids = set()
    for each in Path("/proc").iterdir():
        if each.name.isdigit():
            with suppress(OSError):  # it has ended
                uids.add(each.stat().st_uid)
    return uids


def _mapped_range() -> range:
    """Return the range of private uids: the usual one, or a small one if this process' user
    namespace does not map the usual one."""
    high = range(PRIVATE_FIRST, PRIVATE_FIRST + PRIVATE_COUNT)
    try:
        lines = Path("/proc/self/uid_map").read_text(encoding="ascii").splitlines()
    except OSError:
        return high
    spans = [(int(inside), int(count)) for inside, _, count in (line.split() for line in lines)]
    if any(first <= high.start and high.stop <= first + count for first, count in spans):
        return high
    return _small_range(PRIVATE_FIRST_SMALL)


def _small_range(first: int) -> range:
    return range(first, first + PRIVATE_COUNT_SMALL)
