"""The group our kinds are in, and the form an object has on its way: plain data, as JSON has it.

Everybody's, and without any import: a command that is done before its user notices reads it too.
"""

GROUP = "rq.davidlangworthy.io"
API_VERSION = f"{GROUP}/v1"

LEASES_CLOSED = f"{GROUP}/leases-closed"  # the finalizer that keeps a Run until it owes nothing
LEASE_CLOSED = f"{GROUP}/lease-closed"  # the one that keeps a pod until its end is in the ledger

Wire = dict[str, object]
