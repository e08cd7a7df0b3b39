"""What every training job of the examples goes through on a node: it trains, loses a worker, and trains to its end."""

from testbed.node.group import SETTLED_S_MAX, Group
from testbed.waiting import until

VICTIM = 1


async def train_through_a_kill(group: Group, words: str, process: int = -1) -> str:
    """
    Kill a worker once all have passed a checkpoint, and wait for the end; the group restarts once, in its Pods.

    Args:
        group: its workers train.
        words: what each worker prints behind its first checkpoint.
        process: the worker's place among its container's processes, the oldest of which has place 0.

    Returns:
        What the workers printed.
    """

    def holds() -> bool:
        return group.printed("worker").count(words) == group.slots

    await until(holds, f"{words!r} of all workers", timeout_s=SETTLED_S_MAX, also=group.state)
    before = group.uids()
    await group.kill(VICTIM, "worker", process=process)
    await group.until_ended("Completed")
    assert group.epochs() == (2, 1)
    assert group.uids() == before
    return group.printed("worker")
