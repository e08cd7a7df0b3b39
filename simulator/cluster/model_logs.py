"""The logs of modelled containers: what a guard writes of its worker, and the worker's first step."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterator

from inplace.agent.report.log_line import log_line
from inplace.common.wire.stacks import TAKEN, THREAD
from inplace.simulator.cluster.container_log import NS, LogPiece

LINES_MAX = 1000  # of one instance; the oldest go, as a log that is rotated
FIRST_STEP = "step=1"
STACK = ["all_reduce torch/distributed/distributed_c10d.py:2219", "train_step train.py:88", "<module> train.py:120"]
KEPT = 2  # instances of a container, the present one and the one before


class ModelLog:
    """The log of one container instance.

    Args:
        wall_s: the node's clock.
    """

    def __init__(self, wall_s: Callable[[], float]) -> None:
        self._wall_s = wall_s
        self._pieces: list[LogPiece] = []
        self._dropped = 0
        self.is_over = False

    @property
    def count(self) -> int:
        """Return how many lines were ever written."""
        return self._dropped + len(self._pieces)

    def write(self, line: str) -> None:
        """Append a line."""
        if len(self._pieces) >= LINES_MAX:
            del self._pieces[0]
            self._dropped += 1
        self._pieces.append(LogPiece(int(self._wall_s() * NS), f"{line}\n".encode(), begins=True))

    def event(self, event: str, **fields: int | None) -> None:
        """Append a line as the agent's programs write it."""
        self.write(log_line(self._wall_s(), "info", event, fields))

    def worker_exited(self, epoch: int | None, ended: asyncio.Future[int]) -> None:
        """Append how the worker of an epoch ended."""
        if not ended.cancelled():
            self.event("worker_exited", epoch=epoch, exit_code=ended.result())

    def stacks(self, request: int) -> None:
        """Append the answer of one rank to a request for stacks."""
        fields = {"request": request, "rank": "", "pid": 1, "step": 1, "by": "faulthandler", "state": "S"}
        fields |= {"thread": "main", "silent": False, "message": None, "frames": STACK, "left_out": False}
        self.write(log_line(self._wall_s(), "info", THREAD, fields))
        self.event(TAKEN, request=request, ranks=1)

    def since(self, count: int) -> Iterator[LogPiece]:
        """Yield the lines behind the first `count`, as far as they are kept."""
        return iter(self._pieces[max(0, count - self._dropped) :])

    def end(self) -> None:
        """End it with its container."""
        self.is_over = True


class ModelLogReader:
    """One reader of a log, see `OpenLog`."""

    def __init__(self, log: ModelLog) -> None:
        self._log = log
        self._read = 0

    def pieces(self) -> Iterator[LogPiece]:
        """Yield the pieces that came since the last call."""
        read, self._read = self._read, self._log.count
        return self._log.since(read)

    @property
    def is_over(self) -> bool:
        """Say whether no more will come."""
        return self._log.is_over

    def close(self) -> None:
        """Do nothing."""


class ModelLogs:
    """The logs of all containers.

    Args:
        wall_s: the nodes' clock.
    """

    def __init__(self, wall_s: Callable[[], float]) -> None:
        self._wall_s = wall_s
        self._logs: dict[str, dict[str, deque[ModelLog]]] = {}  # by Pod's uid, then container

    def begin(self, uid: str, container: str) -> ModelLog:
        """Return the log of a new instance of a container."""
        kept = self._logs.setdefault(uid, {}).setdefault(container, deque(maxlen=KEPT))
        kept.append(ModelLog(self._wall_s))
        return kept[-1]

    def newest(self, uid: str, container: str) -> ModelLog:
        """Return the log of the present instance."""
        return self._logs[uid][container][-1]

    def open(self, uid: str, container: str, *, previous: bool) -> ModelLogReader | None:
        """Open the log of the present instance, or of the one before; None where there is none."""
        kept = self._logs.get(uid, {}).get(container, ())
        position = -2 if previous else -1
        return ModelLogReader(kept[position]) if len(kept) >= -position else None

    def forget(self, uid: str) -> None:
        """Drop the logs of a Pod."""
        self._logs.pop(uid, None)
