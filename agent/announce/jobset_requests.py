"""
The requests of one start, as bytes on the wire: a list of one JobSet, a patch of one Pod, a watch from that list on.

Why a list and not a watch with initial events: a list ends, so all three go over one connection. What that saves
is in docs/adr/0009-transport.md.
Source: "Resource versions" in Kubernetes' API concepts.
"""

from __future__ import annotations

import json

from inplace.agent.settings.address import has_saved
from inplace.agent.settings.config import AgentConfig
from inplace.agent.settings.epoch_file import EpochFile
from inplace.agent.version import VERSION
from inplace.common.bare.typed import Any, Final
from inplace.common.kube.http.request import Request
from inplace.common.protocol.resume import NOTHING, Resume, Saved
from inplace.common.wire.names import (
    API_VERSION,
    FENCED_WITHIN,
    FIELD_MANAGER_AGENT,
    LAST_LINE,
    NOTICE,
    PHASES,
    RAN,
    WORKER_FAILED,
    epoch_annotations,
)

WATCH_TIMEOUT_S: Final = 3000  # like the server's own, which is 1,800 to 3,600 s
WATCH_TIMEOUT_JITTER_S: Final = 600  # 5,000 agents reopen at 8 per second, not at once
USER_AGENT: Final = f"{FIELD_MANAGER_AGENT}/{VERSION}"
_PLAIN: Final = "application/json"
_TABLE: Final = "application/json;as=Table;g=meta.k8s.io;v=v1, application/json"
_METADATA: Final = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1, application/json"
_STRATEGIC_MERGE: Final = "application/strategic-merge-patch+json"


def begins_consistent(config: AgentConfig) -> bool:
    """Say whether a cheap first view could not be fresh: this Pod does not know what it announced last."""
    return config.previous_epoch is None


def list_request(config: AgentConfig, *, as_table: bool, consistent: bool) -> Request:
    """Return the read of the collection that holds at most our JobSet: consistent, or from the watch cache.

    Version 0 takes what the cache has. No version takes a quorum read, and on Kubernetes before 1.31 one of etcd.
    """
    return _jobsets(config, "" if consistent else "&resourceVersion=0", as_table)


def watch_request(
    config: AgentConfig, *, as_table: bool, resource_version: str, from_state: bool = True, jitter: float
) -> Request:
    """Return the watch from `resource_version` on.

    Args:
        config: names, checked.
        as_table: rows instead of whole objects.
        resource_version: where the list or the last watch was.
        from_state: begin with the JobSet as it is, not older than that version. A Table watch should: the column
            definitions (1.8 kB) go with what a watch encodes first, and an event is encoded once for all watchers. So
            without this the definitions would go with a status write's event, to every watcher at once.
        jitter: in [0, 1); spreads the deadline that the server is asked to keep.
    """
    timeout_s = WATCH_TIMEOUT_S + int(WATCH_TIMEOUT_JITTER_S * jitter)
    query = f"&watch=1&allowWatchBookmarks=true&timeoutSeconds={timeout_s}&resourceVersion={_encoded(resource_version)}"
    if from_state:
        query += "&sendInitialEvents=true&resourceVersionMatch=NotOlderThan"
    return _jobsets(config, query, as_table)


def announcement_request(
    config: AgentConfig, epoch: int, phases: str = "", last_line: str = "", *, ran: int = 0, saved: Saved = NOTHING
) -> Request:
    """Return the patch that announces `epoch` on our Pod, in both encodings, with the texts that there are.

    Args:
        config: names, checked.
        epoch: int32 >= 1.
        phases: a text of `common.wire.phases`.
        last_line: a text of `common.wire.last_line`.
        ran: the last epoch in which this Pod started a worker, 0 for none.
        saved: what this Pod could load; told with `ran` where there is something, and in a group with spares.
    """
    annotations = epoch_annotations(epoch) | ({PHASES: phases} if phases else {})
    if last_line:
        annotations[LAST_LINE] = last_line
    if config.slot is not None or saved != NOTHING:
        from inplace.common.wire.members import Announced, announcement_text

        annotations[RAN] = announcement_text(epoch, Announced(ran, saved))
    if config.fence_after_s:
        from inplace.common.protocol.lease import promised_s

        annotations[FENCED_WITHIN] = str(promised_s(config.fence_after_s))
    return _annotate(config, annotations)


def saved_in(config: AgentConfig, memory: EpochFile, epoch: int, resume: Resume | None) -> Saved:
    """Return what this Pod could load, for the announcement of `epoch`, and keep it; see `agent.progress.saved_steps`.

    `resume` is from where the epoch before went on; this Pod need not have run in it.
    """
    folder = config.progress_dir
    if not folder or (memory.recall_saved() is None and not has_saved(folder)):
        return NOTHING
    from inplace.agent.progress.saved_steps import saved_steps

    return saved_steps(folder, memory, epoch, resume)


def failure_request(config: AgentConfig, failure: str, last_line: str = "") -> Request:
    """Return the patch that tells how our Pod's worker died; `failure` is a text of `common.wire.worker_failure`."""
    return _annotate(config, {WORKER_FAILED: failure} | ({LAST_LINE: last_line} if last_line else {}))


def notice_request(config: AgentConfig, notice: str) -> Request:
    """Return the patch that tells of our Pod's worker while it runs; `notice` is a text of `common.wire.notice`."""
    return _annotate(config, {NOTICE: notice})


def _annotate(config: AgentConfig, annotations: dict[str, str]) -> Request:
    """Return a patch of our Pod's annotations.

    Strategic merge is the cheapest patch of a built-in kind; the uid keeps it off a same-named successor.
    """
    metadata: dict[str, Any] = {"uid": config.pod_uid} if config.pod_uid else {}
    metadata["annotations"] = annotations
    return Request(
        "PATCH",
        f"/api/v1/namespaces/{config.namespace}/pods/{config.pod_name}"
        f"?fieldManager={FIELD_MANAGER_AGENT}&fieldValidation=Ignore",
        {"accept": _METADATA, "content-type": _STRATEGIC_MERGE, "user-agent": USER_AGENT},
        json.dumps({"metadata": metadata}, separators=(",", ":")).encode(),
    )


def _jobsets(config: AgentConfig, query: str, as_table: bool) -> Request:
    """Return a GET of the collection, narrowed to our JobSet; the config checked the names."""
    path = f"/apis/{API_VERSION}/namespaces/{config.namespace}/jobsets"
    query = f"fieldSelector=metadata.name%3D{config.jobset_name}{query}"
    if as_table:
        query += "&includeObject=None"
    headers = {"accept": _TABLE if as_table else _PLAIN, "user-agent": USER_AGENT}
    return Request("GET", f"{path}?{query}", headers)


def _encoded(resource_version: str) -> str:
    """Percent-encode an opaque resourceVersion; in practice it is digits."""
    if resource_version.isascii() and resource_version.isalnum():
        return resource_version
    from urllib.parse import quote

    return quote(resource_version, safe="")
