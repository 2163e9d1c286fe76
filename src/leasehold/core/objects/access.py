"""Callers and what they may do: verbs on owners, and the namespaces they can see.

The REST facade makes a Caller from a token and checks it before each write; the query API checks it
before it answers. Knows nothing about tokens or requests. `core.objects.rights` lists what a write
needs.
"""

from enum import StrEnum, unique

import msgspec

from leasehold.core.objects.owners import glob_admits


@unique
class CallerRole(StrEnum):
    """The role of a caller."""

    ADMIN = "admin"  # everything except writing the ledger's own objects
    USER = "user"  # read and write Budgets and Runs in its namespaces
    VIEWER = "viewer"  # read in its namespaces
    SYSTEM = "system"  # controllers and node agents: everything


@unique
class OwnerVerb(StrEnum):
    """What a caller may do for an owner."""

    FUND = "fund"  # create or raise a Budget of the owner
    SPEND = "spend"  # name the owner in a Run
    LEND = "lend"  # change lending fields only


class Caller(msgspec.Struct, frozen=True, kw_only=True):
    """An authenticated caller. `namespaces` and the three lists of owners are globs; `*` also
    matches colons."""

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
        """Return whether the caller may read this namespace. "" is the cluster scope, which all
        may see."""
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
