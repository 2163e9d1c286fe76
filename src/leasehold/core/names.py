"""Names of the API group and finalizers, and the type of a JSON object.

Imports nothing, so that the quick commands of the CLI can load it without delay.
"""

GROUP = "rq.davidlangworthy.io"
API_VERSION = f"{GROUP}/v1"

LEASES_CLOSED = f"{GROUP}/leases-closed"  # finalizer: a Run stays until its leases are closed
LEASE_CLOSED = f"{GROUP}/lease-closed"  # finalizer: a pod stays until its end is in the ledger

Wire = dict[str, object]
