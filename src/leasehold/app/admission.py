"""The rules for what `leasehold up` accepts, shared by `submit`, `plan` and `lint`.

The server's store applies the rules to every write, and the query API to manifests that are only
planned. `leasehold lint` applies them to files. Add further restrictions only here.
"""

from leasehold.adapters.agent.template import problems_of_template
from leasehold.adapters.objects.admission import Admission
from leasehold.core.objects.run import grace_problems
from leasehold.core.policy import Policy


def admission_of(policy: Policy) -> Admission:
    """Return the admission rules. They include what processes on this machine can honour of a pod
    template, and the limit that the operator sets for grace periods."""
    return Admission(
        also=lambda run: problems_of_template(run) + grace_problems(run, policy.grace_max)
    )
