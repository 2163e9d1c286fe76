"""`leasehold sim replay`: play a recorded workload on a fleet and Budgets, and report the
results."""
