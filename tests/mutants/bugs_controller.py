"""Bugs in the controller: leader election, passes over a JobSet, the budget of restarts."""

from tests.mutants.mutant import Area, Edit, Mutant

_LEADER = "controller/leader.py"
_TERM = "controller/term.py"
_RECONCILE = "controller/reconcile.py"
_GROUPS = "controller/groups.py"
_EXECUTE = "controller/execute.py"

LEADER = (
    Mutant(
        "a leader that lost the Lease stays, and nobody notices",
        Area.LEADER,
        (
            Edit(
                _LEADER,
                'raise LeadershipLostError(f"no renewal for {self._options.renew_deadline_s:g} s")',
                "return",
            ),
            Edit(
                _LEADER,
                """raise LeadershipLostError(f"the lease is held by {self._holder()!r}")""",
                "return",
            ),
        ),
        "kubernetes_asyncio leaderelection: the end of the leader's task is never noticed",
        faults=(
            "lease-stolen",
            "lease-deleted",
        ),
    ),
    Mutant(
        "a request for the Lease that hangs is waited for without end",
        Area.LEADER,
        (
            Edit(
                _LEADER,
                "async with self._clock.timeout(min(self._options.request_timeout_s, max(0.0, self.left_s))):",
                "async with self._clock.timeout(1e9):",
            ),
            Edit(
                _LEADER,
                "return self._valid_until_s - self._clock.monotonic_s() if self._leads else 0.0",
                "return 1e9 if self._leads else 0.0",
            ),
            Edit("common/kube/client.py", "REQUEST_TIMEOUT_S = 30.0", "REQUEST_TIMEOUT_S = 1e9"),
        ),
        "kubernetes_asyncio leaderelection: a hung request outlives the lease",
        faults=(
            "partition-controller",
            "api-timeout-before-commit",
        ),
    ),
    Mutant(
        "a Lease that is renewed is taken over all the same",
        Area.LEADER,
        (
            Edit(
                _LEADER,
                "            self._seen, self._seen_s = spec, self._clock.monotonic_s()\n",
                "            self._seen, self._seen_s = spec, self._seen_s or self._clock.monotonic_s()\n",
            ),
        ),
    ),
    Mutant(
        "the age of a Lease is told by the wall clock",
        Area.LEADER,
        (
            Edit(
                _LEADER,
                "self._seen, self._seen_s = spec, self._clock.monotonic_s()",
                "self._seen, self._seen_s = spec, self._clock.wall_s()",
            ),
            Edit(
                _LEADER,
                "return self._clock.monotonic_s() - self._seen_s >= duration_s",
                "return self._clock.wall_s() - self._seen_s >= duration_s",
            ),
        ),
        "kubernetes_asyncio leaderelection: time.time()",
        faults=(
            "clock-forward",
            "clock-back",
        ),
    ),
    Mutant(
        "a leader that stood still writes on when it wakes up",
        Area.LEADER,
        (
            Edit(
                _LEADER,
                '        if request.method != "GET":\n            left_s',
                '        if request.method == "NONE":\n            left_s',
            ),
        ),
        "HBase, as told by Kleppmann (How to do distributed locking, 2016): no fence behind a lock",
        faults=("two-leaders",),
    ),
)

CONTROLLER = (
    Mutant(
        "a status write that failed is not tried again",
        Area.CONTROLLER,
        (
            Edit(
                _TERM,
                "            self.queue.add_rate_limited(key, floor_s)\n",
                "",
            ),
        ),
        "JobSet #1194: no requeue after a failed status update",
        faults=("api-500",),
    ),
    Mutant(
        "a conflict is not tried again",
        Area.CONTROLLER,
        (
            Edit(
                _TERM,
                '            self.queue.add_rate_limited(key)\n            return "requeue"\n',
                '            return "requeue"\n',
            ),
        ),
        "JobSet #445, #747: what a conflict leaves undone",
        faults=("conflict",),
    ),
    Mutant(
        "the status is written over whatever is there",
        Area.CONTROLLER,
        (
            Edit(
                _RECONCILE,
                '"metadata": {"resourceVersion": jobset.resource_version, "uid": jobset.uid},',
                '"metadata": {"uid": jobset.uid},',
            ),
        ),
        "Sieve (OSDI'22): a deposed leader's stale write",
        faults=(
            "two-leaders",
            "api-slow",
            "controller-pause",
        ),
    ),
    Mutant(
        "Pods of a Job that is no longer wanted are counted",
        Area.CONTROLLER,
        (
            Edit(
                _GROUPS,
                "read_pod(pod, place, current=is_current(group.jobset, job))",
                "read_pod(pod, place, current=True)",
            ),
        ),
        "JobSet #1154, #1167: Pods of an older attempt are counted",
        faults=(
            "job-deleted",
            "pod-evicted",
        ),
    ),
    Mutant(
        "the end of a deleted Pod is not seen",
        Area.CONTROLLER,
        (
            Edit(
                _GROUPS,
                "and (new is None or new.job_uid != old.job_uid):\n            self._drop",
                "and new is not None and new.job_uid != old.job_uid:\n            self._drop",
            ),
        ),
        "JobSet #574: no restart when a Pod is deleted or its node shut down",
    ),
    Mutant(
        "a Job that is gone wakes nobody",
        Area.CONTROLLER,
        (
            Edit(
                _GROUPS,
                "if owner is not None and (group := self._groups.get(owner)) is not None:\n            only_counters",
                "if new is not None and owner is not None and (group := self._groups.get(owner)) is not None:\n"
                "            only_counters",
            ),
        ),
        "Volcano #5385: a targeted restart deletes what it needs and hangs in Restarting",
        faults=(
            "job-deleted",
            "worker-completes",
        ),
    ),
    Mutant(
        "a namesake's Job counts as created",
        Area.CONTROLLER,
        (Edit(_EXECUTE, "            if not _is_owned(created, jobset.uid):\n", "            if not created:\n"),),
        "JobSet #1154, #1167: objects of an older owner of the same name are counted",
        faults=("jobset-recreated",),
    ),
    Mutant(
        "one broken annotation ends the controller",
        Area.CONTROLLER,
        (
            Edit(
                "controller/pods.py",
                "    except RemoteProtocolError as error:\n        problems.append(str(error))\n        epoch = None\n",
                "    except RemoteProtocolError as error:\n        problems.append(str(error))\n        raise\n",
            ),
        ),
        faults=("annotation-tampered",),
    ),
    Mutant(
        "a worker that ends well is taken for a failure",
        Area.CONTROLLER,
        (
            Edit(
                "controller/pods.py",
                "(state.terminated is not None and state.terminated.exit_code != 0)",
                "(state.terminated is not None)",
            ),
        ),
    ),
    Mutant(
        "a barrier waits for the slots that were asked for at first",
        Area.CONTROLLER,
        (Edit(_GROUPS, "        group.learn()\n        group.reshape()\n", "        group.learn()\n"),),
        "JobSet #463, #1147: a group that is resized while it restarts",
        faults=("resize",),
    ),
    Mutant(
        "work begins before the caches are filled",
        Area.CONTROLLER,
        (Edit(_TERM, "                    await informer.wait_synced()\n", ""),),
        "Sieve (OSDI'22): a controller that has just started decides on what it has not seen",
        faults=(
            "controllers-crash",
            "controller-crash",
        ),
    ),
)

BUDGET = (
    Mutant(
        "a new leader forgets the restarts of the old one",
        Area.BUDGET,
        (
            Edit(
                "controller/group.py",
                "restarts_max=policy.restarts_max, uncounted=scope.exempt - elsewhere)\n",
                "restarts_max=policy.restarts_max,\n"
                "uncounted=self.since.setdefault(name, max(0, scope.synced - 1)) + scope.exempt - elsewhere)\n",
            ),
            Edit(
                "controller/group.py",
                "    told_s: float | None = None\n\n    @property\n    def key",
                "    told_s: float | None = None\n    since: dict[str, int] = field(default_factory=dict)\n\n"
                "    @property\n    def key",
            ),
        ),
        "Kubeflow trainer #3779: an object that is made anew begins with a full budget",
        faults=(
            "controllers-crash",
            "controller-crash",
        ),
    ),
    Mutant(
        "maxRestarts allows one restart fewer than it says",
        Area.BUDGET,
        (
            Edit(
                "common/epoch/ledger.py",
                "is_over = restarts > restarts_max and",
                "is_over = restarts >= restarts_max and",
            ),
        ),
    ),
    Mutant(
        "maxRestarts allows one restart more than it says",
        Area.BUDGET,
        (
            Edit(
                "common/epoch/ledger.py",
                "is_over = restarts > restarts_max and",
                "is_over = restarts > restarts_max + 1 and",
            ),
        ),
    ),
)
