"""
PyTorch on a node: the packages of its environment, mounted into the image that has JAX.

An image with PyTorch takes 1.4 GB more, anew for each change of our sources, and each node unpacks it. A mount takes
nothing. The image is that of examples/Containerfile, with Python, the agent and the training scripts.
"""

from pathlib import Path
from typing import Any

from images import debian
from images.build_once import MissingComponent
from inplace.common.kube.resources import KubeObject
from testbed.frameworks.venv import environment
from testbed.node.archives import JAX_IMAGE

PACKAGES = "/opt/packages"  # where the image has JAX and what it needs


def torch_packages() -> Path:
    """
    Return the folder of PyTorch's packages, after installing them when they are not cached.

    Raises:
        MissingComponent: the disk or the compiler is missing, or this Python is not the version that the image has.
        BuildFailed: pip failed; what it said went to stderr.
    """
    _, python = debian.roots()
    (library,) = (python / "usr/lib").glob("python3.*")
    folder = environment("torch")
    packages = folder / "lib" / library.name / "site-packages"
    if not packages.is_dir():
        seen = ", ".join(path.name for path in folder.glob("lib/python3.*"))
        raise MissingComponent(f"torch is left out on nodes: expected {library.name} as in our images, saw {seen}")
    return packages


def run_with_torch(pod: dict[str, Any]) -> None:
    """
    Let the worker of a Pod template find PyTorch.

    Raises:
        MissingComponent, BuildFailed: as `torch_packages` does.
    """
    (worker,) = pod["containers"]
    worker["image"] = JAX_IMAGE
    on_host: KubeObject = {"path": str(torch_packages()), "type": "Directory"}
    pod["volumes"].append({"name": "packages", "hostPath": on_host})
    worker["volumeMounts"].append({"name": "packages", "mountPath": PACKAGES, "readOnly": True})
