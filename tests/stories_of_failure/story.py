"""Read the stories, and make the JobSet of each."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from inplace.cli.inject.inject import inject
from inplace.common.injection.pod import InjectOptions
from inplace.common.kube.resources import KubeObject
from inplace.common.wire import names as wire
from inplace.simulator.apiserver.merge_patch import merge_patch

HERE: Final = Path(__file__).parent
KINDS: Final = ("scripts", "reports", "alerts")
HELPER: Final = HERE / "ranks.py"
POOL: Final = "story"  # the label of the nodes that one story has for itself
_PREAMBLE: Final = "import os, signal, socket, sys, time\nfrom ranks import *\n"
_STEPS: Final = "for n in steps():\n    if n == 5 and RANK == 1 and EPOCH == 1:\n        "


@dataclass(frozen=True, slots=True)
class Story:
    """One story.

    Args:
        claim: what is true when it passes.
        kind: the file that it stands in.
        play: what happens and what is expected, a line each (scene.py has the verbs).
        fault: what rank 1 does at step 5 of epoch 1.
        script: train.py instead of steps and that fault, below the imports of os, signal, socket, sys, time and all
            of ranks.py.
        files: other files beside it.
        annotations: of the JobSet, without `inplace.dev/`.
        worker, pod, job, jobset: merged into the container, the Pod's spec, the Job's spec, the JobSet's spec.
        objects: what a cluster has before the JobSet comes.
        inject: the options with which `inplace inject` changes the JobSet first; {} leaves that to the controller.
        nodes: so many nodes have room for one Pod each, and take no other story's; 0 is to share.
        alone: it needs a cluster, and a controller, of its own.
    """

    kind: str
    name: str
    claim: str
    play: str
    fault: str = "pass"
    script: str = ""
    files: Mapping[str, str] = field(default_factory=dict)
    pods: int = 2
    max_restarts: int = 10
    annotations: Mapping[str, str] = field(default_factory=dict)
    worker: Mapping[str, Any] = field(default_factory=dict)
    pod: Mapping[str, Any] = field(default_factory=dict)
    job: Mapping[str, Any] = field(default_factory=dict)
    jobset: Mapping[str, Any] = field(default_factory=dict)
    objects: Sequence[KubeObject] = ()
    inject: Mapping[str, Any] = field(default_factory=dict)
    nodes: int = 0
    alone: bool = False

    @property
    def place(self) -> str:
        """Return the name of its namespace and of its JobSet, which is part of nothing else that is printed."""
        return f"{self.name}-story"

    def documents(self, folder: Path) -> list[KubeObject]:
        """Return the namespace, the other objects, and the JobSet; `{folder}` is the story's folder."""
        plain = {"name": "worker", "image": "train:1", "command": ["python3", "{folder}/train.py"]}
        env = [{"name": "POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}]
        worker = merge_patch(plain | {"env": env}, self.worker)
        helpers = self.pod.get("containers", [])
        own = {"nodeSelector": {POOL: self.name}} if self.nodes else {}
        pod = merge_patch(own, self.pod) | {"containers": [worker, *helpers]}
        job = merge_patch({"parallelism": self.pods, "completions": self.pods, "template": {"spec": pod}}, self.job)
        policy = {"maxRestarts": self.max_restarts, "restartStrategy": wire.IN_PLACE_RESTART}
        spec = {"failurePolicy": policy, "replicatedJobs": [{"name": "w", "template": {"spec": job}}]}
        annotations = {f"inplace.dev/{name}": value for name, value in self.annotations.items()}
        jobset = {
            "apiVersion": wire.API_VERSION,
            "kind": wire.KIND,
            "metadata": {"name": self.place, "namespace": self.place, "annotations": annotations},
            "spec": merge_patch(spec, self.jobset),
        }
        namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": self.place}}
        text = json.dumps([namespace, *self.objects, jobset]).replace("{folder}", str(folder))
        (*others, made) = json.loads(text.replace("{place}", self.place))
        changed, given = inject([made], InjectOptions(**self.inject)) if self.inject else ([made], [])
        return [*others, *given, *changed]

    def write(self, folder: Path) -> None:
        """Fill the story's folder, which every Pod sees."""
        (folder / "witness").mkdir(parents=True)
        (folder / HELPER.name).symlink_to(HELPER)
        for name, text in {"train.py": _PREAMBLE + (self.script or _STEPS + self.fault), **self.files}.items():
            (folder / name).write_text(text.replace("{folder}", str(folder)), newline="")
            if name.endswith(".sh"):
                (folder / name).chmod(0o755)


def stories() -> list[Story]:
    """Return all stories, in the order of the files; one that is `like` another has all that it does not say itself."""
    tables = {kind: tomllib.loads((HERE / f"{kind}.toml").read_text()) for kind in KINDS}
    return [
        Story(kind, name, **(table[row.pop("like")] | row if "like" in row else row))
        for kind, table in tables.items()
        for name, row in table.items()
    ]
