"""
How long a worker may run when its agent cannot reach the API server, and how long the controller waits for its end.

Both sides of the fence of a dead node, in one place. docs/adr/0072 has the argument.

The agent's side. A read of the JobSet that is consistent shows every status that was stored before the read was SENT.
So from that moment on, for the length of a lease, the worker may run: what deprecates its epoch was stored later. A
byte of a watch would not do: an API server that is cut off from etcd goes on sending bookmarks. Nor would the moment
of the answer: the answer may be old when it comes. When the lease is over the worker is killed, and no worker starts.
A worker whose epoch is over cannot have its lease renewed: what it needs to end is inside the lease, too.

The controller's side. It knows since when the status says that every epoch so far is over. A lease that began earlier
is over a length later; a read that was sent later shows that status. So after the length, and the time that a kill
takes, no worker of those epochs is left in a Pod whose agent keeps a lease.

Pure. Seconds are of any one clock that only goes forward; only differences between them count.
"""

from __future__ import annotations

from inplace.common.bare.typed import Final
from inplace.common.protocol.agent import AgentState, Verdict, judge

LENGTH_S_MIN: Final = 15  # three tries of a read must fit in
LENGTH_S_MAX: Final = 600
END_S: Final = 10
"""From the lease's end to the last moment of the worker: a second until it is noticed, the kill, and the difference
between two clocks, which is 0.6 s in 600 s where one is wrong by 0.1 %."""


def promised_s(length_s: int) -> int:
    """Return after how many seconds a worker has ended whose epoch is over, whatever its agent can reach."""
    return length_s + END_S


def renewed_until_s(until_s: float, sent_s: float, length_s: float, agent: AgentState) -> float:
    """Return until when a worker may run, after a consistent read that the machine has taken in.

    Args:
        until_s: until when it might before.
        sent_s: when the read was sent.
        length_s: of a lease.
        agent: the machine AFTER it took in what the read showed.
    """
    if agent.view is not None and judge(agent.epoch, agent.view) in (Verdict.DEPRECATED, Verdict.PASSED):
        return until_s
    return max(until_s, sent_s + length_s)


def fenced_in_s(over_since_s: float, promised: float, now_s: float) -> float:
    """Return how long the controller still waits for the end of a worker; 0 or less when it has ended.

    Args:
        over_since_s: since when the controller knows that a stored status says that every epoch up to S is over.
        promised: what the worker's agent announced, of `promised_s`.
        now_s: of the controller's clock.
    """
    return over_since_s + promised - now_s
