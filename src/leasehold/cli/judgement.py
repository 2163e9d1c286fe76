"""What `leasehold up` accepts: one judgement for `submit`, `plan` and `lint`.

The server's store asks it about every write, the query API about manifests that are only planned,
and `leasehold lint` about files. To accept less, add a rule here; nowhere else is one.
"""

from leasehold.adapters.agent.template import problems_of_template
from leasehold.adapters.objects.admission import Admission
from leasehold.core.objects.run import grace_problems
from leasehold.core.policy import Policy


def admission_of(policy: Policy) -> Admission:
    """With what processes of a machine can honour, and the limits that the operator has set."""
    return Admission(
        also=lambda run: problems_of_template(run) + grace_problems(run, policy.grace_max)
    )
