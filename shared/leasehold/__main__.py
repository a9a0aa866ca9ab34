"""`python -m leasehold` is the command line."""

from leasehold.cli import main

main()
