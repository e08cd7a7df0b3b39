"""Bugs between the API server and the programs: in watches, informers, the workqueue and backoff."""

from tests.mutants.mutant import Area, Edit, Mutant

_INFORMER = "common/kube/informer.py"
_QUEUE = "common/kube/workqueue.py"

INFORMER = (
    Mutant(
        "a watch that went silent is never given up",
        Area.INFORMER,
        (
            Edit(
                "common/kube/watch.py",
                "async with clock.timeout(inactivity_s):",
                "async with clock.timeout(1e9):",
            ),
        ),
        "kopf #957, #1120, #1276: the operator goes blind until somebody restarts it",
    ),
    Mutant(
        "an informer resumes from the version that is gone",
        Area.INFORMER,
        (
            Edit(
                _INFORMER,
                '                    self._log.info("watch_expired", **keys)\n                    self._since = None\n',
                '                    self._log.info("watch_expired", **keys)\n',
            ),
        ),
        "kubernetes_asyncio #327: 410 is retried with the same resourceVersion",
        faults=("api-compaction",),
    ),
    Mutant(
        "an informer that lists again does not tell what vanished",
        Area.INFORMER,
        (
            Edit(
                _INFORMER,
                "for key in [key for key in self._objects if key not in new_keys]:",
                "for key in [key for key in self._objects if key is new_keys]:",
            ),
        ),
        "Sieve (OSDI'22): unobserved states",
        faults=(
            "api-compaction",
            "api-410-storm",
            "pod-deleted",
        ),
    ),
    Mutant(
        "an informer ends with its first broken connection",
        Area.INFORMER,
        (
            Edit(
                _INFORMER,
                "                    await self._clock.sleep(self._backoff.next_s())\n"
                "                case Unauthenticated(error):",
                "                    return\n                case Unauthenticated(error):",
            ),
        ),
        "kubernetes_asyncio #235: the watch dies with an ordinary disconnect",
        faults=(
            "watch-reset",
            "connection-refused",
        ),
    ),
    Mutant(
        "the answer to a write brings back what was deleted meanwhile",
        Area.INFORMER,
        (
            Edit(
                _INFORMER,
                "if number is not None and since is not None and number > since:",
                "if number is not None:",
            ),
        ),
        faults=(
            "api-slow-answer",
            "jobset-recreated",
            "job-deleted",
        ),
    ),
)

QUEUE = (
    Mutant(
        "a key that is added while it is processed is lost",
        Area.QUEUE,
        (
            Edit(
                _QUEUE,
                "        self._added_s[key] = self._clock.monotonic_s()\n",
                "        if key in self._started_s:\n            return\n"
                "        self._added_s[key] = self._clock.monotonic_s()\n",
            ),
        ),
        faults=(
            "worker-exit",
            "event-delayed",
        ),
    ),
    Mutant(
        "a delayed key waits for the next one",
        Area.QUEUE,
        (
            Edit(
                _QUEUE,
                "heapq.heappush(self._later, (due_s, self._sequence, key))\n        self._rescheduled.set()\n",
                "heapq.heappush(self._later, (due_s, self._sequence, key))\n",
            ),
        ),
        faults=(
            "api-500",
            "conflict",
        ),
    ),
    Mutant(
        "a second delay of a key replaces an earlier one, and is dropped itself",
        Area.QUEUE,
        (
            Edit(
                _QUEUE,
                "        if self._shut_down or self._due_s.get(key, due_s + 1) <= due_s:\n            return\n"
                "        self._due_s[key] = due_s\n        self._sequence += 1\n",
                "        if self._shut_down:\n            return\n        if key in self._due_s:\n"
                "            self._due_s[key] = due_s\n            return\n"
                "        self._due_s[key] = due_s\n        self._sequence += 1\n",
            ),
        ),
        faults=(
            "api-500",
            "conflict",
        ),
    ),
)

BACKOFF = (
    Mutant(
        "an agent does not listen to Retry-After",
        Area.BACKOFF,
        (
            Edit(
                "agent/retry_budget.py",
                "return self._in_line_s(now_s, after_s, width_s=after_s)",
                "return self._in_line_s(now_s, 0.0, width_s=after_s)",
            ),
        ),
        faults=(
            "api-429",
            "api-503",
        ),
    ),
)
