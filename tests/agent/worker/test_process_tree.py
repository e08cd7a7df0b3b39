"""The list of a process's children, while its threads come and go."""

from __future__ import annotations

import subprocess
import sys
import threading

from inplace.agent.worker.process_tree import descendants, is_alone_with

LOOKS = 3000


def test_a_thread_that_ends_meanwhile_is_no_error() -> None:
    """A guard looks for what its worker left, and its threads end when they like; each look sees the child."""
    is_over = threading.Event()

    def come_and_go() -> None:
        while not is_over.is_set():
            thread = threading.Thread(target=lambda: None)
            thread.start()
            thread.join()

    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, start_new_session=True) as child:
        is_alone = is_alone_with((child.pid,))  # a test before may have left children
        busy = threading.Thread(target=come_and_go)
        busy.start()
        try:
            for _ in range(LOOKS):
                assert child.pid in set(descendants())
                assert is_alone_with((child.pid,)) == is_alone
        finally:
            is_over.set()
            busy.join()
            child.kill()
