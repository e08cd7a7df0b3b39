"""A container's processes are told apart by their age."""

import subprocess
import time

from testbed.frameworks.ranks import in_order_of_start


def test_the_oldest_process_comes_first() -> None:
    """Whatever their numbers are, and without the one that is gone."""
    processes = []
    for _ in range(3):
        processes.append(subprocess.Popen(["sleep", "60"]))
        time.sleep(0.03)  # a start is known in clock ticks of 10 ms
    pids = [process.pid for process in processes]
    try:
        assert in_order_of_start(sorted(pids, reverse=True)) == pids
        processes[1].kill()
        processes[1].wait()
        assert in_order_of_start(pids) == [pids[0], pids[2]]
    finally:
        for process in processes:
            process.kill()
            process.wait()
