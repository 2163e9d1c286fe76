"""`leasehold sim replay`: a recorded workload on a fleet and Budgets, and a report of it."""
