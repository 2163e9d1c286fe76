"""The parameters that each question accepts.

`shell.queries.query` refuses any other, and the OpenAPI document lists them.
"""

_RUN = ("namespace", "run")

PARAMETERS: dict[str, tuple[str, ...]] = {
    "attention": (),
    "audit": (),
    "budgets": ("form", "owner", "namespace"),
    "burn": ("owner", "namespace"),
    "cover": _RUN,
    "drain": ("node", "since"),
    "explain": _RUN,
    "fleet": ("at",),
    "leases": (*_RUN, "node", "owner", "payer", "since", "at", "closed", "limit"),
    "ledger-head": (),
    "plan": _RUN,
    "pods": _RUN,
    "report": ("by", "from", "to", "owner", "namespace", "tz"),
    "reservations": ("namespace", "past"),
    "resolutions": ("resolution", "limit"),
    "runs": (*_RUN, "owner", "phase", "limit"),
    "sponsors": _RUN,
    "who-pays": _RUN,
    "widths": _RUN,
}
# Questions that also accept a manifest, as the body of a POST.
WITH_BODY = frozenset({"plan", "cover"})
