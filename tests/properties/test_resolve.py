"""resolve against brute force on small fleets: the cheapest place, and no innocent victim."""

from collections.abc import Iterable

from hypothesis import assume, given, settings
from hypothesis import strategies as st
from tests.properties.worlds import NOW, a_budget, a_lease, a_node, a_run, a_wish, a_world

from leasehold.core.agenda import Agenda
from leasehold.core.cuts import Cut, Kind
from leasehold.core.facts import Gang, Lease, Resolution, Role, Run
from leasehold.core.resolve import Resolved, resolve
from leasehold.core.units import HOUR
from leasehold.core.verdicts import Refusal, Refused
from leasehold.core.world import World

SEED = "5e" * 32
# kind, groups, GPUs of a group, whether it has a spare per group, hours since it began,
# whether a Resolution started it, whether it begins in domain b
run_rows = st.lists(
    st.tuples(
        st.sampled_from(("fixed", "elastic", "sweep", "filler")),
        st.integers(1, 3),
        st.sampled_from((2, 4)),
        st.booleans(),
        st.integers(1, 4),
        st.sampled_from((False, False, False, True)),
        st.booleans(),
    ),
    min_size=2,
    max_size=7,
)
fleets = st.lists(st.sampled_from("ab"), min_size=1, max_size=4)  # nodes of eight, by fabric
Rows = list[tuple[str, int, int, bool, int, bool, bool]]


def a_full_world(fabrics: list[str], rows: Rows) -> World:
    """Every run where it first fits; what does not fit is not there."""
    nodes = {f"n{i}": fabric for i, fabric in enumerate(fabrics)}
    owners = ("x", "y", "z")
    world = a_world(
        [a_node(name, fabric) for name, fabric in nodes.items()], [a_budget(o) for o in owners]
    )
    free = {name: list(range(8)) for name in nodes}
    spare: dict[str, list[int]] = {name: [] for name in nodes}
    for i, (kind, groups, gpus, spares, hours, protected, last) in enumerate(rows):
        run = a_run(
            f"r{i}",
            owners[i % 2],
            groups=1 if kind == "filler" else groups,
            group_gpus=gpus,
            pod_gpus=gpus,
            spares=gpus if spares and kind != "filler" else 0,
            minimum=gpus if kind == "elastic" else None,
            gang=Gang.GROUP if kind == "sweep" else Gang.RUN,
        )
        pool = spare if kind == "filler" else free
        leases = _placed(run, pool, nodes, i + 1, last, NOW - hours * HOUR)
        if leases is None:
            continue
        world.put_run(run)
        if protected:
            world.fold_resolution(_resolution_for(run, i + 1))
        for lease in leases:
            world.fold_open(lease)
            if lease.role is Role.SPARE:
                spare[lease.node].extend(lease.slots)
    return world


def _placed(
    run: Run, pool: dict[str, list[int]], nodes: dict[str, str], batch: int, last: bool, start: int
) -> list[Lease] | None:
    spec = run.spec
    kinds = [Role.BORROWED if spec.total_gpus and _is_filler(pool, nodes) else Role.ACTIVE]
    kinds += [Role.SPARE] * bool(spec.spares_per_group)
    left = {name: sorted(slots) for name, slots in pool.items()}
    leases: list[Lease] = []
    for group in range(spec.total_gpus // spec.group_gpus):
        for fabric in sorted(set(nodes.values()), reverse=last):
            trial, made = {name: list(slots) for name, slots in left.items()}, []
            for role in kinds:
                name = next((n for n in sorted(nodes) if nodes[n] == fabric
                             and len(trial[n]) >= spec.group_gpus), None)  # fmt: skip
                if name is None:
                    break
                slots, trial[name] = trial[name][: spec.group_gpus], trial[name][spec.group_gpus :]
                made.append(a_lease(run, name, slots, batch=batch, index=len(leases) + len(made),
                                    group=group, role=role, start=start))  # fmt: skip
            if len(made) == len(kinds):
                left, leases = trial, leases + made
                break
        else:
            return None
    for name in pool:
        pool[name][:] = left[name]
    return leases


def _is_filler(pool: dict[str, list[int]], nodes: dict[str, str]) -> bool:
    """The pool of spare slots begins empty, that of free ones full."""
    return sum(map(len, pool.values())) < 8 * len(nodes) and not getattr(pool, "free", False)


def _resolution_for(run: Run, batch: int) -> Resolution:
    return Resolution(
        name=f"{run.name}-{batch}", batch=batch, cause="Reservation", subject="n/s",
        beneficiary=run.key, beneficiary_uid=run.uid, flavor="H", domains=("r/c/a",), envelope="",
        instant=NOW, deficit=0,
    )  # fmt: skip
