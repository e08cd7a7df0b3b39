"""Check a worker's container beside an agent. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from inplace.agent.barrier.address import OUR_PATH, OUR_PORT, UPSTREAM_PATH
from inplace.agent.start.config import AgentConfig, ConfigError
from inplace.cli.lint.env import agent_environment, settled_environment
from inplace.cli.manifests.agent_pieces import PROGRAM_FILE
from inplace.cli.manifests.finding import Finding, shown
from inplace.cli.manifests.pod_roles import WAIT, Container
from inplace.cli.manifests.restart_rules import CODES, Ending, codes_that, ending, spell


def check_worker(worker: Container) -> Iterator[Finding]:
    """Yield exit codes after which the worker does something else than restart its Pod, fail it or complete it."""
    path = f"{worker.path}.restartPolicyRules"
    alone = codes_that(worker.raw, Ending.ALONE_RESTARTS)
    if alone:
        fix = "set restartPolicy: Never, and the action of its rules to RestartAllContainers"
        found = f"exit codes {spell(alone)}, after which it alone starts again"
        yield Finding("worker-restarts-alone", path, found, "RestartAllContainers, or no rule", fix)
        return
    if ending(worker.raw, 0, "Never") is Ending.ALL_RESTART:
        fix = "exclude 0: operator NotIn, values [0]"
        yield Finding("worker-success", path, "exit code 0, which restarts the Pod", "a Pod that completes", fix)
    if not codes_that(worker.raw, Ending.ALL_RESTART, CODES[1:]):
        fix = "add action RestartAllContainers for exitCodes NotIn [0], and restartPolicy: Never"
        yield Finding("worker-recreated", path, "no exit code that restarts the Pod", "a rule for failures", fix)


def check_wait(worker: Container, agent: Container, jobset_name: str) -> Iterator[Finding]:
    """Yield a worker that does not wait for its agent, or at an address where the agent does not listen."""
    if not worker.calls(WAIT):
        if not agent.has_upstream_names:  # upstream's agent would not answer
            needed, fix = "inplace-agent wait -- COMMAND", "`inplace inject` adds it"
            yield Finding("worker-start", f"{worker.path}.command", "no wait for the barrier", needed, fix)
        return
    yield from check_program_file(worker, agent)
    try:
        barrier = AgentConfig.from_env(settled_environment(agent, jobset_name))
    except ConfigError:
        return
    env = agent_environment(worker, jobset_name)
    port = env.get("BARRIER_PORT") or env.get("STARTUP_PROBE_PORT") or str(OUR_PORT)
    path = env.get("BARRIER_PATH") or env.get("STARTUP_PROBE_PATH") or OUR_PATH
    for name, found, needed in (
        ("BARRIER_ADDRESS", env.get("BARRIER_ADDRESS", ""), barrier.barrier_address),
        ("BARRIER_PORT", port, str(barrier.barrier_port)),
        ("BARRIER_PATH", "" if path in (OUR_PATH, UPSTREAM_PATH) else path, barrier.barrier_path),
    ):
        if found != needed and not (name != "BARRIER_PORT" and (not needed or (not found and name == "BARRIER_PATH"))):
            where, fix = f'{worker.path}.env[name="{name}"]', f"give the worker the {name} of {agent.name}"
            yield Finding("worker-wait", where, found or "nothing", f"the agent's {needed}", fix)


def check_program_file(worker: Container, agent: Container) -> Iterator[Finding]:
    """Yield a worker that starts by the agent's file, which its agent does not leave there."""
    left = agent.env.get("AGENT_FILE", {}).get("value")
    if PROGRAM_FILE in worker.words and left != PROGRAM_FILE:
        where, fix = f'{agent.path}.env[name="AGENT_FILE"]', "`inplace inject` adds it"
        yield Finding("worker-file", where, shown(left), PROGRAM_FILE, fix)
