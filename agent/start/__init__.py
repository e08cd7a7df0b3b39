"""The start of each mode, above the loop: the prelude, the listener, the shell around each."""
