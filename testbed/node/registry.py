"""
A registry of one image, for nodes that do not have it: they pull it from the capsule, over the bridge.

The image is one of an archive with a layer of random bytes more: those that people train with are as large. That layer
is not compressed, because random bytes would not become fewer.
"""

import hashlib
import json
import os
import tarfile
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

from aiohttp import web

from testbed.node import network

ADDRESS: Final = f"{network.GATEWAY}:5000"
NAME: Final = "large"
PADDING_BYTES: Final = 1_000_000_000
_CHUNK_BYTES: Final = 1 << 20
_PREFIX: Final = "application/vnd.oci.image"
_CONFIG: Final = f"{_PREFIX}.config.v1+json"
_LAYER: Final = f"{_PREFIX}.layer.v1.tar"
_MANIFEST: Final = f"{_PREFIX}.manifest.v1+json"

HOSTS: Final = f'server = "http://{ADDRESS}"\n'
"""containerd's hosts.toml for it: no TLS inside the capsule."""


@asynccontextmanager
async def registry(archive: Path, folder: Path, padding_bytes: int = PADDING_BYTES) -> AsyncIterator[str]:
    """Serve the image of an OCI archive, made larger; yield its name.

    Args:
        archive: of one image.
        folder: for its layers, empty.
        padding_bytes: of the layer that is added.
    """
    digest, sizes = lay_out(archive, folder, padding_bytes)
    kinds = {"manifests": _MANIFEST, "blobs": "application/octet-stream"}

    async def answer(_request: web.Request) -> web.Response:
        return web.Response()

    async def give(request: web.Request) -> web.StreamResponse:
        wanted = request.match_info["digest"]
        if wanted not in sizes:
            raise web.HTTPNotFound
        headers = {"Content-Type": kinds[request.match_info["kind"]], "Docker-Content-Digest": wanted}
        return web.FileResponse(folder / wanted, headers=headers)

    app = web.Application()
    app.router.add_get("/v2/", answer)
    app.router.add_get(f"/v2/{NAME}/{{kind:manifests|blobs}}/{{digest}}", give)
    runner = web.AppRunner(app)
    await runner.setup()
    try:
        await web.TCPSite(runner, network.GATEWAY, int(ADDRESS.rpartition(":")[2])).start()
        yield f"{ADDRESS}/{NAME}@{digest}"  # a node that has another one of this name does not have this one
    finally:
        await runner.cleanup()


def lay_out(archive: Path, folder: Path, padding_bytes: int) -> tuple[str, Mapping[str, int]]:
    """Write manifest, config and layers, each named by its digest; return the manifest's digest, and all sizes."""
    sizes: dict[str, int] = {}
    with tarfile.open(archive) as saved:

        def read(name: str) -> bytes:
            file = saved.extractfile(name)
            assert file is not None, f"{archive}: {name} is no file"
            return file.read()

        def blob(digest: str) -> bytes:
            return read(f"blobs/{digest.replace(':', '/')}")

        manifest: dict[str, Any] = json.loads(blob(json.loads(read("index.json"))["manifests"][0]["digest"]))
        config: dict[str, Any] = json.loads(blob(manifest["config"]["digest"]))
        for layer in manifest["layers"]:
            _stored(folder, blob(layer["digest"]), sizes)
    padding = _padding(folder, padding_bytes, sizes)
    config["rootfs"]["diff_ids"].append(padding)
    del config["history"]  # it has no line for the layer that is added
    manifest["layers"].append(_descriptor(_LAYER, padding, sizes))
    manifest["config"] = _descriptor(_CONFIG, _stored(folder, json.dumps(config).encode(), sizes), sizes)
    return _stored(folder, json.dumps(manifest).encode(), sizes), sizes


def _descriptor(kind: str, digest: str, sizes: Mapping[str, int]) -> dict[str, Any]:
    return {"mediaType": kind, "digest": digest, "size": sizes[digest]}


def _stored(folder: Path, content: bytes, sizes: dict[str, int]) -> str:
    digest = f"sha256:{hashlib.sha256(content).hexdigest()}"
    (folder / digest).write_bytes(content)
    sizes[digest] = len(content)
    return digest


def _padding(folder: Path, padding_bytes: int, sizes: dict[str, int]) -> str:
    """Write a layer with one file of random bytes."""
    padding, layer = folder / "padding", folder / "layer"
    with padding.open("wb") as file:
        for left in range(padding_bytes, 0, -_CHUNK_BYTES):
            file.write(os.urandom(min(left, _CHUNK_BYTES)))
    with tarfile.open(layer, "w") as packed:
        packed.add(padding, "padding")
    padding.unlink()
    with layer.open("rb") as file:
        digest = f"sha256:{hashlib.file_digest(file, 'sha256').hexdigest()}"
    sizes[digest] = layer.stat().st_size
    layer.rename(folder / digest)
    return digest
