"""What a user sees of one JobSet: lines by what they are about, read from the API server."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from inplace.common.jobset.restart_history import history_of
from inplace.common.kube.errors import NotFound
from inplace.common.kube.resources import EVENTS, JOBS, NODES, PODS, KubeObject
from inplace.common.protocol.members import Members
from inplace.common.wire import names as wire
from inplace.common.wire.members import read_members
from tests.controller.crew import Crew

Sight = dict[str, str]

_PREFERRED: Final = "preferredDuringSchedulingIgnoredDuringExecution"
_COUNTS: Final = ("active", "ready", "succeeded", "failed", "suspended", "jobRestarts", "jobRestartsCountTowardsMax")

_THAT_GO: Final = ("job ", "notice ", "saving ", "restart ")  # Pods go all the time
_TOLD_BY_EVENTS: Final = ("InPlaceRestarting",)  # in the same words


class Names:
    """The names of a story: p0 is the first slot's Pod, p0.2 the one that replaced it; n0 is a node.

    Args:
        suffix: of the nodes' names on the server.
    """

    def __init__(self, suffix: str) -> None:
        self._suffix = suffix
        self.pods: dict[str, str] = {}  # by the API server's name
        self.slots: list[tuple[str, int]] = []
        self.jobs: dict[str, list[str]] = {}  # UIDs that were seen
        self.events: dict[str, str] = {}  # the words that were seen first

    def add(self, slot: tuple[str, int], pod: str) -> None:
        """Name a Pod by its slot."""
        if pod in self.pods:
            return
        if slot not in self.slots:
            self.slots.append(slot)
        number = f"p{self.slots.index(slot)}"
        earlier = sum(name.partition(".")[0] == number for name in self.pods.values())
        self.pods[pod] = number if not earlier else f"{number}.{earlier + 1}"

    def run(self, job: str, uid: str) -> int:
        """Return how many Jobs of this name there were, with this one."""
        seen = self.jobs.setdefault(job, [])
        if uid not in seen:
            seen.append(uid)
        return seen.index(uid) + 1

    def shown(self, text: str) -> str:
        """Return a text with the story's names."""
        text = text.replace(self._suffix, "") if self._suffix else text
        return re.sub(r"[a-z0-9-]+-\d+-\d+-\d{5}\b", lambda found: self.pods.get(found[0], found[0]), text)


def changes(before: Sight, after: Sight) -> list[str]:
    """Return the lines that are new, then what is gone."""
    lines = [line for about, line in after.items() if line and line != before.get(about)]
    ended = [about for about, line in before.items() if line and not after.get(about)]
    gone = [about for about in ended if about in after or about.startswith(_THAT_GO)]
    return lines + [f"no {about}" for about in gone]


async def look(crew: Crew, names: Names) -> Sight:
    """Read what there is to be seen."""
    try:
        status = await crew.status()
    except NotFound:
        return {"jobset": "the JobSet is gone"}
    jobs = {job["metadata"]["name"]: job for job in (await crew.client.list(JOBS, crew.namespace))["items"]}
    sight = dict(_epochs(status))
    sight |= {f"job {name}": line for name, line in _jobs(jobs, names)}
    pods = {pod["metadata"]["name"]: pod for pod in (await crew.client.list(PODS, crew.namespace))["items"]}
    sight |= {names.pods[name]: _pod(names.pods[name], pods[name]) for name in crew.pods.values() if name in pods}
    sight |= dict(_status(status))
    nodes = (await crew.client.list(NODES))["items"]
    sight |= {f"node {one['metadata']['name']}": _node(one) for one in nodes}
    events = (await crew.client.list(EVENTS, crew.namespace))["items"]
    told = {one["message"] for one in status.get("conditions") or ()}
    for one in events:
        names.events.setdefault(one["metadata"]["name"], names.shown(_event(one, crew.name, told)))
    sight = {about: names.shown(line) for about, line in sight.items()}
    return sight | dict(sorted(names.events.items(), key=lambda item: item[1]))


def _per_job(members: Members) -> str:
    return f" with {members.pods} pods each" if members.pods else ""


def _epochs(status: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for part in status.get(wire.SCOPED_EPOCHS) or (status,):
        synced, deprecated = wire.epochs_of_status(part)
        scope = f"{part['name']}: " if "name" in part else ""
        yield f"epochs {scope}".rstrip(": "), f"{scope}S={synced} D={deprecated}" if synced or deprecated else ""
        if (members := read_members(part.get(wire.MEMBERS_FIELD))) is not None:
            unit = "Job" if members.pods else "slot"
            exchanged = "".join(f", rank {rank} is {unit} {slot}" for rank, slot in members.exchanged)
            shown = (
                "nobody: the epoch is skipped" if members.skipped else f"{members.size}{_per_job(members)}{exchanged}"
            )
            if members.resume is not None:
                shown += f", from the {members.resume.kind} step {members.resume.step}"
            yield f"members {scope}".rstrip(": "), f"{scope}members: {shown}"
        if (saving := part.get(wire.SAVING)) is not None:
            yield (
                f"saving {scope}".rstrip(": "),
                f"{scope}workers save in epoch {saving['epoch']} for {_asked(saving)}",
            )


def _jobs(jobs: Mapping[str, KubeObject], names: Names) -> Iterator[tuple[str, str]]:
    for name, job in jobs.items():
        run = names.run(name, job["metadata"]["uid"])
        parts = [f"{job['spec'].get('parallelism')} pods"]
        parts += ["suspended"] if job["spec"].get("suspend") else []
        execution = (job["spec"]["template"]["metadata"].get("annotations") or {}).get(wire.EXECUTION_ATTEMPT, "0")
        parts += [f"execution {execution}"] if execution != "0" else []
        parts += ["leaves"] if "deletionTimestamp" in job["metadata"] else []
        parts += [f"made {run} times"] if run > 1 else []
        yield name, f"job {name}: {', '.join(parts)}"


def _pod(name: str, pod: KubeObject) -> str:
    spec, metadata = pod["spec"], pod["metadata"]
    ours = [one["name"] for one in spec.get("schedulingGates") or () if one["name"].startswith("inplace.dev/")]
    terms = (spec.get("affinity") or {}).get("nodeAffinity", {}).get(_PREFERRED) or ()
    fields = [one for term in terms for kind in term["preference"].values() for one in kind]
    avoided = [value for one in fields if one["operator"] == "NotIn" for value in one["values"]]
    parts = ["ends"] if "activeDeadlineSeconds" in spec else []
    parts += ["is held back"] if ours else []
    parts += [f"avoids {' '.join(avoided)}"] if avoided else []
    parts += ["is deleted"] if "deletionTimestamp" in metadata else []
    return f"{name} {', '.join(parts)}" if parts else ""


def _node(node: KubeObject) -> str:
    taints = [one["effect"] for one in node["spec"].get("taints") or () if one["key"] == wire.BAD_NODE]
    return f"node {node['metadata']['name']}: tainted {' '.join(taints)}" if taints else ""


def _status(status: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    counted = status.get("restartsCountTowardsMax") or 0
    yield "restarts", f"restarts: {status['restarts']}, {counted} counted" if status.get("restarts") else ""
    for entry in status.get("replicatedJobsStatus") or ():
        counts = [f"{name} {_number(entry[name])}" for name in _COUNTS if _some(entry.get(name))]
        yield f"counts of {entry['name']}", f"{entry['name']}: {', '.join(counts)}" if counts else ""
    for one in status.get("conditions") or ():
        words = "" if one["type"] in _TOLD_BY_EVENTS else f": {one['message']}"
        line = f"{one['type']} ({one['reason']}){words}"
        yield f"condition {one['type']}", line if one["status"] == "True" else f"no {one['type']}"
    yield "terminal", f"the JobSet has {state.lower()}" if (state := status.get("terminalState")) else ""
    for past in history_of(status):
        facts = [past.trigger, past.pod, f"on {past.node}" if past.node else "", past.reason, past.request]
        facts += [f"exit code {past.exit_code}"] if past.exit_code is not None else []
        facts += ["and did not finish"] if past.took_ms is None else []
        facts += [f"from the {past.resume_kind} step {past.resume_step}"] if past.resume_step is not None else []
        facts += [f"steps made again: {past.lost_steps}"] if past.lost_steps else []
        facts += [f"({past.last_line})"] if past.last_line else []
        where = f"{past.scope} " if past.scope else ""
        yield f"restart {where}{past.epoch}", f"restart {where}{past.epoch}: {' '.join(fact for fact in facts if fact)}"
    for one in status.get(wire.NOTICES) or ():
        scope = f" of {one['scope']}" if one.get("scope") else ""
        yield f"notice {one['kind']} {one['pod']}", f"notice{scope}: {one['pod']} {one['kind']} {one['value']}"


def _event(event: KubeObject, jobset: str, told: set[str]) -> str:
    """Return an Event; words that a condition has as well stand there."""
    regarding = event.get("regarding") or {}
    about = "" if regarding.get("name") == jobset else f" of {regarding.get('kind')} {regarding.get('name')}"
    kind = {"Normal": "event", "Warning": "warning"}[event["type"]]
    words = "" if event.get("note") in told else f": {event.get('note')}"
    return f"{kind} {event['reason']}{about}{words}"


def _some(value: Any) -> bool:
    return bool(any(value) if isinstance(value, list) else value)


def _number(value: Any) -> str:
    return " ".join(map(str, value)) if isinstance(value, list) else str(value)


def _asked(saving: Mapping[str, Any]) -> str:
    return f"the request {saving['request']}" if saving["request"] else "spares"
