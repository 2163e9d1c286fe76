"""leasehold gives every GPU-second on a shared fleet a payer and a reason."""

__version__ = "0.1.0"
