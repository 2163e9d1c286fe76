"""`ledger-head`, `audit` and `pods`: the ledger's head, its consistency, and the pods of a run."""

from leasehold.control.audit import audit
from leasehold.control.questions.answers.books import AuditAnswer, HeadAnswer
from leasehold.control.questions.answers.leases import PodRow, PodsAnswer
from leasehold.control.questions.formats import instant
from leasehold.control.questions.subject import Subject
from leasehold.core.units import Instant
from leasehold.core.world.world import World


def ledger_head(world: World) -> HeadAnswer:
    head = world.head
    return HeadAnswer(
        seq=head.seq,
        digest=head.digest,
        epoch=head.epoch,
        instant=instant(head.instant or None),
        open_leases=sum(len(names) for names in world.open_by_run.values()),
        leases=len(world.leases),
    )


def audited(world: World, now: Instant) -> AuditAnswer:
    """Check that the leases agree with the pods that the controller knows.

    The command `leasehold audit` lists all pods itself.
    """
    found = audit(world, list(world.pods.values()), now)
    return AuditAnswer(ok=not found, problems=found)


def pods(world: World, subject: Subject) -> PodsAnswer:
    """Return a run's pods by group and index: all of the newest attempt, and living ones of earlier
    attempts."""
    found = subject.pods(world)
    found.sort(key=lambda pod: (pod.attempt, pod.group, pod.index, pod.name))
    rows: list[PodRow] = []
    for pod in found:
        leases = [world.leases[name] for name in sorted(world.open_by_pod.get(pod.key, ()))]
        rows.append(
            PodRow(
                namespace=pod.namespace,
                name=pod.name,
                phase=str(pod.phase),
                reason=pod.reason,
                exit_code=pod.exit_code,
                message=pod.said,
                node=pod.node,
                slots=sorted(slot for lease in leases for slot in lease.slots),
                gpus=pod.gpus,
                group=pod.group,
                index=pod.index,
                attempt=pod.attempt,
                started=instant(min((lease.start for lease in leases), default=None)),
                finished=instant(pod.finished_at),
                leases=[lease.name for lease in leases],
            )
        )
    return PodsAnswer(run=subject.key, items=rows)
