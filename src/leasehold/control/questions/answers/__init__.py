"""The answers to all questions as records: returned by `control.questions`, rendered by pages.

`ANSWERS` has the record types of each question. As JSON (`wire`) the fields are in camelCase, in
the order of declaration; fields are added, never renamed or changed in meaning. GPU-time is exact
in `gpuMs` (GPU-milliseconds) and readable in `gpuHours`; instants are RFC 3339 in UTC, null for
what has not happened; a run is `namespace/name`, an envelope `namespace/budget/envelope`.
"""

from leasehold.control.questions.answers.books import AuditAnswer, HeadAnswer, ReportAnswer
from leasehold.control.questions.answers.decisions import ResolutionsAnswer
from leasehold.control.questions.answers.fleet import AttentionAnswer, FleetAnswer
from leasehold.control.questions.answers.leases import DrainAnswer, LeasesAnswer, PodsAnswer
from leasehold.control.questions.answers.money import (
    BalanceAnswer,
    BurnAnswer,
    SponsorsAnswer,
    TreeAnswer,
    UsageAnswer,
    WhoPaysAnswer,
)
from leasehold.control.questions.answers.reasons import CoverAnswer, ExplainAnswer, PlanAnswer
from leasehold.control.questions.answers.runs import ReservationsAnswer, RunsAnswer, WidthsAnswer
from leasehold.control.questions.answers.shape import Answer

# question -> its record types; `budgets` has three forms.
ANSWERS: dict[str, tuple[type[Answer], ...]] = {
    "attention": (AttentionAnswer,),
    "audit": (AuditAnswer,),
    "budgets": (UsageAnswer, BalanceAnswer, TreeAnswer),
    "burn": (BurnAnswer,),
    "cover": (CoverAnswer,),
    "drain": (DrainAnswer,),
    "explain": (ExplainAnswer,),
    "fleet": (FleetAnswer,),
    "leases": (LeasesAnswer,),
    "ledger-head": (HeadAnswer,),
    "plan": (PlanAnswer,),
    "pods": (PodsAnswer,),
    "report": (ReportAnswer,),
    "reservations": (ReservationsAnswer,),
    "resolutions": (ResolutionsAnswer,),
    "runs": (RunsAnswer,),
    "sponsors": (SponsorsAnswer,),
    "who-pays": (WhoPaysAnswer,),
    "widths": (WidthsAnswer,),
}
