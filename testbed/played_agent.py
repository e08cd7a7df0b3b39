"""What kubelet gives an agent's process, and how it asks the barrier: for tests that play kubelet."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Final

from inplace.common.kube.resources import KubeObject
from inplace.common.wire import names as wire

REPOSITORY: Final = Path(__file__).parents[1]
RESTART_EXIT_CODE: Final = 88
BARRIER_PATH: Final = "/barrier-is-lifted"


def common_environment(stored: KubeObject, kubeconfig: Path) -> dict[str, str]:
    """Return the variables that the agents of every manifest have."""
    return {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": str(REPOSITORY),
        "KUBECONFIG": str(kubeconfig),
        "POD_NAME": stored["metadata"]["name"],
        "JOBSET_NAME": stored["metadata"]["annotations"][wire.JOBSET_NAME],
        "BARRIER_ADDRESS": "127.0.0.1",
    }


def agent_environment(stored: KubeObject, kubeconfig: Path, port: int) -> dict[str, str]:
    """Return what the downward API of examples/train.yaml gives the agent of a stored Pod now."""
    metadata = stored["metadata"]
    annotations = metadata["annotations"]
    return common_environment(stored, kubeconfig) | {
        "NAMESPACE": metadata["namespace"],
        "POD_UID": metadata["uid"],
        "JOBSET_UID": annotations[wire.JOBSET_UID],
        "RESTART_SCOPE": annotations.get(wire.RESTART_SCOPE, ""),
        "PREVIOUS_EPOCH": annotations.get(wire.EPOCH, ""),
        "BARRIER_PORT": str(port),
        "RESTART_POD_IN_PLACE_EXIT_CODE": str(RESTART_EXIT_CODE),
    }


async def is_lifted(port: int, path: str = BARRIER_PATH) -> bool:
    """Ask the barrier once; say whether it answered 200."""
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
    except OSError:
        return False
    try:
        writer.write(f"GET {path} HTTP/1.1\r\nhost: pod\r\nconnection: close\r\n\r\n".encode())
        await writer.drain()
        return (await reader.readline()).split(b" ")[1:2] == [b"200"]
    except OSError:
        return False
    finally:
        writer.close()
