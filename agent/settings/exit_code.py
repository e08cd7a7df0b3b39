"""
The agent's exit codes, once, because kubelet reads them.

The agent never exits 0 on its own. Whatever way it ends, no worker of an older epoch may be left beside its
successor's announcement. In sidecar mode kubelet sees to that if the agent's container has, beside
`restartPolicy: Always`, either

    restartPolicyRules:                           or      (with a Terminate action, once Kubernetes has it)
    - action: RestartAllContainers                        - action: RestartAllContainers
      exitCodes: {operator: NotIn, values: [0]}             exitCodes: {operator: In, values: [X]}
                                                          - action: Terminate
                                                            exitCodes: {operator: NotIn, values: [X]}

A rule for X alone is not enough: the out-of-memory killer (137), a bug (70) or a bad manifest (2) would
restart the agent alone, and its announcement would claim that the worker which is still running is gone.

A guard leaves with the worker's own code: 0 when the worker completed, a code of --fail-on, any code when in-place
restart is off; 126 and 127 when the command cannot be executed or found, as a shell has it. One with an agent of its
own (supervisor mode) leaves with the agent's code, if that leaves first.

| code     | why                                               | what a restart does                        |
|----------|---------------------------------------------------|--------------------------------------------|
| X        | the group restarts in place                       | every container starts again               |
| CONTAINER_RESTART_EXIT_CODE | a supervisor's worker fails again and again | kubelet starts its container anew |
| 2        | the environment or the credentials cannot be used | fails alike until the manifest is cured    |
| 3        | the barrier's address cannot be bound             | may succeed once the other listener is gone |
| 4        | int32 has no next epoch                           | fails alike; recreate the JobSet           |
| 5        | a worker's process survives SIGKILL               | helps on another node                      |
| 6        | the check before the announcement failed          | its Job replaces the Pod                   |
| 70       | a bug of this program                             | may succeed                                |
| 130, 143 | SIGINT, SIGTERM                                   | the Pod is going away                      |
"""

from __future__ import annotations

from enum import IntEnum

from inplace.common.bare.typed import Final


class ExitCode(IntEnum):
    """Why the agent's process ended."""

    CONFIG = 2
    BARRIER_UNAVAILABLE = 3
    EPOCHS_EXHAUSTED = 4
    WORKER_STUCK = 5
    UNFIT = 6
    BUG = 70  # sysexits.h EX_SOFTWARE
    RESTART_IN_PLACE = 88  # X when nothing configures it; Python's and most shells' own failures never use it
    INTERRUPTED = 130
    TERMINATED = 143


class StartError(Exception):
    """An agent cannot start; nothing was announced.

    Attributes:
        event: its name in the log.
        code: the process's exit code.
    """

    event: str
    code: int


UPSTREAM_RESTART_IN_PLACE: Final = 1  # X when upstream's names are in use: cmd/in-place-restart-agent's default
