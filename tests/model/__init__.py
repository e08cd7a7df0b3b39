"""
An explicit-state model checker for the protocol: breadth first over the production `step` and `Ledger`.

    python -m tests.model            every configuration, then every planted bug; minutes
    python -m tests.model --quick    small bounds; what pytest runs

What is checked is not a copy: `common.epoch.agent.step` moves every agent and `common.epoch.ledger.Ledger`
decides for every controller. Only the environment is modelled here:

* Agents. A PATCH is on the wire, then stored (or refused), then answered (or the answer is lost); an agent
  may die between any two of these. A PATCH whose sender gave up may still be stored later.
* Views. A cheap view is any of the last `stale` versions of the status, in any order, any number of times. A
  consistent view is any version since the agent's process started: the read was consistent, its delivery may
  be late. Delivery of the current version is always enabled, so a stale cache delays a Pod and does not hold
  it for ever.
* kubelet. A worker that dies, an agent that dies and an agent that asks for a restart all make kubelet remove
  ALL containers of the Pod and then start them again. Until it does, the old worker runs. A new agent's
  `previous` is the Pod's annotation at that moment.
* Pods. A Pod may be replaced: it turns LEAVING with agent and worker still at work, and goes some time later.
  The replacement has a new uid and no annotation. With `overlap` it may come while the old one is LEAVING
  (podReplacementPolicy TerminatingOrFailed), without only AFTER (Failed, what the manifests ask for).
* Controller. It sees each Pod's state with its own lag, decides from that, and writes with a resourceVersion.
  It may crash: the next one lists everything consistently. At a handover the old leader goes on writing from
  Pod caches that never change again, with a JobSet it re-reads at every conflict.
* Workers may die and, with `success`, complete. With `early`, kubelet reports the container's state, with
  lag.

Every fault costs one of `faults`, which makes the space finite.

Assumptions, without which the rules would not hold:

* A PATCH of an agent that is gone is stored before its Pod's containers start again, or never.
* kubelet evaluates `previous` from a Pod at least as new as the last annotation that was stored before the
  restart.
* A Pod whose object is gone runs nothing.
* JobSet writes with an old resourceVersion fail; a Job is deleted with its UID as precondition.

Not modelled: resizes, suspend and bypass (tests/scripts and tests/epoch do), int32's end, time and backoff,
kubelet reporting a sidecar as started too early, tampering with annotations, upstream's agents and
controller, clocks.

Rules checked in EVERY state or on every write: see `tests.model.rules`.
"""
