"""The registry from which nodes pull: an image of an archive, with a layer more."""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
from pathlib import Path
from typing import Any

from testbed.node.registry import lay_out


def digest_of(content: bytes) -> str:
    """Return a digest as registries name it."""
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


def archive(path: Path, layer: bytes) -> None:
    """Write an OCI archive of an image with one layer."""
    config = json.dumps({"rootfs": {"type": "layers", "diff_ids": [digest_of(layer)]}, "history": [{}]}).encode()
    manifest = json.dumps({"config": {"digest": digest_of(config)}, "layers": [{"digest": digest_of(layer)}]}).encode()
    index = json.dumps({"manifests": [{"digest": digest_of(manifest)}]}).encode()
    with tarfile.open(path, "w") as packed:
        for name, content in [("index.json", index)] + [
            (f"blobs/{digest_of(one).replace(':', '/')}", one) for one in (config, manifest, layer)
        ]:
            member = tarfile.TarInfo(name)
            member.size = len(content)
            packed.addfile(member, io.BytesIO(content))


def test_the_image_is_larger_and_every_digest_is_right(tmp_path: Path) -> None:
    """The padding is the last layer and the last diff id; each file is named by its content."""
    archive(tmp_path / "image.tar", b"layer")
    folder = tmp_path / "served"
    folder.mkdir()
    digest, sizes = lay_out(tmp_path / "image.tar", folder, 2_500_000)
    files = {path.name: path.read_bytes() for path in folder.iterdir()}
    assert {name: len(content) for name, content in files.items()} == sizes
    assert all(digest_of(content) == name for name, content in files.items())
    manifest: dict[str, Any] = json.loads(files[digest])
    config: dict[str, Any] = json.loads(files[manifest["config"]["digest"]])
    assert config["rootfs"]["diff_ids"] == [layer["digest"] for layer in manifest["layers"]]
    padding = files[manifest["layers"][-1]["digest"]]
    with tarfile.open(fileobj=io.BytesIO(padding)) as layer:
        assert [(one.name, one.size) for one in layer.getmembers()] == [("padding", 2_500_000)]
