"""Say where the log of a container that failed can be read. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from inplace.cli.group.pod_facts import PodFact
from inplace.cli.group.straggler import log_words


def log_advice(failure: Mapping[str, Any] | None, pods: Iterable[PodFact], namespace: str) -> str:
    """Return the command while the Pod is there; kubelet deletes the logs of a Pod with the Pod."""
    name = str((failure or {}).get("pod") or "")
    if failure is None or not name:
        return "find the log of the worker that failed first where this cluster collects logs"
    found = next((pod for pod in pods if pod.name == name), None)
    if found is None:
        return f"Pod {name} is gone with its log: look for it where this cluster collects logs"
    container = next((one for one in found.containers if one.name == failure.get("container")), None)
    when = "its Pod is being deleted: read its log now" if found.is_leaving else "read its log"
    return f"{when}: kubectl logs {log_words(name, container) or f'{name} --all-containers'} -n {namespace}"
