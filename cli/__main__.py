"""`python -m cli` is `inplace`."""

from cli.main import main

main()
