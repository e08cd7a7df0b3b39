"""The contents of our images; Pod Security `restricted` admits Pods made of them."""

from __future__ import annotations

import io
import json
import tarfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from images.build_once import MissingComponent
from inplace.common.kube.resources import JOBSETS, NAMESPACES
from testbed.kube_client import create
from testbed.node import archives, capsule, host, manifests
from testbed.node.cluster import Cluster
from testbed.node.group import SETTLED_S_MAX
from testbed.node.history import History
from testbed.waiting import until

AGENT_BYTES_MAX = 16_000_000
"""The bound of the agent's image with its Python, compressed, which every node pulls; 13.3 MB when this was written."""

LIBRARIES = {"agent": "lib/python3.11/", "controller": "opt/inplace/lib/"}
"""Where the packages of each image lie."""

SHELLS = ("bin/sh", "bin/bash", "bin/dash", "usr/bin/apt", "usr/bin/dpkg", "usr/bin/pip3")


@cache
def image_of(name: str) -> Image:
    """Return one of our two images, built from the sources as they are now."""
    return Image(archives.build()[0].parent / f"{name}.tar")


class Image:
    """One archive: the image's configuration, and the files and sizes of its layers, the base's first."""

    def __init__(self, archive: Path) -> None:
        with tarfile.open(archive) as outer:

            def blob(digest: str) -> bytes:
                file = outer.extractfile(f"blobs/{digest.replace(':', '/')}")
                assert file is not None, f"{archive} lacks {digest}"
                return file.read()

            index = outer.extractfile("index.json")
            assert index is not None, f"{archive} is no OCI archive"
            manifest = json.loads(blob(json.load(index)["manifests"][0]["digest"]))
            self.config: dict[str, Any] = json.loads(blob(manifest["config"]["digest"]))["config"]
            self.sizes = [layer["size"] for layer in manifest["layers"]]
            self.layers = [set(_files(blob(layer["digest"]))) for layer in manifest["layers"]]

    @property
    def files(self) -> set[str]:
        """Return every file of the image."""
        return set().union(*self.layers)


def _files(layer: bytes) -> Iterator[str]:
    with tarfile.open(fileobj=io.BytesIO(layer)) as inner:
        yield from (member.name for member in inner if not member.isdir())


@pytest.fixture(params=["agent", "controller"])
def image(request: pytest.FixtureRequest) -> tuple[str, Image]:
    """Give each of our two images, built from the sources as they are now."""
    try:
        host.check()
    except MissingComponent as error:
        pytest.skip(str(error))
    if not capsule.inside():
        pytest.skip("the images are built by make node")
    name: str = request.param
    return name, image_of(name)


def test_it_runs_as_nobody_and_says_what_it_is(image: tuple[str, Image]) -> None:
    """The image has a numeric user, which runAsNonRoot needs, a title, a licence, and the program as entry point."""
    name, read = image
    assert read.config["User"] == "65532:65532"
    assert read.config["Entrypoint"] == [f"inplace-{name}"]
    assert {"org.opencontainers.image.title", "org.opencontainers.image.licenses"} <= set(read.config["Labels"])


def test_every_module_of_ours_is_byte_compiled(image: tuple[str, Image]) -> None:
    """Every module has byte code: on the read-only root each of 5,000 starts would compile it again."""
    name, read = image
    if name == "agent":  # which has no sources beside it
        assert len([file for file in read.files if file.startswith("lib/python3.11/inplace/")]) > 50
        elsewhere = [file for file in read.files if file.endswith(".py") and not file.startswith("train/inplace/")]
        assert elsewhere == [], "expected sources only of what a worker's own Python imports"
        return
    sources = {file for file in read.files if file.startswith("opt/inplace/") and file.endswith(".py")}
    compiled = {file for file in read.files if file.endswith(".cpython-311.pyc")}
    assert len(sources) > 50
    lacking = {
        file for file in sources if f"{Path(file).parent}/__pycache__/{Path(file).stem}.cpython-311.pyc" not in compiled
    }
    assert lacking == set()


def test_there_is_no_shell_and_no_package_manager(image: tuple[str, Image]) -> None:
    """On our own base Python is the only program."""
    _, read = image
    assert not read.files & set(SHELLS)


def test_neither_holds_the_others_program_or_a_tool(image: tuple[str, Image]) -> None:
    """The agent's image has no part of the controller, and no image has pytest."""
    name, read = image
    other = "controller" if name == "agent" else "agent"
    assert [file for file in read.files if f"/inplace/{other}/" in file] == []
    foreign = {"pytest", "mypy", "hypothesis", "typer"} | ({"aiohttp", "msgspec"} if name == "agent" else set())
    library = LIBRARIES[name]
    assert {
        file.removeprefix(library).split("/")[0] for file in read.files if file.startswith(library)
    } & foreign == set()
    if name == "agent":
        assert sum(read.sizes) < AGENT_BYTES_MAX


@pytest.mark.asyncio(loop_scope="session")
async def test_pod_security_restricted_admits_a_group(cluster: Cluster, mode: str) -> None:
    """In a namespace that enforces `restricted` every Pod starts and the group meets at epoch 1."""
    namespace = await cluster.plane.create_namespace()
    label = {"metadata": {"labels": {"pod-security.kubernetes.io/enforce": "restricted"}}}
    await cluster.client.patch(NAMESPACES, None, namespace, label)
    history = History(cluster.plane.kubeconfig, namespace)
    async with history.recording():
        await create(cluster.client, manifests.documents(mode, namespace, pods=2, restarts_max=0, evidence=None))
        await until(lambda: 1 in history.synced(), "epoch 1", timeout_s=SETTLED_S_MAX, also=history.pods)
        await cluster.client.delete(JOBSETS, namespace, manifests.JOBSET, propagation="Foreground")
        await until(lambda: not history.pods(), "its Pods are gone", timeout_s=SETTLED_S_MAX, also=history.pods)
    await cluster.client.delete(NAMESPACES, None, namespace)
