"""Run `inplace-controller` as `python -m inplace.controller`."""

from inplace.controller.main import main

main()
