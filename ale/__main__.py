"""`python -m ale`: the command line where its script is not on the path."""

from ale.cli import main

main()
