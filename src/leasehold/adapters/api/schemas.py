"""The schema of a whole object of any kind.

Used by `shapes`, the OpenAPI documents and the CustomResourceDefinitions.
"""

from functools import cache

from leasehold.adapters.api.schemas_ledger import METADATA, SYSTEM_SCHEMAS
from leasehold.adapters.api.schemas_users import USER_SCHEMAS
from leasehold.core.names import Wire
from leasehold.core.objects.wire import part


@cache
def schema_of(kind: str) -> Wire:
    """Return the schema of a kind, including metadata."""
    known = USER_SCHEMAS.get(kind) or SYSTEM_SCHEMAS[kind]
    head: Wire = {
        "apiVersion": {"type": "string", "description": "Group and version of the kind."},
        "kind": {"type": "string", "description": "The kind of the object."},
        "metadata": METADATA,
    }
    return {**known, "properties": {**head, **part(known, "properties")}}
