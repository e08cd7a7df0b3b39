"""
What hostile training code can do from its container, on a real kubelet.

User namespaces (`hostUsers: false`) are tried in tests/agent/test_hostile_worker.py: a node of these tests is in
namespaces itself, where the kernel lets runc mount no /proc for one more.
"""

from __future__ import annotations

import json

import pytest

from inplace.common.kube.resources import KubeObject
from testbed.node.cluster import Cluster
from testbed.node.group import SETTLED_S_MAX, Group, running_group
from testbed.waiting import until

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.attack]

# Each attempt is named when it succeeds. Then the program turns into the worker that keeps records.
TRIES = """
import ctypes, errno, json, os, socket
libc, guard, done = ctypes.CDLL(None, use_errno=True), os.getppid(), []
def attempt(name, act):
    try:
        act()
        done.append(name)
    except OSError:
        pass
def called(number):
    if number < 0:
        raise OSError(ctypes.get_errno(), "")
    return number
FOLDER = b"/var/run/inplace"
def remount():
    called(libc.mount(None, FOLDER, None, 0x1020, None))  # MS_REMOUNT | MS_BIND
def in_a_namespace(act):
    child = os.fork()
    if child == 0:
        try:
            called(libc.unshare(0x10020000))  # CLONE_NEWUSER | CLONE_NEWNS
            act()
            os._exit(0)
        except OSError:
            os._exit(1)
    if os.waitpid(child, 0)[1]:
        raise OSError(errno.EPERM, "")
def fill():
    file = os.open(FOLDER + b"/progress/rank-7", os.O_CREAT | os.O_WRONLY)
    size = 0
    try:
        while size < 64 << 20:
            size += os.write(file, b"x" * 65536)
        done.append("fill")
    except OSError as error:
        assert error.errno == errno.ENOSPC
attempt("pidfd_getfd", lambda: called(libc.syscall(438, os.pidfd_open(guard), 5, 0)))
attempt("mem", lambda: os.open(f"/proc/{guard}/mem", os.O_RDWR))
attempt("root", lambda: os.listdir(f"/proc/{guard}/root"))
attempt("fd", lambda: os.readlink(f"/proc/{guard}/fd/5"))
attempt("environ", lambda: open(f"/proc/{guard}/environ").read(1) or called(-1))
attempt("ptrace", lambda: called(libc.ptrace(0x4206, guard, None, None)))  # PTRACE_SEIZE
for name in (b"epoch", b"epoch.ran", b"link", b"new"):
    attempt(f"write {name.decode()}", lambda: os.close(os.open(FOLDER + b"/" + name, os.O_CREAT | os.O_WRONLY)))
attempt("another link", lambda: os.rename(FOLDER + b"/link", FOLDER + b"/progress/link"))
attempt("remount", remount)
attempt("remount in a namespace", lambda: in_a_namespace(remount))
attempt("a guard's end", lambda: os.kill(guard, 9) or os.kill(guard, 19))
fill()
print("attempts", json.dumps(done), flush=True)
del os.environ["INPLACE_PROGRESS_DIR"]  # full by now
os.execv("/usr/bin/python3", ["/usr/bin/python3", "-IS", "/worker.pyc"])
"""
SIZE = 2
SENT = "a guard's end"  # the kernel takes the signals, and process 1 never gets them


def hostile(jobset: KubeObject, user: str) -> None:
    """Let the workers try, as a user or as root."""
    pod = jobset["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]
    (worker,) = pod["containers"]
    before = worker["command"][: worker["command"].index("--") + 1]
    worker["command"] = [*before, "/usr/bin/python3", "-IS", "-c", TRIES]
    if user == "root":
        worker["securityContext"] = {"runAsUser": 0, "readOnlyRootFilesystem": True}


def attempts(group: Group) -> list[list[str]]:
    """Return what succeeded, once for each start of a worker whose log kubelet has."""
    printed = group.printed("worker")
    return [json.loads(line.partition("attempts ")[2]) for line in printed.splitlines() if "attempts " in line]


@pytest.mark.parametrize("user", ["the agent's user", "root"])
async def test_a_worker_reaches_neither_its_guard_nor_its_agents_memory(cluster: Cluster, user: str) -> None:
    """It fills the folder that is its own, and the group restarts in place all the same."""
    async with running_group(
        cluster, "process", pods=SIZE, restarts_max=10, change=lambda jobset: hostile(jobset, user)
    ) as group:
        await group.until_runs(1)
        before = group.uids()
        await group.kill(0, "worker")
        await group.until_runs(2)
        await until(lambda: len(attempts(group)) >= 2 * SIZE, "all attempts", timeout_s=SETTLED_S_MAX, also=group.state)
        assert {name for done in attempts(group) for name in done} <= {SENT}
        assert group.uids() == before
        assert group.broken() == []
