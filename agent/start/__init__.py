"""The start of each mode, above the loop: the prelude, the shell around each."""
