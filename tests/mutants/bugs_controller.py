"""Bugs in the controller: leader election, passes over a JobSet, the budget of restarts."""

from tests.mutants.mutant import Area, Edit, Mutant

_LEADER = "controller/api/leader.py"
_TERM = "controller/term.py"
_RECONCILE = "controller/act/reconcile.py"
_GROUPS = "controller/tracking/membership.py"
_EXECUTE = "controller/act/execute.py"

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
        faults=("conflict",),
    ),
    Mutant(
        "the end of a deleted Pod is not seen",
        Area.CONTROLLER,
        (
            Edit(
                _GROUPS,
                "(left_uid := old.job_uid) is not None and left_uid != job_uid:",
                "(left_uid := old.job_uid) is not None and left_uid != job_uid and new is not None:",
            ),
        ),
        "JobSet #574: no restart when a Pod is deleted or its node shut down",
        faults=("pod-force-deleted",),
    ),
    Mutant(
        "a Pod that vanished while it waits is forgotten",
        Area.CONTROLLER,
        (
            Edit(
                _GROUPS,
                "            home.ledger.vanish(pod_uid)",
                "            home.ledger.forget(pod_uid)",
            ),
        ),
        faults=(
            "pod-force-deleted",
            "pod-slow-to-die",
            "connection-refused",
        ),
    ),
    Mutant(
        "a Job that is gone wakes nobody",
        Area.CONTROLLER,
        (
            Edit(
                _GROUPS,
                "if (group := self._owned_by(owner)) is not None:\n            only_counters",
                "if new is not None and (group := self._owned_by(owner)) is not None:\n            only_counters",
            ),
        ),
        "Volcano #5385: a targeted restart deletes what it needs and hangs in Restarting",
        faults=(
            "job-deleted",
            "worker-completes",
        ),
    ),
    Mutant(
        "Pods of an older JobSet of the same name are counted",
        Area.CONTROLLER,
        (
            Edit(
                _GROUPS,
                "        group = self._owned_by(_owner_of(job))\n        if group is None:\n",
                "        group = next(iter(self._groups.values()), None)\n        if group is None:\n",
            ),
        ),
        "JobSet #1165, #1167: child Jobs are listed by the name of their JobSet, not by its UID",
        faults=("jobset-recreated",),
    ),
    Mutant(
        "one broken annotation ends the controller",
        Area.CONTROLLER,
        (
            Edit(
                "controller/tracking/pods.py",
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
                "controller/tracking/pods.py",
                "(state.terminated is not None and state.terminated.exit_code != 0)",
                "(state.terminated is not None)",
            ),
        ),
    ),
    Mutant(
        "a barrier waits for the slots that were asked for at first",
        Area.CONTROLLER,
        (Edit(_GROUPS, "        group.learn()\n        group.reshape()\n", "        group.learn()\n"),),
        faults=("resize",),
    ),
)

BUDGET = (
    Mutant(
        "a restart in vain does not wait",
        Area.BUDGET,
        (Edit("controller/plan/crash_loop.py", "    if left_s > 0.0:\n", "    if left_s > 1e9:\n"),),
        faults=("worker-exit",),
    ),
    Mutant(
        "a new leader forgets the restarts of the old one",
        Area.BUDGET,
        (
            Edit(
                "controller/tracking/group.py",
                "restarts_max=restarts_max, uncounted=scope.exempt - elsewhere)\n",
                "restarts_max=restarts_max,\n"
                "uncounted=self.since.setdefault(name, max(0, scope.synced - 1)) + scope.exempt - elsewhere)\n",
            ),
            Edit(
                "controller/tracking/group.py",
                "    matches: Matches = field(default_factory=Matches)\n\n    @property\n    def key",
                "    matches: Matches = field(default_factory=Matches)\n"
                "    since: dict[str, int] = field(default_factory=dict)\n\n    @property\n    def key",
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
        faults=("worker-exit",),
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
