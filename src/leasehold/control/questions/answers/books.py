"""Answers about the whole ledger: `report`, `audit`, `ledger-head`."""

import msgspec
from msgspec import UNSET, UnsetType

from leasehold.control.questions.answers.shape import Answer, GpuAmount


class Uses(Answer):
    """What GPU-time was used for; adds up to the row's `gpuMs`.

    `failed` and `cut` are upper bounds: work that a checkpoint saved counts as `work`, and only
    declared checkpoint intervals are known.
    """

    work: GpuAmount
    spare: GpuAmount  # idle, ready to take over
    starting: GpuAmount  # the pod did not run yet
    failed: GpuAmount  # work lost to a failure
    cut: GpuAmount  # work lost to a lottery, or because a filler's spare was taken back


class ReportRow(Answer, kw_only=True):
    """One line of a bill. Only the key of the report (such as `owner`) is set; the total has
    none."""

    owner: str | UnsetType = UNSET
    payer: str | UnsetType = UNSET
    run: str | UnsetType = UNSET
    node: str | UnsetType = UNSET
    day: str | UnsetType = UNSET
    week: str | UnsetType = UNSET
    month: str | UnsetType = UNSET
    leases: int | UnsetType = UNSET
    gpu_ms: int
    gpu_hours: str
    paid_gpu_ms: int | UnsetType = UNSET
    paid_gpu_hours: str | UnsetType = UNSET
    uses: Uses


class ReportAnswer(Answer, kw_only=True):
    by: str
    start: str | None = msgspec.field(name="from")
    end: str | None = msgspec.field(name="to")
    owner: str
    items: list[ReportRow]
    total: ReportRow


class AuditAnswer(Answer):
    ok: bool
    problems: list[str]


class HeadAnswer(Answer):
    seq: int
    digest: str
    epoch: int
    instant: str | None
    open_leases: int
    leases: int
