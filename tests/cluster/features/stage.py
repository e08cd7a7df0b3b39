"""
Play the Job controller, the scheduler, the garbage collector and the user for one JobSet.

A test reports the others' actions and waits for the controller's reaction.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from inplace.common.kube.errors import NotFound
from inplace.common.kube.resources import EVENTS, JOBS, JOBSETS, KubeObject
from testbed.waiting import eventually
from tests.controller.crew import Crew
from tests.controller.manifests import changed

START = "2026-01-01T00:00:00Z"
ENDS = {"Failed": "FailureTarget", "Complete": "SuccessCriteriaMet"}


class Stage(Crew):
    """One namespace with one JobSet."""

    async def submit(self, manifest: KubeObject) -> KubeObject:
        """Create the JobSet in this namespace."""
        self.name = manifest["metadata"]["name"]
        return await self.client.create(
            JOBSETS, self.namespace, changed(manifest, "metadata.namespace", self.namespace)
        )

    async def start(self, manifest: KubeObject) -> dict[str, KubeObject]:
        """Create the JobSet, wait for all its Jobs and return them."""
        await self.submit(manifest)
        spec = manifest["spec"]["replicatedJobs"]
        await self.has_jobs(
            *(f"{self.name}-{job['name']}-{index}" for job in spec for index in range(job.get("replicas", 1)))
        )
        return await self.jobs()

    async def edit(self, patch: KubeObject) -> None:
        """Change the JobSet."""
        await self.client.patch(JOBSETS, self.namespace, self.name, patch)

    async def has_jobs(self, *names: str) -> None:
        """Wait until exactly these Jobs exist; remove deleted Jobs at once, as a garbage collector does."""

        async def present() -> set[str]:
            await self.collect_garbage()
            return set(await self.jobs())

        await eventually(present, set(names))

    async def collect_garbage(self) -> None:
        """Remove the Jobs that wait for the garbage collector."""
        for name, job in (await self.jobs()).items():
            if "deletionTimestamp" in job["metadata"]:
                with suppress(NotFound):
                    await self.client.patch(JOBS, self.namespace, name, {"metadata": {"finalizers": None}})

    async def leaving(self) -> set[str]:
        """Return the Jobs that are being deleted."""
        return {name for name, job in (await self.jobs()).items() if "deletionTimestamp" in job["metadata"]}

    async def report(self, job: str, **status: Any) -> None:
        """Set fields of a Job's status."""
        await self.client.patch(JOBS, self.namespace, job, {"status": status}, subresource="status")

    async def be_ready(self, *jobs: str) -> None:
        """Let all Pods of Jobs be ready."""
        for name in jobs:
            pods = (await self.client.get(JOBS, self.namespace, name))["spec"]["parallelism"]
            await self.report(name, startTime=START, active=pods, ready=pods)

    async def succeed(self, *jobs: str) -> None:
        """Let Jobs complete."""
        for name in jobs:
            await self.report(name, active=0, ready=0)
            await self.finish_job(name, "Complete")

    async def fail(self, job: str, reason: str = "BackoffLimitExceeded", message: str = "", *, at: str = START) -> None:
        """Let a Job fail at a time."""
        entry = {"status": "True", "reason": reason, "message": message, "lastTransitionTime": at, "lastProbeTime": at}
        kinds = (ENDS["Failed"], "Failed")
        await self.report(
            job, startTime=START, active=0, ready=0, conditions=[entry | {"type": kind} for kind in kinds]
        )

    async def words(self, kind: str) -> tuple[str, str, str] | None:
        """Return status, reason and message of a condition; None when there is none."""
        found = await self.find_condition(kind)
        return None if found is None else (found["status"], found["reason"], found["message"])

    async def becomes(self, kind: str, status: str, reason: str, message: str) -> None:
        """Wait for a condition."""
        await eventually(lambda: self.words(kind), (status, reason, message))

    async def becomes_terminal(self, state: str) -> None:
        """Wait for status.terminalState."""

        async def look() -> Any:
            return (await self.status()).get("terminalState")

        await eventually(look, state)

    async def shows(self, **fields: Any) -> None:
        """Wait until fields of the status have these values."""

        async def look() -> Mapping[str, Any]:
            status = await self.status()
            return {name: status.get(name) for name in fields}

        await eventually(look, fields)

    async def counts(self, name: str) -> dict[str, Any]:
        """Return the entry of a replicatedJob in replicatedJobsStatus; empty when there is none."""
        entries = (await self.status()).get("replicatedJobsStatus") or ()
        return next(({k: v for k, v in entry.items() if k != "name"} for entry in entries if entry["name"] == name), {})

    async def counts_are(self, name: str, **counts: Any) -> None:
        """Wait until the counters of a replicatedJob have these values; those not named are 0."""
        wanted = dict.fromkeys(("ready", "succeeded", "failed", "active", "suspended"), 0) | counts
        await eventually(lambda: self.counts(name), wanted)

    async def labels_of(self, key: str) -> dict[str, str]:
        """Return the value of a label by Job, without Jobs that are being deleted."""
        await self.collect_garbage()
        return {name: job["metadata"]["labels"].get(key) for name, job in (await self.jobs()).items()}

    async def events(self) -> dict[str, tuple[str, str]]:
        """Return (type, note) of the Events about the JobSet, by reason."""
        found = (await self.client.list(EVENTS, self.namespace))["items"]
        return {event["reason"]: (event["type"], event["note"]) for event in found}

    async def says(self, reason: str, kind: str, note: str) -> None:
        """Wait for an Event."""

        async def look() -> tuple[str, str] | None:
            return (await self.events()).get(reason)

        await eventually(look, (kind, note))

    async def says_soon(self, reason: str) -> None:
        """Wait for an Event with any note."""

        async def is_said() -> bool:
            return reason in await self.events()

        await eventually(is_said, True)

    async def warnings(self) -> list[str]:
        """Return the notes of the Warnings."""
        return [f"{reason}: {note}" for reason, (kind, note) in (await self.events()).items() if kind == "Warning"]
