"""`python -m callpact` is the command line."""

from callpact.cli import main

main()
