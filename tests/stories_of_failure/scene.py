"""
Play one story on a cluster: each line of it is something that happens, or something that has to be so.

An expectation is awaited, and nothing else: a command runs again until it says what it should, or TIMEOUT_S is over.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import shlex
import shutil
import signal
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from inplace.common.kube.client import STRATEGIC_MERGE_PATCH
from inplace.common.kube.resources import JOBSETS, KubeObject
from inplace.common.wire import names as wire
from inplace.simulator.apiserver.metadata import timestamp
from inplace.simulator.cluster.cluster import Cluster
from inplace.simulator.cluster.process_runtime import ProcessRuntime
from inplace.simulator.cluster.reaper import marked
from tests.cli.command import REPOSITORY, RUN_S_MAX
from tests.stories_of_failure.story import Story

TIMEOUT_S: Final = 90.0  # of what happens; a story takes some 10 s on two idle cores
SAYS_S: Final = 30.0  # a kubelet tells of a change within a second; a machine may have other work
LOOK_S: Final = 0.1  # a look at files and objects
ASK_S: Final = 0.5  # a command of `inplace` is a process
EPOCHS_MAX: Final = 20
STEPS_MIN: Final = 3  # a rank that has made so many goes on
CHECKS: Final = ("finds", "first", "never", "restarted", "runbook", "says")
GROUNDS: Final = ("ends", "over", "pods", "reaches", "runs")
NAMERS: Final = ("status", "explain", "history", "logs")
# The line in which each of them names who failed first; of a hang, who was silent first.
_FIRST: Final = {
    "status": re.compile(r"^last restart: .*", re.MULTILINE),
    "explain": re.compile(r"^ +\S+  (?:pod \S+ was silent first|first failure: ).*", re.MULTILINE),
    "history": re.compile(r"^ {7}\S.*", re.MULTILINE),
    "logs": re.compile(r"^first failure: .*", re.MULTILINE),
}
JOBSET: Final = "JOBSET"
_COMMAND: Final = re.compile(r"^    (.+)$", re.MULTILINE)


class StoryError(Exception):
    """A line of a story is not so; the message says what was seen."""


@dataclass
class Scene:
    """One story on its cluster.

    Attributes:
        wrong: the expectations that did not hold.
    """

    cluster: Cluster
    story: Story
    folder: Path
    wrong: list[str] = field(default_factory=list)
    _cordoned: str = ""
    _printed: dict[str, str] = field(default_factory=dict)  # since the last thing that happened

    async def play(self) -> None:
        """Play the story to its end.

        Raises:
            StoryError: some of it is not so.
        """
        self.story.write(self.folder)
        await self.cluster.apply(self.story.documents(self.folder))
        for line in filter(None, map(str.strip, self.story.play.splitlines())):
            verb, _, rest = line.partition(" ")
            try:
                await getattr(self, f"do_{verb}")(rest)
                if verb not in CHECKS:
                    self._printed.clear()
            except StoryError as error:
                self.wrong.append(f"{line}: {error}")
                if verb in GROUNDS:  # what follows has none
                    break
        if self.wrong:
            raise StoryError("\n".join(self.wrong))

    # What happens.

    async def do_runs(self, rest: str) -> None:
        """`runs EPOCH`: every rank goes on in this epoch; `2+` is that one or a later one."""
        first, last = int(rest.removesuffix("+")), EPOCHS_MAX if rest.endswith("+") else int(rest)
        epochs = range(first, last + 1)
        begun = {epoch: self._steps(epoch) for epoch in epochs}

        def goes_on(epoch: int) -> bool:
            pairs = zip(begun[epoch], self._steps(epoch), strict=True)
            return all(now >= max(then + 1, STEPS_MIN) for then, now in pairs)

        await self._until(lambda: any(map(goes_on, epochs)))

    async def do_reaches(self, rest: str) -> None:
        """`reaches EPOCH STEP`: every rank has made this step in this epoch."""
        epoch, step = map(int, rest.split())
        await self._until(lambda: min(self._steps(epoch)) >= step)

    async def do_over(self, rest: str) -> None:
        """`over EPOCH`: this epoch is over."""
        await self._until(lambda: wire.epochs_of_status(self._status())[1] >= int(rest))

    async def do_ends(self, rest: str) -> None:
        """`ends STATE [REASON]`: the JobSet ends so."""
        state, _, reason = rest.partition(" ")

        def ended() -> bool:
            conditions = self._status().get("conditions") or ()
            found = {one["type"]: one["reason"] for one in conditions if one["status"] == "True"}
            return self._status().get("terminalState") == state and reason in found.get(state, "")

        await self._until(ended)

    async def do_pods(self, rest: str) -> None:
        """`pods RANK PHASE`: the Pod of this rank is in this phase."""
        rank, phase = rest.split()
        await self._until(lambda: (self._pod(int(rank)).get("status") or {}).get("phase") == phase)

    async def do_kill(self, rest: str) -> None:
        """`kill RANK [SIGNAL]`: a signal for the worker of a rank."""
        rank, _, name = rest.partition(" ")
        pod = self._pod(int(rank))["metadata"]["name"]
        number = signal.Signals[name or "SIGKILL"]
        self.cluster.kill_worker(self.story.place, pod, signal_number=number, supervised=True)

    async def do_delete(self, rest: str) -> None:
        """`delete RANK`: its Pod is deleted."""
        name = self._pod(int(rest))["metadata"]["name"]
        await self._kubectl("DELETE", f"/api/v1/namespaces/{self.story.place}/pods/{name}")
        await self._until(lambda: self._pod(int(rest)).get("metadata", {}).get("name") != name)

    async def do_evict(self, rest: str) -> None:
        """`evict RANK`: its Pod is drained off its node, as `kubectl drain` does."""
        meta = self._pod(int(rest))["metadata"]
        now = timestamp(self.cluster.clock.wall_s())
        words = {"reason": "EvictionByEvictionAPI", "message": "Eviction API: evicting", "lastTransitionTime": now}
        target = {"type": "DisruptionTarget", "status": "True"} | words
        path = f"/api/v1/namespaces/{self.story.place}/pods/{meta['name']}"
        await self._kubectl("PATCH", f"{path}/status", {"status": {"conditions": [target]}})
        await self.do_delete(rest)

    async def do_cordon(self, rest: str) -> None:
        """`cordon RANK`: its node takes no more Pods."""
        self._cordoned = self._pod(int(rest))["spec"]["nodeName"]
        await self._kubectl("PATCH", f"/api/v1/nodes/{self._cordoned}", {"spec": {"unschedulable": True}})

    async def do_uncordon(self, rest: str) -> None:
        """`uncordon`: that node takes Pods again."""
        await self._kubectl("PATCH", f"/api/v1/nodes/{self._cordoned}", {"spec": {"unschedulable": None}})

    async def do_unhold(self, rest: str) -> None:
        """`unhold`: the finalizers of all its Pods go, those of Kubernetes too."""
        for pod in self.cluster.pods(self.story.place):
            body = {"metadata": {"finalizers": None}}
            await self._kubectl("PATCH", f"/api/v1/namespaces/{self.story.place}/pods/{pod['metadata']['name']}", body)

    async def do_patch(self, rest: str) -> None:
        """`patch JSON`: the JobSet is changed so."""
        await self.cluster.client().patch(JOBSETS, self.story.place, self.story.place, json.loads(rest))

    async def do_write(self, rest: str) -> None:
        """`write FILE TEXT`: a file beside the script gets this text."""
        name, _, text = rest.partition(" ")
        (self.folder / name).write_text(text)

    async def do_freeze(self, rest: str) -> None:
        """`freeze SIGNAL`: the controller's process gets SIGSTOP, or SIGCONT."""
        runtime = self.cluster._runtime
        assert isinstance(runtime, ProcessRuntime)
        (marker,) = runtime.marker.items()
        for pid in marked("=".join(marker)):
            if b"inplace.controller" in Path(f"/proc/{pid}/cmdline").read_bytes():
                os.kill(pid, signal.Signals[rest])

    # What has to be so.

    async def do_first(self, rest: str) -> None:
        """`first RANK`: each command that names who failed first names this rank's Pod."""
        errors = []
        for command in NAMERS:

            def names(text: str, command: str = command) -> bool:
                lines = _FIRST[command].findall(text)
                return bool(lines) and f"{JOBSET}-w-0-{rest}-" in lines[-1 if command != "explain" else 0]

            try:
                await self._awaited(command, names, f"expected {command} to name rank {rest}")
            except StoryError as error:
                errors.append(str(error))
        if errors:
            raise StoryError("\n".join(errors))

    async def do_says(self, rest: str) -> None:
        """`says COMMAND,COMMAND: REGEX`: each of them prints that; `list` is `inplace status` of the namespace."""
        await self._each(rest, lambda pattern, text: bool(pattern.search(text)))

    async def do_never(self, rest: str) -> None:
        """`never COMMAND,COMMAND: REGEX`: none of them prints that."""
        await self._each(rest, lambda pattern, text: not pattern.search(text))

    async def do_finds(self, rest: str) -> None:
        """`finds COUNT REGEX`: so many lines of the workers' logs match, and `inplace logs` still finds them."""
        count, _, pattern = rest.partition(" ")
        command = f"logs --all --grep {shlex.quote(pattern)}"
        await self._awaited(
            command, lambda text: len(text.splitlines()) >= int(count), f"expected {count} lines or more"
        )

    async def do_restarted(self, rest: str) -> None:
        """`restarted RANK COUNT`: kubelet has started its worker's container again so many times at most."""
        rank, count = map(int, rest.split())
        found = self._pod(rank)["status"]["containerStatuses"]
        seen = next(one["restartCount"] for one in found if one["name"] == "worker")
        if seen > count:
            raise StoryError(f"saw {seen} restarts")

    async def do_runbook(self, rest: str) -> None:
        """`runbook ALERT: REGEX`: the commands of its page run as they stand there, and reach the cause."""
        alert, _, text = rest.partition(": ")
        pattern = re.compile(text, re.MULTILINE)
        await self._awaited(f"runbook {alert}", lambda printed: bool(pattern.search(printed)), f"expected {text!r}")

    # How it is looked at.

    async def _each(self, rest: str, holds: Callable[[re.Pattern[str], str], bool]) -> None:
        commands, _, text = rest.partition(": ")
        pattern = re.compile(text, re.MULTILINE)
        for command in commands.split(","):
            await self._awaited(command, lambda printed: holds(pattern, printed), command)

    async def _awaited(self, command: str, holds: Callable[[str], bool], what: str) -> None:
        """Run a command of `inplace` until what it prints is right.

        Raises:
            StoryError: it never was.
        """
        until_s = self.cluster.clock.monotonic_s() + SAYS_S
        if command not in self._printed:
            self._printed[command] = await self._run(command)
        while not holds(self._printed[command]):
            if self.cluster.clock.monotonic_s() > until_s:
                raise StoryError(f"{what}, saw\n{self._printed[command]}")
            await self.cluster.clock.sleep(ASK_S)
            self._printed[command] = await self._run(command)

    async def _run(self, command: str) -> str:
        """Return what a command of a story prints; a runbook's commands stand above what each of them prints."""
        name, *options = shlex.split(command)
        if name == "runbook":
            return "\n".join([f"$ {line}\n{await self._shell(line)}" for line in self._runbook(options[0])])
        words = ["status"] if name == "list" else [name, self.story.place, *options]
        return await self._shell(shlex.join(["inplace", *words, "-n", self.story.place]))

    def _runbook(self, alert: str) -> Iterator[str]:
        """Yield the commands under "What to run" of an alert's page; those of kubectl only where it is."""
        page = (REPOSITORY / "docs" / "runbooks" / f"{alert}.md").read_text()
        for line in _COMMAND.findall(page.partition("\n## What to run\n")[2].partition("\n## ")[0]):
            if shutil.which("kubectl") or "kubectl" not in line:
                yield self._filled(line)

    async def _shell(self, line: str) -> str:
        """Return what a line prints in a shell, standard error with it."""
        variables = {
            "KUBECONFIG": str(self.cluster.kubeconfig("admin")),
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}",
            "COLUMNS": "200",
        }
        process = await asyncio.create_subprocess_shell(
            line,
            cwd=REPOSITORY,
            env=os.environ | variables,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        async with self.cluster.clock.timeout(RUN_S_MAX):
            printed = (await process.communicate())[0].decode("utf-8", "replace")
        return printed.replace(self.story.place, JOBSET)  # a story's name may be what it looks for

    async def _until(self, holds: Callable[[], bool]) -> None:
        """Wait for something that happens.

        Raises:
            StoryError: it does not.
        """
        try:
            async with self.cluster.clock.timeout(TIMEOUT_S):
                while not holds():
                    await self.cluster.clock.sleep(LOOK_S)
        except TimeoutError:
            witness = sorted(file.name for file in (self.folder / "witness").iterdir())
            seen = f"status {json.dumps(self._status())}, ranks that stepped (epoch.rank) {witness}"
            raise StoryError(f"not within {TIMEOUT_S:g} s; saw {seen}") from None

    def _filled(self, line: str) -> str:
        """Return a page's command with its placeholders filled in; the alert names the node, `explain` the Pod."""
        last = self._status().get(wire.LAST_GROUP_RESTART) or {}
        failed = last.get("firstFailure") or {}
        pods = (last.get("firstSilent") or {}).get("pods") or [failed.get("pod")]
        values = {"NAMESPACE": self.story.place, "JOBSET": self.story.place}
        values |= {"POD": str(pods[0]), "NODE": str(failed.get("node"))}
        return re.sub("|".join(values), lambda word: values[word[0]], line)

    async def _kubectl(self, method: str, path: str, body: Any = None) -> None:
        text = b"" if body is None else json.dumps(body).encode()
        await self.cluster.client("kubectl").raw(method, path, body=text, content_type=STRATEGIC_MERGE_PATCH)

    def _status(self) -> dict[str, Any]:
        status: dict[str, Any] = self.cluster.jobset(self.story.place, self.story.place).get("status") or {}
        return status

    def _pod(self, rank: int) -> KubeObject:
        """Return the newest Pod of a rank; {} if it has none."""
        prefix = f"{self.story.place}-w-0-{rank}-"
        found = [pod for pod in self.cluster.pods(self.story.place) if pod["metadata"]["name"].startswith(prefix)]
        alive = [pod for pod in found if "deletionTimestamp" not in pod["metadata"]]
        return next(iter([*alive, *found]), {})

    def _steps(self, epoch: int) -> list[int]:
        """Return the last step of each rank in an epoch; -1 if it has made none."""
        files = (self.folder / "witness" / f"{epoch}.{rank}" for rank in range(self.story.pods))
        return [int(file.read_text() or "-1") if file.exists() else -1 for file in files]


VERBS: Final = frozenset(name.removeprefix("do_") for name in vars(Scene) if name.startswith("do_"))
