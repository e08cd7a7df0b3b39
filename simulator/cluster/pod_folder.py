"""
Give a Pod its folder: volumes, credentials, logs; and the one image that has any content, the agent's.

There are no mount namespaces here. A volume is a folder, and wherever a mountPath stands at the start of an
argument or an environment value (or after a `=` in it), the folder's path takes its place.
"""

from __future__ import annotations

import re
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import inplace
from inplace.common.injection.agent_pieces import COPY_PROGRAM, PREFIX
from inplace.common.kube.resources import KubeObject

TOKEN_MOUNT = "/var/run/secrets/kubernetes.io/serviceaccount"  # noqa: S105


@dataclass(frozen=True, slots=True)
class PodFolder:
    """The folder of one Pod.

    Args:
        path: the Pod's folder.
        shared: where hostPath folders and persistent volumes live, shared by all Pods.
        image: the content of the agent's image, the only one that has any.
    """

    path: Path
    shared: Path
    image: Path

    @property
    def credentials(self) -> Path:
        """Return the folder with the ServiceAccount's token."""
        return self.path / "serviceaccount"

    def create(self, pod: KubeObject, *, token: str, kubeconfig: str) -> None:
        """Make the folders and write the credentials."""
        self.path.mkdir(parents=True)
        for volume in pod["spec"].get("volumes") or ():
            self.volume(volume, pod["metadata"]["namespace"]).mkdir(parents=True, exist_ok=True)
        self.credentials.mkdir(exist_ok=True)  # a volume with the token is this folder
        (self.credentials / "token").write_text(token)
        (self.credentials / "namespace").write_text(pod["metadata"]["namespace"])
        (self.credentials / "kubeconfig").write_text(kubeconfig)

    def remove(self) -> None:
        """Delete the folder, but nothing shared."""
        shutil.rmtree(self.path, ignore_errors=True)

    def volume(self, volume: Mapping[str, Any], namespace: str) -> Path:
        """Return the folder of a volume. configMap, secret and the like are empty folders."""
        if "hostPath" in volume:
            return self.shared / "host" / str(volume["hostPath"]["path"]).lstrip("/")
        if "persistentVolumeClaim" in volume:
            return self.shared / "claims" / namespace / str(volume["persistentVolumeClaim"]["claimName"])
        if _holds_token(volume):
            return self.credentials
        if "image" in volume:
            return self.image
        return self.path / "volumes" / str(volume["name"])

    def rewriter(self, pod: KubeObject, container: Mapping[str, Any]) -> Callable[[str], str]:
        """Return a function that replaces this container's mount paths in a text by their folders."""
        namespace = pod["metadata"]["namespace"]
        volumes = {v["name"]: self.volume(v, namespace) for v in pod["spec"].get("volumes") or ()}
        folders = {TOKEN_MOUNT: self.credentials}
        if (container.get("command") or ("",))[0] == COPY_PROGRAM:  # of the container's own image
            folders[PREFIX] = self.image
        for mount in container.get("volumeMounts") or ():
            if mount["name"] in volumes:
                folders[mount["mountPath"].rstrip("/")] = volumes[mount["name"]] / mount.get("subPath", "")
        return _rewriter(folders)

    def log(self, container: str, restart_count: int) -> Path:
        """Return the log file of one run of a container."""
        return self.path / "logs" / container / f"{restart_count}.log"

    def newest_log(self, container: str, *, previous: bool) -> Path | None:
        """Return the log of the current (or previous) run, None when there is none."""
        runs = sorted((self.path / "logs" / container).glob("*.log"), key=lambda file: int(file.stem))
        position = -2 if previous else -1
        return runs[position] if len(runs) >= -position else None


def _holds_token(volume: Mapping[str, Any]) -> bool:
    sources: Sequence[Mapping[str, Any]] = (volume.get("projected") or {}).get("sources") or ()
    return any("serviceAccountToken" in source for source in sources)


def _rewriter(folders: Mapping[str, Path]) -> Callable[[str], str]:
    longest_first = sorted(folders, key=len, reverse=True)
    mounts = "|".join(map(re.escape, longest_first))
    pattern = re.compile(rf"""(?P<before>^|[=\s"'>(])(?P<mount>{mounts})(?=[/\s"';)]|$)""")
    return lambda text: pattern.sub(lambda m: f"{m['before']}{folders[m['mount']]}", text)


ROOT: Final = Path(inplace.__file__).parents[1]
_MAIN: Final = "from inplace.agent.main import main\n"
# Python's options beyond -I, and what a program does (images/agent_root.py has the real ones).
_PROGRAMS: Final = {
    "inplace-agent": ("", f"{_MAIN}sys.exit(main())\n"),
    "guard": ("S", f'{_MAIN}sys.argv.insert(1, "guard")\nsys.exit(main())\n'),
    "copy": ("S", "import shutil\nshutil.copytree({image!r}, sys.argv[1], dirs_exist_ok=True)\n"),
}


def make_agent_image(folder: Path) -> None:
    """Fill a new folder with the content of the agent's image: its programs, run from this installation."""
    (folder / "bin").mkdir(parents=True)
    for name, (options, body) in _PROGRAMS.items():
        program = folder / "bin" / name
        head = f"#!{sys.executable} -I{options}\nimport sys\nsys.path.insert(0, {str(ROOT)!r})\n"
        program.write_text(head + body.replace("{image!r}", repr(str(folder))))
        program.chmod(0o755)
