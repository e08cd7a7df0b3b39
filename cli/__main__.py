"""Run `inplace` as `python -m inplace.cli`."""

from inplace.cli.main import main

main()
