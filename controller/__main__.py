"""`python -m controller` is `inplace-controller`."""

from controller.main import main

main()
