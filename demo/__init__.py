"""`make demo`: what leasehold is for, on one machine, told in six acts."""
