"""Bugs in the protocol of both programs, and in the agent."""

from tests.mutants.mutant import Area, Edit, Mutant

_AGENT = "common/epoch/agent.py"
_LEDGER = "common/epoch/ledger.py"
_SUPERVISOR = "common/epoch/supervisor.py"
_WATCH = "agent/jobset_watch.py"
_ANNOUNCER = "agent/announcer.py"

PROTOCOL = (
    Mutant(
        "a restarted agent believes a stale watch cache",
        Area.PROTOCOL,
        (
            Edit(
                _AGENT,
                "    if previous is not None and view.synced >= previous:\n        return True\n"
                "    return view.consistent and view.synced >= reached",
                "    return True",
            ),
        ),
        "Sieve (OSDI'22): stale states, 19 of its 46 reproduction plans",
        faults=(
            "api-stale-cache",
            "worker-exit",
        ),
    ),
    Mutant(
        "the barrier lifts as soon as the epoch is announced",
        Area.PROTOCOL,
        (Edit(_AGENT, "if epoch == view.synced:", "if epoch >= view.synced:"),),
    ),
    Mutant(
        "synced beats deprecated",
        Area.PROTOCOL,
        (
            Edit(
                _AGENT,
                "    if epoch <= view.deprecated:\n        return Verdict.DEPRECATED\n    if epoch == view.synced:\n"
                "        return Verdict.SYNCED\n",
                "    if epoch == view.synced:\n        return Verdict.SYNCED\n    if epoch <= view.deprecated:\n"
                "        return Verdict.DEPRECATED\n",
            ),
        ),
    ),
    Mutant(
        "what the watch showed while the announcement was under way is forgotten",
        Area.PROTOCOL,
        (
            Edit(
                _AGENT,
                "    if isinstance(event, Accepted):\n        return _settle(waiting)\n",
                "    if isinstance(event, Accepted):\n        return waiting, ()\n",
            ),
        ),
        faults=("api-slow-answer",),
    ),
    Mutant(
        "a slot with two Pods is counted by either of them",
        Area.PROTOCOL,
        (
            Edit(
                _LEDGER,
                "    if len(slot) != 1:\n        return None\n    (only,) = slot.values()\n",
                "    if not slot:\n        return None\n    only = max(slot.values(), key=lambda it: it.epoch or 0)\n",
            ),
        ),
        "JobSet #665: Pods of attempt N talk to Pods of attempt N - 1 that still run",
        faults=("pod-slow-to-die",),
    ),
    Mutant(
        "Pods are counted instead of slots",
        Area.PROTOCOL,
        (Edit(_LEDGER, "self._ghosts == 0 and self._slots_at[top] == size", "self._pods_at[top] >= size"),),
        "NVRx #348: five live agents where four fit closed the rendezvous",
        faults=("pod-slow-to-die",),
    ),
    Mutant(
        "a terminating Pod is taken for gone",
        Area.PROTOCOL,
        (Edit(_LEDGER, "_OCCUPYING = (PodLife.LIVE, PodLife.LEAVING)", "_OCCUPYING = (PodLife.LIVE,)"),),
        "JobSet #684, #686: the next attempt starts while the last one still terminates",
        faults=("pod-slow-to-die",),
    ),
    Mutant(
        "Pods that a resize left over hold no barrier up",
        Area.PROTOCOL,
        (Edit(_LEDGER, "size > 0 and self._ghosts == 0 and", "size > 0 and"),),
        faults=(
            "resize",
            "term-ignored",
        ),
    ),
    Mutant(
        "a Pod that is gone stays counted when it was terminating",
        Area.PROTOCOL,
        (
            Edit(
                _LEDGER,
                "        record = self._records.pop(uid, None)\n        if record is None:\n            return\n",
                "        record = self._records.pop(uid, None)\n        if record is None or record.pod.life is "
                "PodLife.LEAVING:\n            return\n",
            ),
        ),
        "JobSet #576: a Pod stuck in Terminating blocks the recovery for ever",
        faults=("pod-force-deleted",),
    ),
    Mutant(
        "the exit of the last epoch's container counts against this one",
        Area.PROTOCOL,
        (
            Edit(
                _LEDGER,
                "record.pod.worker.failed and record.ran and self.synced == record.instance_synced",
                "record.pod.worker.failed",
            ),
        ),
        faults=(
            "worker-exit",
            "partition-kubelet",
        ),
    ),
    Mutant(
        "a worker that died stays on the list after the next sync",
        Area.PROTOCOL,
        (Edit(_LEDGER, "        self._broken.clear()\n", ""),),
    ),
    Mutant(
        "an epoch far ahead of the group is believed",
        Area.PROTOCOL,
        (Edit(_LEDGER, "if epoch is not None and epoch > self.synced + 1:", "if epoch is not None and epoch < 0:"),),
        faults=("annotation-tampered",),
    ),
    Mutant(
        "a supervisor announces while its worker still runs",
        Area.PROTOCOL,
        (
            Edit(
                _SUPERVISOR,
                "            return replace(state, life=WorkerLife.STOPPING, code=state.restart_code), (stop,)\n",
                "            return _begin_again(state)\n",
            ),
        ),
    ),
    Mutant(
        "a Pod that completed is waited for at the next barrier",
        Area.PROTOCOL,
        (
            Edit(_LEDGER, "return frozenset(self._succeeded) if self._is_restarting() else", "return"),
            Edit(
                "controller/plan/epochs.py",
                "].recreate or (completed and _is_restarting(draft, scope.name))",
                "].recreate",
            ),
        ),
        faults=("worker-completes",),
    ),
)

AGENT = (
    Mutant(
        "a lost reply is taken for a success, and nothing is announced again",
        Area.AGENT,
        (
            Edit(_ANNOUNCER, "            return NotAccepted(epoch)\n", "            return Accepted(epoch)\n"),
            Edit("agent/driver.py", "REMINDER_S: Final = (200.0, 300.0)", "REMINDER_S: Final = (1e9, 1e9)"),
        ),
        faults=("api-timeout-before-commit",),
    ),
    Mutant(
        "an announcement that was refused is not sent again",
        Area.AGENT,
        (Edit(_AGENT, "return state, (Announce(state.epoch),)", "return state, ()"),),
    ),
    Mutant(
        "the agent's consistent read is a cheap one",
        Area.AGENT,
        (
            Edit(
                _WATCH,
                "list_request(self._config, as_table=self._as_table, consistent=self._consistent)",
                "list_request(self._config, as_table=self._as_table, consistent=False)",
            ),
        ),
        faults=(
            "api-stale-cache",
            "pod-deleted",
        ),
    ),
    Mutant(
        "an agent takes any JobSet of the name for its own",
        Area.AGENT,
        (Edit("agent/jobset_events.py", 'seen.name == name and uid in ("", seen.uid)', "seen.name == name"),),
        faults=(
            "jobset-recreated",
            "agents-crash",
            "pod-slow-to-die",
        ),
    ),
    Mutant(
        "a worker that ignores SIGTERM is waited for without end",
        Area.AGENT,
        (
            Edit(
                "agent/supervisor_agent.py",
                "        self._worker.signal(signal.SIGKILL)\n        await self._clock.sleep(STUCK_S)\n",
                "        return\n",
            ),
        ),
        "JobSet #928: no restart begins before the failed Job's last Pod has ended",
        faults=("term-ignored",),
    ),
    Mutant(
        "a supervisor announces while processes that its worker left still run",
        Area.AGENT,
        (Edit("agent/supervisor_agent.py", "            await self._worker.gone()\n", "            pass\n"),),
    ),
)
