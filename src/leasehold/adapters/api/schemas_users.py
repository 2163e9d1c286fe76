"""OpenAPI schemas of Runs and Budgets, which users write, with a description for every field.

Data for `openapi` (and so for `kubectl explain`) and for `shapes`, which finds unknown fields. They
must match the checks of `core.objects.run` and `core.objects.budget`; a test compares them.
"""

from leasehold.adapters.api.schema_words import (
    CONDITION,
    TEXT,
    anything,
    distinct,
    flag,
    instant,
    many,
    mapping,
    named,
    number,
    table,
    text,
    whole,
)
from leasehold.core.names import Wire

_SPAN = "A span such as 30s, 15m or 1h30m."

_TEMPLATE = mapping(
    "The pod template. Image, command and environment are yours; GPUs, ranks and places are added "
    "by leasehold, so a GPU request, host ports, affinity and node names are refused.",
    {
        "metadata": mapping(
            "Labels and annotations of the pods.",
            {
                "labels": table("Labels of the pods.", TEXT),
                "annotations": table("Annotations of the pods.", TEXT),
            },
            is_open=True,
        ),
        "spec": mapping(
            "A pod spec. GPUs go to its first container.",
            {
                "containers": named(
                    "What runs. The first container gets the GPUs.",
                    mapping(
                        "A container.",
                        {
                            "name": text("Its name within the pod."),
                            "image": text("Image; accepted and not used by the embedded agent."),
                            "command": many("The program and its arguments.", TEXT),
                            "args": many("More arguments.", TEXT),
                            "env": many("Environment variables.", anything("A name and a value.")),
                            "workingDir": text("Where it starts."),
                            "resources": anything("CPU and memory; GPUs are added by leasehold."),
                        },
                        required=("name",),
                        is_open=True,
                    ),
                ),
                "tolerations": many(
                    "Taints it may be placed on all the same.", anything("A toleration.")
                ),
            },
            required=("containers",),
            is_open=True,
        ),
    },
)

_RUN_SPEC = mapping(
    "What somebody wants to run.",
    {
        "owner": text("Who runs it and, first of all, who pays: an owner path such as org:ai:mm."),
        "resources": mapping(
            "How many GPUs of which kind.",
            {
                "gpuType": text("The flavor of GPU, as nodes are labelled: H100-80GB."),
                "totalGPUs": whole("GPUs in all; the groups must divide it."),
                "gpusPerPod": whole(
                    "GPUs per pod; default: the largest size that divides a group and fits a node."
                ),
            },
            required=("gpuType", "totalGPUs"),
        ),
        "locality": mapping(
            "Where it may be placed.",
            {
                "groupGPUs": whole(
                    "GPUs per group; a group never leaves its fabric domain. Default: one group."
                ),
                "allowCrossGroupSpread": flag(
                    "Whether groups may be in different domains; default true."
                ),
                "selector": mapping(
                    "Only there.",
                    {
                        "region": text("Only in this region."),
                        "cluster": text("Only in this cluster."),
                        "fabric.domain": text("Only in this fabric domain."),
                    },
                ),
            },
        ),
        "gang": text(
            "Run: all groups live and die together (default). Group: each alone, as in sweeps.",
            "Run",
            "Group",
        ),
        "malleable": mapping(
            "Makes the run elastic: it may start narrower than it would like, grow when GPUs are "
            "free, and be shrunk instead of stopped. Widths go from minTotalGPUs to maxTotalGPUs "
            "in steps of stepGPUs.",
            {
                "minTotalGPUs": whole("The least GPUs it can work with; a multiple of a group."),
                "maxTotalGPUs": whole("The most GPUs it can use; a whole number of steps above."),
                "stepGPUs": whole("GPUs per step, a multiple of a group; default: one group."),
                "desiredTotalGPUs": whole(
                    "The width wanted now; default totalGPUs. May be edited while it runs."
                ),
            },
            required=("minTotalGPUs", "maxTotalGPUs"),
        ),
        "sparesPerGroup": whole("GPUs held idle per group, to replace a node that fails; 0."),
        "opportunistic": flag(
            "May also sit on other runs' spares, ended the moment they are needed; default false."
        ),
        "stop": flag("True cancels it and keeps the object; deleting it cancels too."),
        "runtime": mapping(
            "How long, and what happens when it ends badly.",
            {
                "maxDuration": text(f"Wall-clock limit per attempt. {_SPAN}"),
                "checkpoint": text(
                    f"It checkpoints at least this often, so it may be requeued. {_SPAN}"
                ),
                "retries": whole("Whole-gang restarts after a workload failure; default 0."),
                "startTimeout": text(
                    "How long its pods may take to start once a node has them, as while an image "
                    f"is pulled; default: the server's. {_SPAN}"
                ),
                "gracePeriod": text(
                    f"Between the signal to stop and the kill; default 30s. {_SPAN}"
                ),
            },
        ),
        "funding": mapping(
            "Who else may pay.",
            {
                "allowBorrow": flag("Whether budgets outside the family may pay; default false."),
                "maxBorrowGPUs": whole("At most so many borrowed GPUs."),
                "sponsors": distinct("Only these owners may lend, in this order."),
            },
        ),
        "template": _TEMPLATE,
    },
    required=("owner", "resources"),
)

_RUN_STATUS = mapping(
    "What became of it, computed from the ledger.",
    {
        "phase": text("Its phase.", "Pending", "Running", "Completed", "Failed"),
        "message": text("One sentence for a person."),
        "attempt": whole("Which attempt this is; 0 before the first."),
        "boundAttempt": whole("The last attempt whose pods were all bound."),
        "submitted": instant("When it was submitted."),
        "arrived": mapping(
            "Its place in line, as it was when it was first seen.",
            {
                "instant": instant("When it came."),
                "number": whole("Among those that came then, where that is told to the second."),
            },
        ),
        "podRequests": mapping(
            "What one of its pods asks for, if the API server adds to its template.",
            {"cpu": text("CPUs."), "memory": text("Bytes of memory.")},
        ),
        "started": instant("When its present or last attempt started."),
        "ended": instant("When it was over."),
        "width": mapping(
            "GPUs it may have, wants and has.",
            {
                "min": whole("The least it can work with."),
                "max": whole("The most it can use."),
                "desired": whole("What it wants now."),
                "allocated": whole("What it has now."),
                "spares": whole("Idle GPUs held to replace failing ones."),
                "pending": whole("What it still waits for."),
            },
        ),
        "funding": mapping(
            "Who pays, now and to date.",
            {
                "ownedGPUs": whole("Paid by its owner's budgets."),
                "sharedGPUs": whole("Paid by the family's budgets."),
                "borrowedGPUs": whole("Paid by sponsors."),
                "ownedGPUHours": text("To date."),
                "sharedGPUHours": text("To date."),
                "borrowedGPUHours": text("To date."),
                "sponsors": many("Who lends.", anything("Owner, envelope, GPUs, GPU-hours.")),
            },
        ),
        "leases": many("Names of its open leases.", TEXT),
        "reservation": mapping(
            "Its planned start.",
            {
                "name": text("The Reservation."),
                "earliestStart": instant("When it can start at the earliest."),
            },
        ),
        "conditions": named(
            "Admitted, Bound, Running, Completed, Failed, Preempted, Blocked.",
            CONDITION,
            key="type",
        ),
    },
    is_open=True,
)

RUN = mapping(
    "A unit of work on GPUs: what somebody wants to run, who pays, and what became of it.",
    {"spec": _RUN_SPEC, "status": _RUN_STATUS},
    required=("spec",),
)

_ENVELOPE = mapping(
    "A right to use GPUs of one flavor, somewhere, for some time.",
    {
        "name": text("Its name within the Budget."),
        "flavor": text("The flavor of GPU it pays for."),
        "selector": mapping(
            "Where it pays; without it, anywhere.",
            {"region": text("Only in this region."), "cluster": text("Only in this cluster.")},
        ),
        "concurrency": whole("GPUs at one time."),
        "maxGPUHours": number("GPU-hours within the window; without it, no limit."),
        "start": instant("Beginning of the window; without it, it has begun."),
        "end": instant("End of the window (exclusive); without it, it never ends."),
        "sharing": text(
            "family (default): children of its owner may use what is idle. none: nobody.",
            "family",
            "none",
        ),
        "lending": mapping(
            "Who outside the family may be sponsored.",
            {
                "allow": flag("Whether it lends at all; default false."),
                "to": distinct("Globs over owner paths, * crosses colons; none admits nobody."),
                "maxConcurrency": whole("At most so many lent GPUs at one time."),
                "maxGPUHours": number("At most so many lent GPU-hours."),
            },
        ),
    },
    required=("name", "flavor", "concurrency"),
)

_BUDGET_SPEC = mapping(
    "What an owner may claim.",
    {
        "owner": text("Whose budget it is, an owner path such as org:ai:mm. Cannot be edited."),
        "parents": distinct("Owners above it; default: the owner's path less its last part."),
        "namespaces": distinct("Where Runs may spend as this owner, besides its own."),
        "envelopes": named("What it may use.", _ENVELOPE),
        "aggregateCaps": named(
            "Caps over several of its envelopes.",
            mapping(
                "A cap.",
                {
                    "name": text("Its name within the Budget."),
                    "flavor": text("The flavor of all its envelopes."),
                    "envelopes": distinct("Names of envelopes of this Budget."),
                    "maxConcurrency": whole("GPUs at one time, over all of them."),
                },
                required=("name", "flavor", "envelopes", "maxConcurrency"),
            ),
        ),
    },
    required=("owner",),
)

_BUDGET_STATUS = mapping(
    "What is used of it, computed from the ledger.",
    {
        "state": text("Healthy, NearLimit or Overdrawn, as the condition says."),
        "gpus": text("GPUs in use, of those that it may use at one time: 8/16."),
        "envelopeCount": whole("How many envelopes it has."),
        "envelopes": named(
            "By envelope.",
            mapping(
                "Use of one envelope.",
                {
                    "name": text("The envelope."),
                    "used": whole("GPUs in use."),
                    "spare": whole("Of those, held idle as spares."),
                    "lent": many("GPUs lent, by borrower.", anything("Borrower and GPUs.")),
                    "headroom": whole("GPUs left."),
                    "gpuHoursUsed": text("GPU-hours used."),
                    "gpuHoursCommitted": text("GPU-hours that open leases may still use."),
                    "gpuHoursLeft": text("GPU-hours left, if they are limited."),
                    "overdrawnSince": instant("Since when it is over its limits."),
                },
                required=("name",),
                is_open=True,
            ),
        ),
        "conditions": named("Healthy, NearLimit or Overdrawn.", CONDITION, key="type"),
    },
    is_open=True,
)

BUDGET = mapping(
    "What an owner may claim: envelopes of GPUs by flavor, place and time, and whom it lends to.",
    {"spec": _BUDGET_SPEC, "status": _BUDGET_STATUS},
    required=("spec",),
)

USER_SCHEMAS: dict[str, Wire] = {"Run": RUN, "Budget": BUDGET}
