"""DLRover's saver in a process of its own, which outlives the worker: it knows what is where in /dev/shm."""

from __future__ import annotations

import signal

from dlrover.python.elastic_agent.torch.ckpt_saver import AsyncCheckpointSaver

if __name__ == "__main__":
    AsyncCheckpointSaver.start_async_saving_ckpt()
    while True:
        signal.pause()
