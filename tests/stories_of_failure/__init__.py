"""
Stories of failure: broken training scripts, public failure reports and alerts, each on real processes.

    python -m tests.stories_of_failure [NAME ...]     (prints a table; all of them take some two minutes)

`scripts.toml`, `reports.toml` and `alerts.toml` are the stories: a JobSet as a user writes it, what happens to it, and
what `inplace` has to print. They run beside each other on one embedded cluster with the real controller, agents and
guards. Its containers are processes of this machine, so what only a real container has is stood in for; the story says
so.
"""
