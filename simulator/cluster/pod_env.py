"""
Compute a container's environment and command from the Pod as it is NOW.

The kubelet does this anew at every container start, so an annotation written since the last start shows in a
downward-API variable. So a restarted agent knows the epoch that it announced before.
Source: pkg/kubelet/kubelet_pods.go makeEnvironmentVariables, third_party/forked/golang/expansion.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from inplace.common.kube.resources import KubeObject

_REFERENCE = re.compile(r"\$(?:\$|\((?P<name>[^()]+)\))")
_SUBSCRIPT = re.compile(r"metadata\.(?P<kind>labels|annotations)\['(?P<key>[^']+)'\]$")


_HELD_ELSEWHERE = {"configMapKeyRef", "secretKeyRef", "resourceFieldRef", "fileKeyRef"}
"""Sources whose values are not modelled: their variables are empty, as their volumes are empty folders."""


class PodConfigError(Exception):
    """The manifest needs a feature that this kubelet does not have."""


def container_env(
    container: Mapping[str, Any], pod: KubeObject, pod_ip: str, host_ip: str, base: Mapping[str, str]
) -> dict[str, str]:
    """Return the variables of one container.

    Args:
        container: the container's manifest.
        pod: the Pod as the kubelet last saw it.
        pod_ip: status.podIP, which the Pod object may not show yet.
        host_ip: status.hostIP.
        base: variables that every container gets; the manifest's win.

    Raises:
        PodConfigError: a source of values that is not modelled.
    """
    env = dict(base)
    for entry in container.get("env") or ():
        if "valueFrom" in entry:
            env[entry["name"]] = _referred(entry, pod, pod_ip, host_ip)
        else:
            env[entry["name"]] = expand(str(entry.get("value") or ""), env)
    return env


def container_command(container: Mapping[str, Any], env: Mapping[str, str]) -> list[str]:
    """Return command and arguments with $(VAR) expanded; an image's entrypoint is not known here."""
    words = [*(container.get("command") or ()), *(container.get("args") or ())]
    return [expand(str(word), env) for word in words]


def expand(text: str, env: Mapping[str, str]) -> str:
    """Replace $(NAME) by the variable's value, leave unknown names alone, and turn $$ into $."""

    def replaced(match: re.Match[str]) -> str:
        name = match["name"]
        if name is None:
            return "$"
        return env.get(name, match[0])

    return _REFERENCE.sub(replaced, text)


def _referred(entry: Mapping[str, Any], pod: KubeObject, pod_ip: str, host_ip: str) -> str:
    source = entry["valueFrom"]
    if source.get("fieldRef"):
        return field_value(source["fieldRef"]["fieldPath"], pod, pod_ip, host_ip)
    if set(source) <= _HELD_ELSEWHERE:
        return ""
    raise PodConfigError(f"env {entry['name']}: expected value or valueFrom.fieldRef, saw {sorted(source)}")


def field_value(path: str, pod: KubeObject, pod_ip: str, host_ip: str) -> str:
    """Return the value of a downward-API field path; a label or annotation that is not there is ""."""
    meta, spec = pod["metadata"], pod["spec"]
    if match := _SUBSCRIPT.match(path):
        return str((meta.get(match["kind"]) or {}).get(match["key"], ""))
    values = {
        "metadata.name": meta["name"],
        "metadata.namespace": meta.get("namespace", ""),
        "metadata.uid": meta["uid"],
        "spec.nodeName": spec.get("nodeName", ""),
        "spec.serviceAccountName": spec.get("serviceAccountName", "default"),
        "status.podIP": pod_ip,
        "status.podIPs": pod_ip,
        "status.hostIP": host_ip,
        "status.hostIPs": host_ip,
    }
    if path not in values:
        raise PodConfigError(f"fieldRef: expected one of {', '.join(values)} or a label or annotation, saw {path!r}")
    return str(values[path])
