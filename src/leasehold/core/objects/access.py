"""Who is asking, and what they may do: the verbs on owners, and the namespaces they see.

The REST facade makes a Caller from a token and asks before it writes; the query API asks before it
tells. Pure: nothing here knows a token or a request. `core.objects.rights` says what a write needs.
"""

from enum import StrEnum, unique

import msgspec

from leasehold.core.objects.owners import glob_admits


@unique
class CallerRole(StrEnum):
    ADMIN = "admin"  # all namespaces, nodes, namespaces; still not the ledger's own objects
    USER = "user"  # reads and writes Budgets and Runs in its namespaces
    VIEWER = "viewer"  # reads in its namespaces
    SYSTEM = "system"  # controllers and node agents: everything


@unique
class OwnerVerb(StrEnum):
    FUND = "fund"  # create or raise a Budget of the owner
    SPEND = "spend"  # name the owner in a Run
    LEND = "lend"  # change lending fields only


class Caller(msgspec.Struct, frozen=True, kw_only=True):
    """`namespaces` and the three lists of owners are globs; `*` crosses colons."""

    user: str
    role: CallerRole = CallerRole.USER
    namespaces: tuple[str, ...] = ()
    fund: tuple[str, ...] = ()
    spend: tuple[str, ...] = ()
    lend: tuple[str, ...] = ()

    @property
    def is_trusted(self) -> bool:
        return self.role in (CallerRole.ADMIN, CallerRole.SYSTEM)

    def sees(self, namespace: str) -> bool:
        """Whether it may read what lies in the namespace; "" is the cluster, which all may see."""
        if self.is_trusted or not namespace:
            return True
        return any(glob_admits(glob, namespace) for glob in self.namespaces)

    def may(self, verb: OwnerVerb, owner: str) -> bool:
        if self.is_trusted:
            return True
        if self.role is CallerRole.VIEWER:
            return False
        globs = {OwnerVerb.FUND: self.fund, OwnerVerb.SPEND: self.spend, OwnerVerb.LEND: self.lend}
        return any(glob_admits(glob, owner) for glob in globs[verb])
