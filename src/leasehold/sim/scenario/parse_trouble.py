"""Reads the faults of a scenario: `trouble:` of the file, and the `attack:` of a step."""

import re
from collections.abc import Callable, Sequence
from typing import TypeVar

from leasehold.core.objects import readers
from leasehold.core.objects.fields import Fields
from leasehold.core.objects.problems import Problem, joined, shown
from leasehold.core.objects.readers import WrongValue
from leasehold.core.units import DAY
from leasehold.shell.config.config import BadConfig, load_config
from leasehold.sim.faulty import KINDS as STORE_FAULTS
from leasehold.sim.network import KINDS as NETWORK_FAULTS
from leasehold.sim.scenario.trouble import (
    ANY,
    CONTROLLERS,
    CUTS,
    LEADER,
    NODE_ROLES,
    NODES,
    RECOVERING,
    STANDBY,
    Attack,
    Harm,
    Profile,
    Rollout,
    Trouble,
)

T = TypeVar("T")
SEED_MAX = 1 << 53
PPM_MAX = 999_999
WHO = (LEADER, STANDBY, ANY, RECOVERING, *CONTROLLERS, NODES, *NODE_ROLES)
_POINT = re.compile(r"(before|after) [a-z_]+ [A-Za-z]+")


def read_trouble(fields: Fields) -> Trouble | None:
    """Return the faults under `trouble` of the file. Return None if there are none, or if they are
    invalid."""
    written = fields.inside("trouble")
    if written.is_void:
        return None
    before = len(fields.problems)
    seed = written.need("seed", readers.whole(0, SEED_MAX))
    lasts = written.need("lasts", readers.span_or_none)
    trouble = Trouble(
        seed=seed or 0,
        profile=written.take("profile", readers.one_of(Profile), Profile.UNIFORM),
        lasts=lasts or 0,
        store=_of_each(written, "store", STORE_FAULTS, _rate),
        nodes=_of_each(written, "nodes", STORE_FAULTS, _rate),
        network=_of_each(written, "network", NETWORK_FAULTS, _rate),
        drifts=_of_each(written, "drifts", CONTROLLERS, readers.whole(-PPM_MAX, PPM_MAX)),
        offsets=_of_each(written, "offsets", CONTROLLERS, readers.whole(-DAY, DAY)),
        stale=written.take("stale", _rate, 0.0),
        late=written.take("late", _rate, 0.0),
        rollout=_read_rollout(written.inside("rollout")),
        core=written.take("core", _one_of(CONTROLLERS), ""),
        is_shuffled=written.take("shuffled", readers.flag, True),
    )
    written.finish()
    return trouble if len(fields.problems) == before else None


def _read_rollout(fields: Fields) -> Rollout:
    if fields.is_void:
        return Rollout()
    settings = {str(key): value for key, value in fields.inside("settings").members.items()}
    try:
        load_config(settings)
    except BadConfig as bad:
        for problem in bad.problems:
            path = joined(fields.path, f"settings.{problem.path}")
            fields.problems.append(Problem(path=path, value=problem.value, remedy=problem.remedy))
    rollout = Rollout(
        settings=settings,
        older=fields.take("older", _rate, 0.0),
        outdated=fields.take("outdated", _rate, 0.0),
    )
    fields.finish()
    return rollout


def read_attack(fields: Fields) -> Attack | None:
    """Read the attack of a step; None if it is invalid. The caller sets its time, which is that of
    the step."""
    harm = fields.need("harm", readers.one_of(Harm))
    who = fields.need("who", _one_of(WHO))
    lasts = fields.take("lasts", readers.span_or_none, 0)
    amount = fields.take("amount", readers.whole(-DAY, DAY), 0)
    point = fields.take("point", _point, "")
    if who == RECOVERING and not point:
        fields.note("who", "name a point of its recovery, or use leader")
    if who in NODE_ROLES and (harm not in CUTS or point):
        fields.note("who", f"a node can only have {', '.join(CUTS)}, and no point")
    if harm is None or who is None:
        return None
    return Attack(at=0, harm=harm, who=who, lasts=lasts, amount=amount, point=point)


def _of_each(
    fields: Fields, key: str, names: Sequence[str], read: Callable[[object], T]
) -> dict[str, T]:
    listed = fields.inside(key)
    found = {}
    for name in listed.members:
        if name not in names:
            remedy = "use one of " + ", ".join(names)
            path = joined(listed.path, str(name))
            fields.problems.append(Problem(path=path, value=shown(name), remedy=remedy))
            continue
        value = listed.need(str(name), read)
        if value is not None:
            found[str(name)] = value
    return found


def _rate(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1:
        raise WrongValue("use a probability from 0 to 1, such as 0.1")
    return float(value)


def _one_of(names: Sequence[str]) -> Callable[[object], str]:
    def check(value: object) -> str:
        if not isinstance(value, str) or value not in names:
            raise WrongValue("use " + " or ".join(names))
        return value

    return check


def _point(value: object) -> str:
    if not isinstance(value, str) or _POINT.fullmatch(value) is None:
        raise WrongValue("use before or after a call of the store, such as: before get Tenure")
    return value
