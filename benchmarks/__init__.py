"""Print the figures of docs/numbers.md: each module measures something and what it is compared with.

With `--json` the last line is one JSON object. Machines are shared and noisy: compare figures of one run.
"""
