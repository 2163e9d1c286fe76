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
                    "The containers. The first container gets the GPUs.",
                    mapping(
                        "A container.",
                        {
                            "name": text("Its name within the pod."),
                            "image": text("The image; the embedded agent accepts and ignores it."),
                            "command": many("The program and its arguments.", TEXT),
                            "args": many("More arguments.", TEXT),
                            "env": many("Environment variables.", anything("A name and a value.")),
                            "workingDir": text("The working directory."),
                            "resources": anything("CPU and memory; GPUs are added by leasehold."),
                        },
                        required=("name",),
                        is_open=True,
                    ),
                ),
                "tolerations": many(
                    "Taints of nodes that the pods tolerate.", anything("A toleration.")
                ),
            },
            required=("containers",),
            is_open=True,
        ),
    },
)

_RUN_SPEC = mapping(
    "The specification of the run.",
    {
        "owner": text(
            "The owner of the run, whose Budgets pay first: an owner path such as org:ai:mm."
        ),
        "resources": mapping(
            "How many GPUs, and of which type.",
            {
                "gpuType": text("The GPU type as in the node labels, such as H100-80GB."),
                "totalGPUs": whole("Number of GPUs in total; a multiple of the group size."),
                "gpusPerPod": whole(
                    "GPUs per pod; default: the largest size that divides a group and fits a node."
                ),
            },
            required=("gpuType", "totalGPUs"),
        ),
        "locality": mapping(
            "Where the run may be placed.",
            {
                "groupGPUs": whole(
                    "GPUs per group; a group never leaves its fabric domain. Default: one group."
                ),
                "allowCrossGroupSpread": flag(
                    "Whether groups may be in different domains; default true."
                ),
                "selector": mapping(
                    "Only in the selected places.",
                    {
                        "region": text("Only in this region."),
                        "cluster": text("Only in this cluster."),
                        "fabric.domain": text("Only in this fabric domain."),
                    },
                ),
            },
        ),
        "gang": text(
            "Run: all groups start and end together (default). Group: each group starts and "
            "ends alone, as in sweeps.",
            "Run",
            "Group",
        ),
        "malleable": mapping(
            "Makes the run elastic: it may start with fewer GPUs than desired, grow when GPUs "
            "are free, and be shrunk instead of stopped. Its width goes from minTotalGPUs to "
            "maxTotalGPUs in steps of stepGPUs.",
            {
                "minTotalGPUs": whole(
                    "The smallest number of GPUs that the run can use; a multiple of "
                    "the group size."
                ),
                "maxTotalGPUs": whole(
                    "The largest number of GPUs that the run can use; minTotalGPUs "
                    "plus a multiple of stepGPUs."
                ),
                "stepGPUs": whole(
                    "GPUs per step, a multiple of the group size; default: one group."
                ),
                "desiredTotalGPUs": whole(
                    "The desired number of GPUs; default totalGPUs. Can be edited while the run "
                    "works."
                ),
            },
            required=("minTotalGPUs", "maxTotalGPUs"),
        ),
        "sparesPerGroup": whole("GPUs kept idle per group, to replace a failed node; default 0."),
        "opportunistic": flag(
            "Whether the run may also use other runs' spares, and be preempted as soon as they "
            "are needed; default false."
        ),
        "stop": flag(
            "True cancels the run and keeps the object; deleting the object also cancels the run."
        ),
        "runtime": mapping(
            "Time limits, and what happens after a failure.",
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
            "Which other owners may pay.",
            {
                "allowBorrow": flag("Whether budgets outside the family may pay; default false."),
                "maxBorrowGPUs": whole("The largest number of borrowed GPUs."),
                "sponsors": distinct("Only these owners may lend; they are asked in this order."),
            },
        ),
        "template": _TEMPLATE,
    },
    required=("owner", "resources"),
)

_RUN_STATUS = mapping(
    "The state of the run, computed from the ledger.",
    {
        "phase": text("The phase.", "Pending", "Running", "Completed", "Failed"),
        "message": text("One sentence for people."),
        "attempt": whole("Which attempt this is; 0 before the first."),
        "boundAttempt": whole("The last attempt whose pods were all bound."),
        "submitted": instant("When the Run was submitted."),
        "arrived": mapping(
            "The position in the order of submission, fixed when the run was first seen.",
            {
                "instant": instant("When the run arrived."),
                "number": whole("The rank among runs that arrived in the same second."),
            },
        ),
        "podRequests": mapping(
            "What one pod requests, if the API server adds to the template.",
            {"cpu": text("CPUs."), "memory": text("Bytes of memory.")},
        ),
        "started": instant("When the current or last attempt started."),
        "ended": instant("When the Run ended."),
        "width": mapping(
            "GPUs that the run may have, requests and has.",
            {
                "min": whole("The minimum."),
                "max": whole("The maximum."),
                "desired": whole("The desired number now."),
                "allocated": whole("The number now."),
                "spares": whole("Idle GPUs, kept to replace failed ones."),
                "pending": whole("GPUs that the run still waits for."),
            },
        ),
        "funding": mapping(
            "Who pays, now and in total.",
            {
                "ownedGPUs": whole("GPUs paid by the owner's budgets."),
                "sharedGPUs": whole("GPUs paid by the family's budgets."),
                "borrowedGPUs": whole("GPUs paid by sponsors."),
                "ownedGPUHours": text("To date."),
                "sharedGPUHours": text("To date."),
                "borrowedGPUHours": text("To date."),
                "sponsors": many("The sponsors.", anything("Owner, envelope, GPUs, GPU-hours.")),
            },
        ),
        "leases": many("Names of the open leases.", TEXT),
        "reservation": mapping(
            "The planned start.",
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
    "A job on GPUs: what to run, who pays, and its state.",
    {"spec": _RUN_SPEC, "status": _RUN_STATUS},
    required=("spec",),
)

_ENVELOPE = mapping(
    "A right to use GPUs of one flavor, in a place, for a time.",
    {
        "name": text("The name within the Budget."),
        "flavor": text("The GPU type that the envelope pays for."),
        "selector": mapping(
            "Where the envelope pays; if missing, everywhere.",
            {"region": text("Only in this region."), "cluster": text("Only in this cluster.")},
        ),
        "concurrency": whole("The largest number of GPUs at one time."),
        "maxGPUHours": number("GPU-hours within the window; if missing, no limit."),
        "start": instant("Start of the window; if missing, the window is open already."),
        "end": instant("End of the window (exclusive); if missing, the window never ends."),
        "sharing": text(
            "family (default): the owner's family may use idle GPUs. none: only the owner may "
            "use them.",
            "family",
            "none",
        ),
        "lending": mapping(
            "Which owners outside the family may borrow.",
            {
                "allow": flag("Whether the envelope lends; default false."),
                "to": distinct(
                    "Patterns of owner paths, where * also matches colons; an empty "
                    "list allows no owner."
                ),
                "maxConcurrency": whole("The largest number of lent GPUs at one time."),
                "maxGPUHours": number("The largest number of lent GPU-hours."),
            },
        ),
    },
    required=("name", "flavor", "concurrency"),
)

_BUDGET_SPEC = mapping(
    "What an owner may use.",
    {
        "owner": text(
            "The owner of the Budget, an owner path such as org:ai:mm. Cannot be edited."
        ),
        "parents": distinct(
            "The parents of the owner; default: the owner's path without its last part."
        ),
        "namespaces": distinct("Other namespaces whose Runs may charge this Budget."),
        "envelopes": named("The envelopes of the Budget.", _ENVELOPE),
        "aggregateCaps": named(
            "Caps over several envelopes of the Budget.",
            mapping(
                "A cap.",
                {
                    "name": text("The name within the Budget."),
                    "flavor": text("The flavor of all its envelopes."),
                    "envelopes": distinct("Names of envelopes of this Budget."),
                    "maxConcurrency": whole(
                        "The largest number of GPUs at one time, over all these envelopes."
                    ),
                },
                required=("name", "flavor", "envelopes", "maxConcurrency"),
            ),
        ),
    },
    required=("owner",),
)

_BUDGET_STATUS = mapping(
    "The use of the Budget, computed from the ledger.",
    {
        "state": text("Healthy, NearLimit or Overdrawn, as the condition says."),
        "gpus": text("GPUs in use and GPUs allowed at one time, such as 8/16."),
        "envelopeCount": whole("The number of envelopes."),
        "envelopes": named(
            "Use by envelope.",
            mapping(
                "Use of one envelope.",
                {
                    "name": text("The envelope."),
                    "used": whole("GPUs in use."),
                    "spare": whole("GPUs of those that are kept idle as spares."),
                    "lent": many("GPUs lent, by borrower.", anything("Borrower and GPUs.")),
                    "headroom": whole("GPUs left."),
                    "gpuHoursUsed": text("GPU-hours used."),
                    "gpuHoursCommitted": text("GPU-hours that open leases may still use."),
                    "gpuHoursLeft": text("GPU-hours left, if the envelope limits them."),
                    "overdrawnSince": instant("Since when the envelope is over its limits."),
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
    "What an owner may use: envelopes of GPUs by type, place and time, and the owners that it "
    "lends to.",
    {"spec": _BUDGET_SPEC, "status": _BUDGET_STATUS},
    required=("spec",),
)

USER_SCHEMAS: dict[str, Wire] = {"Run": RUN, "Budget": BUDGET}
