"""OpenAPI schemas of the objects that the ledger writes, and partial ones of Kubernetes' core
kinds.

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
    "The run that this object belongs to.",
    {
        "namespace": text("Namespace of the run."),
        "name": text("Name of the run."),
        "uid": text("UID of the run."),
        "attempt": whole("The attempt of the run."),
    },
)

_LEASE = mapping(
    "Which GPUs a run used, and who paid: one envelope pays for these slots of one node from "
    "`start` until the lease is closed. The ledger writes leases; nobody can edit them.",
    {
        "spec": mapping(
            "The part of the lease that never changes.",
            {
                "owner": text("The owner of the run."),
                "runRef": _RUN_REF,
                "compPath": many("Group and pod, or group and spare, within the run.", TEXT),
                "slice": mapping(
                    "The GPUs of the lease.",
                    {
                        "node": text("The node; usable with --field-selector."),
                        "nodes": many("The node again, as a list of one.", TEXT),
                        "slots": many("The ordinals of the GPUs on the node.", whole("A slot.")),
                        "role": text("What the GPUs are used for.", "Active", "Spare", "Borrowed"),
                    },
                ),
                "interval": mapping(
                    "The time interval of the lease.", {"start": instant("When the lease starts.")}
                ),
                "paidByEnvelope": text("The name of the envelope that pays."),
                "paidBy": mapping(
                    "The envelope that pays.",
                    {
                        "namespace": text("Namespace of the Budget."),
                        "budget": text("The Budget."),
                        "envelope": text("The envelope."),
                        "owner": text("The owner of the Budget."),
                        "relation": text(
                            "The relation of the payer to the run's owner.",
                            "Owned",
                            "Shared",
                            "Borrowed",
                        ),
                    },
                ),
                "reason": text("Why the lease was opened.", "Start", "Grow", "Swap", "Refinance"),
                "batch": whole("The ledger batch that opened the lease."),
            },
        ),
        "status": mapping(
            "How the lease ends; empty while the lease is open and not ending.",
            {
                "ending": anything("Reason and deadline, once the lease must end."),
                "closed": flag("Whether the lease has ended."),
                "endTime": instant("When the lease ended."),
                "closureReason": text("Why the lease ended, such as Completed, Fail or Shrink."),
                "cause": text("The cause of a closure with reason Fail."),
                "began": instant("When the pod had started, if starting took time."),
                "saved": instant("If work was lost: the work before this time was saved."),
                "batch": whole("The ledger batch that closed the lease."),
            },
        ),
    },
)

_RESERVATION = mapping(
    "A planned start of a run: when, where, who pays, and what must happen before.",
    {
        "spec": mapping("The run that starts.", {"runRef": _RUN_REF}),
        "status": mapping(
            "The plan.",
            {
                "state": text(
                    "The state of the object.",
                    "Pending",
                    "Activating",
                    "Released",
                    "Canceled",
                    "Blocked",
                ),
                "reason": text("The reason for the state, as one word."),
                "message": text("One sentence for people."),
                "since": instant("When the object entered this state."),
                "announced": instant("When the Reservation was announced."),
                "earliestStart": instant("When the run can start at the earliest."),
                "confidence": text(
                    "How certain the start is.",
                    "exact",
                    "window-aligned",
                    "needs-cuts",
                    "needs-money",
                ),
                "startByCuts": instant("The announced start by preemption (rule Q5)."),
                "startByFamilyRule": instant(
                    "The announced start with the owner's own envelope (rule Q6)."
                ),
                "deficitGPUs": whole("GPUs that are missing at that time."),
                "scope": anything("Where runs may be preempted for this start."),
                "intendedSlice": anything("Domains, and nodes once they are known."),
                "held": anything(
                    "What the Reservation keeps on the calendar, and from when: nodes and "
                    "payers, with GPUs."
                ),
                "payingEnvelopes": many("The envelopes that would pay.", TEXT),
                "releases": many(
                    "The leases that will end, with their times.", anything("A lease and a time.")
                ),
                "remedies": many("What would help, with numbers.", TEXT),
                "odds": many(
                    "The chance of each run to be drawn in the lottery, in percent.",
                    anything("A run and a percentage."),
                ),
                "commitment": text("SHA-256 of the lottery's nonce."),
            },
            is_open=True,
        ),
    },
)

_CUT = anything("What was preempted, and how many GPUs.")
_RESOLUTION = mapping(
    "What was preempted, with everything that is needed to repeat the decision with `leasehold "
    "lottery verify`. Immutable.",
    {
        "spec": mapping(
            "The decision.",
            {
                "cause": text("What needed the preemption.", "Reservation", "Overdraft"),
                "subject": text("The reservation, or the envelope that was overdrawn."),
                "beneficiary": anything("The run that others were preempted for."),
                "scope": anything("Flavor and domains, or the envelope."),
                "instant": instant("The time of the decision."),
                "deficitGPUs": whole("GPUs that were missing."),
                "spares": many("Spares that were dropped.", _CUT),
                "shrunk": many("Groups that elastic runs gave up, in the order taken.", _CUT),
                "lottery": mapping(
                    "The lottery; absent if none was needed.",
                    {
                        "seed": text("The inputs of the lottery."),
                        "derivedFrom": anything("The inputs of the seed."),
                        "commitment": text("SHA-256 of the nonce, published beforehand."),
                        "announcedIn": whole("The batch that published the commitment."),
                        "conflictSet": anything("The candidates of the lottery, by owner."),
                        "draws": many("The draws in order, before victims were spared.", _CUT),
                        "sweeps": anything("Width and minimum of runs drawn group by group (R4)."),
                        "ownedLast": flag(
                            "Whether work that its own owner pays for was drawn last (Q10)."
                        ),
                    },
                ),
                "returned": many("Victims that were spared because they were not needed.", _CUT),
                "victims": many("Leases that were preempted.", TEXT),
                "need": many("What the beneficiary requested, by group.", _CUT),
                "free": table("What was free in the scope, by node.", whole("GPUs.")),
                "losses": anything("The places that were compared."),
            },
            is_open=True,
        )
    },
)


def _opaque(about: str) -> Wire:
    return mapping(
        about,
        {
            "spec": anything("What the object contains."),
            "status": anything("The state of the object."),
        },
    )


_EVENT_FIELDS = ("action", "message", "reason", "reportingComponent", "reportingInstance", "type")
_EVENT = mapping(
    "Something that happened to an object.",
    {
        **{name: text(f"Its {name}.") for name in _EVENT_FIELDS},
        "involvedObject": anything("The object that the event is about."),
        "related": anything("Another object that the event concerns."),
        "source": anything("The component that reported the event."),
        "series": anything("Present if the event is repeated."),
        "count": whole("How often the event happened."),
        "eventTime": {"description": "When.", "type": "string", "nullable": True},
        "firstTimestamp": {
            "description": "When the event first happened.",
            "type": "string",
            "nullable": True,
        },
        "lastTimestamp": {
            "description": "When the event last happened.",
            "type": "string",
            "nullable": True,
        },
    },
)
_NAMESPACE = mapping(
    "A place for Budgets and Runs. Deleting a namespace deletes everything in it, runs first.",
    {
        "spec": anything("leasehold does not use this."),
        "status": mapping(
            "The state of the object.",
            {
                "phase": text("The phase.", "Active", "Terminating"),
                "conditions": many("Conditions.", CONDITION),
            },
            is_open=True,
        ),
    },
)

_TAINT = mapping(
    "One taint.",
    {
        "key": text("The key of the taint."),
        "value": text("The value of the taint."),
        "effect": text(
            "The effect of the taint on pods.", "NoSchedule", "PreferNoSchedule", "NoExecute"
        ),
        "timeAdded": instant("When the taint was added."),
    },
    is_open=True,
)
_NODE = mapping(
    "A machine with GPUs. Its labels name its location and the type of its GPUs.",
    {
        "spec": mapping(
            "Whether the node accepts work.",
            {
                "unschedulable": flag("If true, the node is cordoned: it gets no new work."),
                "taints": many("Taints keep away pods that do not tolerate them.", _TAINT),
            },
            is_open=True,
        ),
        "status": anything("What the agent of the node reports."),
    },
    is_open=True,
)

SYSTEM_SCHEMAS: dict[str, Wire] = {
    "Lease": _LEASE,
    "Reservation": _RESERVATION,
    "Resolution": _RESOLUTION,
    "LedgerHead": _opaque("The commit point of the ledger."),
    "LedgerBatch": _opaque("One batch of the ledger's chain."),
    "LedgerCheckpoint": _opaque("A summary of the ledger, which replaces older batches."),
    "Node": _NODE,
    "Namespace": _NAMESPACE,
    "Pod": _opaque("Processes on one node, created from leases."),
    "Event": _EVENT,
    "Service": _opaque("This server has none."),
    "Tenure": _opaque("The leader: the holder of the tenure, with an epoch that only rises."),
}

_OWNER_REFERENCE = mapping(
    "An object that this object belongs to.",
    {
        "apiVersion": text("The API version of that object."),
        "kind": text("The kind of that object."),
        "name": text("Its name."),
        "uid": text("The UID of that object."),
        "controller": flag("Whether that object is the controller of this one."),
        "blockOwnerDeletion": flag("Whether that object's deletion waits for this one."),
    },
)
METADATA = mapping(
    "What identifies the object, and what the server has recorded about it.",
    {
        "name": text("Unique within its kind and namespace."),
        "generateName": text("Prefix of a name that the server generates."),
        "namespace": text("The namespace of the object."),
        "labels": table("Labels, for selectors.", TEXT),
        "annotations": table("Annotations, for programs.", TEXT),
        "uid": text("The UID of the object."),
        "resourceVersion": text("The version; it changes with every write."),
        "generation": whole("The generation; it changes with the spec."),
        "creationTimestamp": {**instant("When the object was created."), "nullable": True},
        "deletionTimestamp": {**instant("When the object is to be deleted."), "nullable": True},
        "deletionGracePeriodSeconds": whole("The grace period of the deletion, in seconds."),
        "finalizers": many("Finalizers that must be removed before the object is deleted.", TEXT),
        "ownerReferences": many("The objects that own this one.", _OWNER_REFERENCE),
        "managedFields": many(
            "Which client set which field.", anything("One client and its fields.")
        ),
        "selfLink": text("No longer used."),
    },
)
