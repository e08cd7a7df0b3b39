"""What each event of a log says; docs/logs.md is made of it."""

from __future__ import annotations

from typing import Final

SENTENCES: Final = {
    "agent_awaited": "there is no lift yet: for how long, and what was seen of the agent; once in 10 s",
    "agent_started": "version, Pod, the epoch that it announced last; in supervisor mode also the worker's command",
    "agents_suit_server": (
        "the API server's version, and how agents are added for it: whether there are restart rules, and whether "
        "an init container copies the programs"
    ),
    "announcement_accepted": "the epoch, and the phases that the announcement carried",
    "announcement_failed": "cause, the server's message, when the agent tries again, and the cure if a person must act",
    "announcement_put_off": (
        "for how long: the server refused what this agent told of its worker, and named a time (Retry-After)"
    ),
    "announcement_void": (
        "the answer to the announcement says that this Pod is being deleted: it does not count, and this Pod "
        "joins no epoch; only with FENCE_AFTER_S"
    ),
    "announcing_again": (
        "the agent has waited at the barrier for 200 to 300 s and sends the same PATCH again ([ADR "
        "7](adr/0007-what-the-protocol-assumes.md))"
    ),
    "barrier_lifted": (
        "the epoch, and how long the agent waited for it; in a group with spares also the rank of this Pod, and the "
        "number of member Pods; `job` is the rank that its Job plays, where whole Jobs are members"
    ),
    "barrier_unavailable": "the port cannot be bound; exit 3, no announcement was sent",
    "bug": "a bug of ours, with its traceback; an agent ends with exit 70, the controller tries the JobSet again",
    "cache_filled": "a list of one kind was read",
    "check_failed": (
        "why this Pod may not join, with the last of the check's output; exit 6, the epoch is not announced"
    ),
    "check_killed": "the command of `--before-announce` is killed, and why",
    "check_passed": (
        "the command of `--before-announce` ended with 0, and how long it took ([A check before "
        "joining](worker.md#a-check-before-joining))"
    ),
    "check_unanswered": "it did not end in time, or cannot be run; the Pod joins all the same; the last of its output",
    "checks_awaited": "the agent waits for the checks of its guards: how many it expects, and how many are over",
    "clean_containers_wanted": (
        "the agent leaves, so that kubelet gives this Pod [clean "
        "containers](worker.md#clean-containers): epoch, reason, exit code"
    ),
    "cleaned": (
        "what was done before the announcement about [what outlives a worker](worker.md#what-outlives-a-worker), "
        "and what could not be"
    ),
    "consistent_view_wanted": "the view may be older than this Pod's own announcement; the agent reads again",
    "controller_started": "the caches are full, and work begins: how many JobSets and Pods there are",
    "controller_starting": "the controller's process runs: its API server and namespace",
    "credentials_refused": "the token or certificate was refused; they are read again",
    "epoch_not_kept": (
        "EPOCH_FILE, or EPOCH_FILE.ran beside it, cannot be written or read; the agent uses the annotation instead"
    ),
    "epoch_not_recalled": (
        "EPOCH_FILE, or EPOCH_FILE.ran beside it, cannot be written or read; the agent uses the annotation instead"
    ),
    "epochs_exhausted": "no epoch follows 2147483647; recreate the JobSet",
    "epochs_written": (
        "the status has a new synced or deprecated epoch, and why the group restarts ([protocol.md](protocol.md))"
    ),
    "event_not_written": "a Kubernetes Event was refused",
    "events_dropped": "more Events waited than the queue holds; `count` of them were dropped",
    "failure_not_told": (
        "the API server refused or did not answer the PATCH; kubelet, or the next announcement, shows the failure later"
    ),
    "failures_not_kept": "EPOCH_FILE.failures cannot be written or read; the next failure counts as the first",
    "failures_not_recalled": "EPOCH_FILE.failures cannot be written or read; the next failure counts as the first",
    "finished_jobset_deleted": "`ttlSecondsAfterFinished` is over",
    "installation_complete": "CRD, rights and policies are as this version needs them",
    "installation_incomplete": (
        "what is missing in the installation, and the cure; as an error the controller is not ready "
        "([install.md](install.md))"
    ),
    "eviction_not_reported": "an eviction waits for this controller, and its report was refused; it is sent again",
    "evictions_not_watched": "the API server does not serve EvictionRequests, which are alpha; nothing else changes",
    "gangs_unavailable": "the API server serves no Workloads and PodGroups, or does not let the controller use them",
    "gangs_unknown": "the API server did not say whether it serves Workloads and PodGroups; JobSets with a gang wait",
    "installation_not_looked_at": "the API server did not say what is installed; it is asked again",
    "job_deleted": "a Job is deleted, and why",
    "jobset_deleted": "the JobSet is gone; Kubernetes will delete this Pod",
    "jobset_ignored": "an event belongs to another JobSet, or to a new JobSet of the same name",
    "jobset_status_malformed": "the status holds no readable epochs; the agent ignores the view",
    "job_events_unread": "the Events of a Job without Pods could not be read, so the JobSet does not say why",
    "jobset_unreadable": "a JobSet cannot be read; nothing is done to it until it changes",
    "last_line_refused": (
        "deploy/admission is older than the agent, and refused the last line of the worker that failed"
    ),
    "leadership_lost": "another replica may lead: this one writes nothing any more, and ends",
    "leadership_not_acquired": "the Lease could not be read or written, and is tried again",
    "leadership_not_released": "it could not; the Lease expires",
    "leadership_not_renewed": "the same for the leader: for how many seconds it still leads",
    "leadership_released": "the leader gave its Lease back at its end, so that another replica leads at once",
    "leadership_won": "this replica leads now",
    "lease_not_renewed": (
        "a consistent read of the JobSet failed: why, and for how many seconds the worker may still run"
    ),
    "lease_over": (
        "no such read was answered for FENCE_AFTER_S: the worker is killed, and none starts until one is "
        "([nodes.md](nodes.md#a-dead-node-in-seconds))"
    ),
    "leftovers_killed": (
        "an earlier supervisor in this container was killed, and processes of its worker still ran; this guard "
        "killed them ([ADR 81](adr/0081-one-worker-host.md))"
    ),
    "link_refused": "a process of this Pod connected to the link and said something else than a guard does",
    "link_unavailable": "the agent cannot listen at LINK_FILE; a guarded worker does not start",
    "log_lines_dropped": (
        "these lines were not written: they were too many before the log's start, or no program read this log"
    ),
    "log_lines_left_out": (
        "other processes of the Pod caused more lines of this event than 10 a minute; `lines` of them were left out"
    ),
    "object_skipped": "the API server sent an object that cannot be read: its kind, and how it begins",
    "node_not_read": (
        "the node of a Pod that failed first, or that a barrier waits for, could not be read within a second: the Pod "
        "restarts in place ([nodes.md](nodes.md#marked-nodes))"
    ),
    "node_tainted": "a bad node was tainted, so that Kueue moves its Pod (`--taint-bad-nodes`)",
    "notice_told": "the agent tells the group of a worker that runs on: a busy rank, a bad loss, or slow steps",
    "notice_not_told": "the PATCH that tells of a worker that runs on was refused or got lost; training goes on",
    "notice_listed": "a Pod told of its worker, which runs on, and `status.notices` lists it",
    "node_untainted": "a taint of ours was removed from a node",
    "node_not_untainted": "a taint of ours could not be removed from a node; it is tried again",
    "steps_begun": "some rank of this Pod reported its first step in this epoch",
    "steps_not_seen": "the steps in a worker's output cannot be written for the agent (`--step-pattern`), and why",
    "tail_not_kept": "what a run of the worker wrote last cannot be kept for `inplace logs`, and why",
    "tainted_nodes_not_read": "the nodes that are tainted could not be listed; until then no node is tainted",
    "pass_failed": "one pass over a JobSet failed, and is tried again with growing waits",
    "process_open": (
        "agent or guard could not set PR_SET_DUMPABLE: other processes of its user can read it, and speak for it"
    ),
    "port_unavailable": "the port for health and metrics cannot be bound; exit 1",
    "progress_unreadable": "why the watchdog cannot read the progress files; until it can, no silence is counted",
    "reaper_refused": "the system does not let this process adopt the worker's orphans; exit 2, no request was sent",
    "restart_scope_unknown": (
        "the JobSet restarts in scopes ([ADR 23](adr/0023-who-is-in-the-group.md)) and RESTART_SCOPE names none of "
        "them, or its scope has spares and MEMBERS is missing; the agent announces nothing and logs which variable the "
        "manifest lacks"
    ),
    "restarting_in_place": (
        "the reason (`deprecated`, `passed`, `worker_failed`, `worker_stalled`), the synced and deprecated epoch "
        "that the agent saw, the exit code for kubelet"
    ),
    "save_not_requested": "the worker could not be asked to save: its epoch, why; it is stopped unsaved",
    "save_requested": "the worker was asked to save before a planned stop; its epoch ([saving.md](saving.md))",
    "send_initial_events_refused": "the server is older; watches begin at the version that was seen last",
    "server_busy": "the API server rejected a list or watch, which is tried again when it asked for that",
    "server_unreachable": "no connection for a list or watch; it is tried again",
    "setting_ignored": "the agent ignores a variable with a strange value and goes on",
    "setting_refused": "a setting cannot be used; exit 2, no request was sent",
    "signalled": "SIGTERM or SIGINT ended the program, or the worker saves first",
    "stack": (
        "where a thread of a rank is: `request`, `rank`, `pid`, `step`, `by` (faulthandler, py-spy or kernel), the "
        "process's `state`, `thread`, and `frames`, the innermost first; `inplace stacks` reads it"
    ),
    "stacks_request_refused": "a request for stacks on the JobSet that cannot be read; no worker is asked",
    "stacks_taken": "an answer to a request for stacks is over: `request`, how many ranks, and `took_s`; or why not",
    "stall_command_killed": "that command is killed, and why",
    "stall_examined": "the command of `--on-stall` is over: how long it took, and what went wrong with it",
    "stall_examining": (
        "the command of `--on-stall` runs for a worker that hangs: how long it has been silent, and for which process"
    ),
    "stall_limit_refused": (
        "an annotation is no limit: its name, the expected and the seen value; the limit stays as it was"
    ),
    "stall_limit_too_short": (
        "even the fastest of a rank's first steps took longer than the stall limit; the limit in use, twice that step"
    ),
    "stall_limits": "an annotation of the JobSet changed the stall limits; the limits that hold now",
    "stall_limits_unused": "the JobSet is annotated with a limit, but no agent can watch this Pod's worker, and why",
    "standby_ended": (
        "the next start is an ordinary one, and why: the standby ended, made a step, took too long, or was not "
        "ready when the worker ended or the barrier lifted"
    ),
    "standby_ready": "the next run's process waits: how long it took, its memory ([Standby](worker.md#standby))",
    "spare_completed": (
        "the JobSet has completed, and this Pod runs no worker: its workers' containers end with 0 ([ADR "
        "107](adr/0107-members.md))"
    ),
    "spare_waiting": (
        "this epoch runs without this Pod, which waits as a spare; once in each epoch; `slot` is its Job's index, "
        "where whole Jobs are members"
    ),
    "step_unfit": "two runs in a row went on from this step and failed before their first one; the group takes another",
    "standby_released": "the process that waited is the worker of this epoch",
    "standby_unavailable": "`--standby` has no effect, and why",
    "start_put_off": (
        "the server's first answers came late, and the agent of a large group goes on at its slot"
        " ([ADR 10](adr/0010-herd.md))"
    ),
    "table_columns_missing": "the CRD lacks our columns; the agent reads whole objects from now on",
    "version_unknown": "the server does not tell its version; agents are added as for a new server",
    "watch_denied": "a right for a list or watch is missing; it is tried again slowly",
    "watch_ended": "the server closed the watch, or its history was too old to resume from",
    "watch_expired": "the history of a watch is gone; the kind is listed again",
    "watch_failed": "the same for the list and the watch",
    "work_unfinished": "the leader's end came before its last writes were answered",
    "worker_exited": (
        "the worker ended: its exit code; an agent that stays also says how long its process tree took to go"
    ),
    "worker_failed": (
        "a guard told that its worker died, or the watchdog that it hangs, and when this agent will tell the controller"
    ),
    "rank_failed": (
        "an exception, or `sys.exit`, ended a rank's main thread: its exit code; exit "
        "handlers have 5 s ([worker.md](worker.md#when-a-rank-fails-and-its-process-does-not-end))"
    ),
    "worker_killed": "the worker did not end within its grace period",
    "worker_not_started": (
        "the worker's command cannot be executed: which file, and what is wrong with it; the run ends at once"
    ),
    "worker_tail": (
        "what a run of the worker wrote last, in pieces: its epoch, when it began and ended, how many bytes it had "
        "written before ([worker-logs.md](worker-logs.md))"
    ),
    "worker_stalled": (
        "the worker hangs: the rank that is furthest behind, its last step, how long it has been silent, the "
        "limit, its busy phase ([hangs.md](hangs.md))"
    ),
    "worker_starting": "the epoch of a worker that is about to start: what its container prints from here on is of it",
    "worker_started": "the barrier is lifted, and the worker's process runs; without an epoch: in-place restart is off",
    "worker_stopping": "the worker is being ended: why, with which signal, and its grace period",
    "worker_stuck": "processes of the worker survive SIGKILL; the next epoch is not announced",
}
