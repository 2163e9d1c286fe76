"""`python -m leasehold` is the same as the console script."""

from leasehold.cli.main import main

main(prog_name="leasehold")
