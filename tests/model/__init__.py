"""
An explicit-state model checker for the protocol: breadth first over the production `step` and `Ledger`.

    python -m tests.model            every configuration, then every planted bug; minutes
    python -m tests.model --quick    small bounds; what pytest runs

The checked code is production's: `common.protocol.agent.step` moves every agent and `common.protocol.ledger.Ledger`
decides for every controller. Only the environment is modelled here:

* Agents. A PATCH is on the wire, then stored (or refused), then answered (or the answer is lost); an agent may
  die between any two of these. A PATCH whose sender gave up may still be stored later.
* Views. A cheap view is any of the last `stale` versions of the status, in any order, any number of times. A
  consistent view is any version since the agent's process started: the read was consistent, its delivery may be
  late. Delivery of the current version is always enabled, so a stale cache delays a Pod, not for ever.
* kubelet. A worker that dies, an agent that dies and an agent that asks for a restart all make kubelet remove
  ALL containers of the Pod and then start them again. Until it does, the old worker runs. A new agent's
  `previous` is the Pod's annotation at that moment.
* Supervisors. With `supervisor` every agent is production's supervisor, and the worker its child. That the worker's
  main process dies, that the supervisor notices, and that the last process of its tree is gone are three moves; until
  the third, the worker counts as running. A worker that was told to stop may exit with anything. The watch stays open:
  no version is shown twice, so that a supervisor that forgets a view is stuck. A Pod that is LEAVING gets SIGTERM at
  some time. When the supervisor dies, its worker runs on until kubelet starts the container again.
* Pods. A Pod may be replaced: it turns LEAVING with agent and worker still at work, and goes some time later.
  The replacement has a new uid and no annotation. With `overlap` it may come while the old one is LEAVING
  (podReplacementPolicy TerminatingOrFailed), otherwise only AFTER it (Failed, as in the manifests). With
  `ghosts` a scale-down has just removed slots whose workers still run.
* Controller. It sees each slot's state with its own lag, decides from that, and writes with a resourceVersion.
  It may crash: the next one lists everything consistently. At a handover the old leader goes on writing, from
  Pod caches that never change again or (`old_watches`) that lag on their own, with a JobSet it re-reads at every
  conflict.
* The status. With `lost` a person removes it, or writes an older one; with `torn` a person writes D beyond S, which
  production's `common.wire.names` reads. A process that saw the loss sees no older version. After a loss, S2 is checked
  for each Pod instead of each slot, and one Pod that stays ahead of all others is deleted in the end (docs/adr/0007).
* With `fence`, nodes are cut off and heal, and time passes in ticks. What the group may rely on of a Pod's lease is in
  `tests.model.leases`; that an agent keeps it is shown for one Pod, read by read (`tests.model.promises`). One Pod of
  a slot is LEAVING at a time: where its replacement is cut off, too, the first node ends before the second Pod leaves.
  With a fence no agent dies and no status is lost.
* Workers may die and, with `success`, complete. With `early`, kubelet reports the container's state, with lag.

Every fault costs one of `faults`, which makes the space finite.

Assumptions. Each but the third can be dropped, and then a rule breaks (`tests.planted`):

* A PATCH of an agent that is gone is stored before its Pod's containers start again (a supervisor's: before it
  announces its next epoch), or never. Not needed where admission refuses to lower the annotation: `admission` shows it.
* kubelet evaluates `previous` from a Pod at least as new as the last annotation stored before the restart.
* A Pod whose object is gone runs nothing.
* JobSet writes with an old resourceVersion fail.
* A Job is deleted with its UID as precondition.
* A controller sees the events of one slot's Pods in their order, and decides from no half of a list.

Groups with spares have a world of their own (`tests.model.members`): there a restart of a Pod's containers is one move.
So have groups whose Pods save steps (`tests.model.resume`), with the same parts.
Escalation has one (`tests.model.escalations`): windows, steps, the clock, changes of leader; with nodes
in it, Jobs leave bad domains (`tests.model.bad_domains`). So have restarts in vain, which wait (`tests.model.pacing`):
when, for how long, and by whose clock.

Not modelled: scale-up, suspend and bypass (tests/scripts and tests/common/protocol do), several slots to a Job, int32's
end, backoff, kubelet reporting a sidecar as started too early, tampering with annotations, upstream's
agents and controller.

Slots are alike: agents do not know their slot's number, and the ledger uses it only to find the Pods of one slot, and
in sums, sets and maxima over slots. So two states of which one is the other with its slots numbered anew (in Pods and
in what controllers know of them) have the same moves, break the same rules, and come together or not. Only one of them
is explored (`World.canonical`), and it counts for all of them: the numbers in the report are those of the whole space.
A test compares them with an exploration of every state. Groups with spares are not like that: rank r is slot r's.

The rules are in `tests.model.rules`. S1 is checked in every state, S2 and S3 whenever a worker starts, the others
at every write. L1: from every state the group can come together by moves that are no faults.
"""
