"""The rules for what `leasehold up` accepts, shared by `submit`, `plan` and `lint`.

The server's store applies them to every write, the query API to manifests that are only planned,
`leasehold lint` to files. Add further restrictions only here.
"""

from leasehold.adapters.agent.template import problems_of_template
from leasehold.adapters.objects.admission import Admission
from leasehold.core.objects.run import grace_problems
from leasehold.core.policy import Policy


def admission_of(policy: Policy) -> Admission:
    """Return the admission rules, including what local processes can honour and the operator's
    limits."""
    return Admission(
        also=lambda run: problems_of_template(run) + grace_problems(run, policy.grace_max)
    )
