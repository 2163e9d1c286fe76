"""OpenAPI schemas of what the ledger writes, and partial ones of core kinds.

Data for `openapi` and `shapes`, like `schemas_users`. Spec and status of Pods and Nodes are left
open, because Kubernetes defines them and kubectl knows them.
"""

from leasehold.adapters.api.schema_words import (
    CONDITION,
    TEXT,
    anything,
    flag,
    instant,
    many,
    mapping,
    table,
    text,
    whole,
)
from leasehold.core.names import Wire

_RUN_REF = mapping(
    "The run it belongs to.",
    {
        "namespace": text("Namespace of the run."),
        "name": text("Name of the run."),
        "uid": text("Which run of that name."),
        "attempt": whole("Which attempt."),
    },
)

_LEASE = mapping(
    "What was used, and who paid: one payer pays for these slots of one node from `start` until it "
    "is closed. Written by the ledger; never edited.",
    {
        "spec": mapping(
            "What never changes.",
            {
                "owner": text("Whose run it is."),
                "runRef": _RUN_REF,
                "compPath": many("Group and pod, or group and spare, within the run.", TEXT),
                "slice": mapping(
                    "The GPUs.",
                    {
                        "node": text("The node; may be selected with --field-selector."),
                        "nodes": many("The same as a list of one.", TEXT),
                        "slots": many("Which GPUs of the node.", whole("A slot.")),
                        "role": text("What they are for.", "Active", "Spare", "Borrowed"),
                    },
                ),
                "interval": mapping("Since when.", {"start": instant("When it began.")}),
                "paidByEnvelope": text("The envelope that pays, by its bare name."),
                "paidBy": mapping(
                    "Who pays.",
                    {
                        "namespace": text("Namespace of the Budget."),
                        "budget": text("The Budget."),
                        "envelope": text("The envelope."),
                        "owner": text("Whose Budget it is."),
                        "relation": text("To the run's owner.", "Owned", "Shared", "Borrowed"),
                    },
                ),
                "reason": text("Why it was opened.", "Start", "Grow", "Swap", "Refinance"),
                "batch": whole("The ledger batch that opened it."),
            },
        ),
        "status": mapping(
            "How it ends; empty while it is open and nothing ends it.",
            {
                "ending": anything("Reason and deadline, once it must end."),
                "closed": flag("Whether it has ended."),
                "endTime": instant("When it ended."),
                "closureReason": text("Why it ended, such as Completed, Fail or Shrink."),
                "cause": text("What is behind a closure Fail."),
                "began": instant("Until when its pod was starting, if that took time."),
                "saved": instant("If work was lost: what lies before this was saved."),
                "batch": whole("The ledger batch that closed it."),
            },
        ),
    },
)

_RESERVATION = mapping(
    "A start that is planned: when, where, who pays, and what must happen before.",
    {
        "spec": mapping("Whose start it is.", {"runRef": _RUN_REF}),
        "status": mapping(
            "The plan.",
            {
                "state": text(
                    "Its state.", "Pending", "Activating", "Released", "Canceled", "Blocked"
                ),
                "reason": text("Why, in one word."),
                "message": text("One sentence for a person."),
                "since": instant("Since when it is in this state."),
                "announced": instant("When it was announced."),
                "earliestStart": instant("When the run can start at the earliest."),
                "confidence": text(
                    "How sure that is.", "exact", "window-aligned", "needs-cuts", "needs-money"
                ),
                "startByCuts": instant("The start by cuts that was announced (rule Q5)."),
                "startByFamilyRule": instant(
                    "The start with its owner's own envelope that was announced (rule Q6)."
                ),
                "deficitGPUs": whole("GPUs it lacks then."),
                "scope": anything("Where cuts would be considered."),
                "intendedSlice": anything("Domains, and nodes when they are known."),
                "held": anything(
                    "What it has on the calendar, and from when on: nodes and payers, with GPUs."
                ),
                "payingEnvelopes": many("Who would pay.", TEXT),
                "releases": many("Which leases end when.", anything("A lease and an instant.")),
                "remedies": many("What would help, with numbers.", TEXT),
                "odds": many("Each run's chance to be drawn.", anything("A run and percent.")),
                "commitment": text("SHA-256 of the lottery's nonce."),
            },
            is_open=True,
        ),
    },
)

_CUT = anything("What was cut, and how many GPUs.")
_RESOLUTION = mapping(
    "What was cut, and the proof: everything somebody needs to re-run the decision with "
    "`leasehold lottery verify`. Immutable.",
    {
        "spec": mapping(
            "The decision.",
            {
                "cause": text("What asked for it.", "Reservation", "Overdraft"),
                "subject": text("The reservation, or the envelope that was overdrawn."),
                "beneficiary": anything("The run it was for."),
                "scope": anything("Flavor and domains, or the envelope."),
                "instant": instant("As of when."),
                "deficitGPUs": whole("GPUs that were lacking."),
                "spares": many("Spares that were dropped.", _CUT),
                "shrunk": many("Groups that elastic runs gave up, in the order taken.", _CUT),
                "lottery": mapping(
                    "The draw; absent if it never came to that.",
                    {
                        "seed": text("What the draw follows from."),
                        "derivedFrom": anything("What the seed follows from."),
                        "commitment": text("SHA-256 of the nonce, published beforehand."),
                        "announcedIn": whole("The batch it was published in."),
                        "conflictSet": anything("Who was in the draw, by owner."),
                        "draws": many("The draws in order, before pruning.", _CUT),
                        "sweeps": anything("Width and minimum of runs drawn group by group (R4)."),
                        "ownedLast": flag("Whether work that owners pay for came last (Q10)."),
                    },
                ),
                "returned": many("Given back by pruning.", _CUT),
                "victims": many("Leases that were cut.", TEXT),
                "need": many("What the beneficiary asked for, by group.", _CUT),
                "free": table("What was free in the scope, by node.", whole("GPUs.")),
                "losses": anything("The places that were compared."),
            },
            is_open=True,
        )
    },
)


def _opaque(about: str) -> Wire:
    return mapping(about, {"spec": anything("What it holds."), "status": anything("Its state.")})


_EVENT_FIELDS = ("action", "message", "reason", "reportingComponent", "reportingInstance", "type")
_EVENT = mapping(
    "Something that happened to an object.",
    {
        **{name: text(f"Its {name}.") for name in _EVENT_FIELDS},
        "involvedObject": anything("What it happened to."),
        "related": anything("What else it concerns."),
        "source": anything("Who noticed."),
        "series": anything("If it is repeated."),
        "count": whole("How often."),
        "eventTime": {"description": "When.", "type": "string", "nullable": True},
        "firstTimestamp": {"description": "When first.", "type": "string", "nullable": True},
        "lastTimestamp": {"description": "When last.", "type": "string", "nullable": True},
    },
)
_NAMESPACE = mapping(
    "A place for Budgets and Runs. Deleting it deletes what is in it, runs first.",
    {
        "spec": anything("Nothing that leasehold uses."),
        "status": mapping(
            "Its state.",
            {
                "phase": text("Its phase.", "Active", "Terminating"),
                "conditions": many("Conditions.", CONDITION),
            },
            is_open=True,
        ),
    },
)

_TAINT = mapping(
    "One taint.",
    {
        "key": text("The aspect."),
        "value": text("And how much of it."),
        "effect": text("What it does to pods.", "NoSchedule", "PreferNoSchedule", "NoExecute"),
        "timeAdded": instant("When it was put there."),
    },
    is_open=True,
)
_NODE = mapping(
    "A machine with GPUs. Labels say where it stands and what GPUs it has.",
    {
        "spec": mapping(
            "Whether it takes work.",
            {
                "unschedulable": flag("Cordoned: it takes no new work."),
                "taints": many("What keeps pods off that do not tolerate it.", _TAINT),
            },
            is_open=True,
        ),
        "status": anything("What its agent says of it."),
    },
    is_open=True,
)

SYSTEM_SCHEMAS: dict[str, Wire] = {
    "Lease": _LEASE,
    "Reservation": _RESERVATION,
    "Resolution": _RESOLUTION,
    "LedgerHead": _opaque("The commit point of the ledger."),
    "LedgerBatch": _opaque("One batch of the ledger's chain."),
    "LedgerCheckpoint": _opaque("A state of the ledger that older batches can be forgotten for."),
    "Node": _NODE,
    "Namespace": _NAMESPACE,
    "Pod": _opaque("Processes on one node, made from leases."),
    "Event": _EVENT,
    "Service": _opaque("There are none here."),
    "Tenure": _opaque("Who decides: the holder of a tenure, under an epoch that only rises."),
}

_OWNER_REFERENCE = mapping(
    "An object that it belongs to.",
    {
        "apiVersion": text("Its API version."),
        "kind": text("Its kind."),
        "name": text("Its name."),
        "uid": text("Which one."),
        "controller": flag("Whether that one manages it."),
        "blockOwnerDeletion": flag("Whether that one waits for it."),
    },
)
METADATA = mapping(
    "What identifies it, and what the server has written on it.",
    {
        "name": text("Unique within its kind and namespace."),
        "generateName": text("Beginning of a name, if the server shall make one up."),
        "namespace": text("Where it is."),
        "labels": table("For selecting.", TEXT),
        "annotations": table("For programs.", TEXT),
        "uid": text("Which object of that name."),
        "resourceVersion": text("Changes with every write."),
        "generation": whole("Changes with the spec."),
        "creationTimestamp": {**instant("When it was made."), "nullable": True},
        "deletionTimestamp": {**instant("When it is to be gone."), "nullable": True},
        "deletionGracePeriodSeconds": whole("How long it has."),
        "finalizers": many("Who must let go of it before it is gone.", TEXT),
        "ownerReferences": many("What it belongs to.", _OWNER_REFERENCE),
        "managedFields": many("Who set which field.", anything("One of those who did.")),
        "selfLink": text("Not used any more."),
    },
)
