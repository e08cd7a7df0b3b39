"""Where the README's numbers come from: each module prints what it measured and what it compares with.

With `--json` the last line is one JSON object. Machines are shared and noisy: compare within one run.
"""
