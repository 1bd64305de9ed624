"""`python -m verax` is `verax`."""

from verax.cli.main import main

main()
