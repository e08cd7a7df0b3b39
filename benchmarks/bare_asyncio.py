"""
The minimal agent on asyncio and ssl: a watch and a patch on two connections, without features.

A reference for benchmarks.agent_start. No project import, no retry, no log, no barrier; run as `python
bare_asyncio.py`.
"""

import asyncio
import json
import os
import ssl

ACCOUNT = os.environ["INPLACE_SERVICE_ACCOUNT_DIR"]
HOST, PORT = os.environ["KUBERNETES_SERVICE_HOST"], os.environ["KUBERNETES_SERVICE_PORT"]
NAMESPACE, POD, JOBSET = (os.environ[name] for name in ("NAMESPACE", "POD_NAME", "JOBSET_NAME"))
WATCH = f"/apis/jobset.x-k8s.io/v1alpha2/namespaces/{NAMESPACE}/jobsets?watch=1&fieldSelector=metadata.name%3D{JOBSET}"
PATCH = f"/api/v1/namespaces/{NAMESPACE}/pods/{POD}"


async def main() -> None:
    """Announce the epoch after the one that the watch shows first, then watch on."""
    tls = ssl.create_default_context(cafile=f"{ACCOUNT}/ca.crt")
    with open(f"{ACCOUNT}/token") as file:  # noqa: ASYNC230, PTH123 - as short as it can be
        head = f"HTTP/1.1\r\nhost: {HOST}\r\nauthorization: Bearer {file.read().strip()}\r\n"
    (lines, watch), (answers, patch) = await asyncio.gather(
        asyncio.open_connection(HOST, PORT, ssl=tls), asyncio.open_connection(HOST, PORT, ssl=tls)
    )
    watch.write(f"GET {WATCH} {head}\r\n".encode())
    while not (line := await lines.readline()).startswith(b"{"):
        pass
    epoch = json.loads(line)["object"]["status"]["syncedEpoch"] + 1
    body = json.dumps({"metadata": {"annotations": {"jobset.sigs.k8s.io/epoch": str(epoch)}}})
    kind = f"content-type: application/merge-patch+json\r\ncontent-length: {len(body)}\r\n"
    patch.write(f"PATCH {PATCH} {head}{kind}\r\n{body}".encode())
    assert (await answers.readline()).startswith(b"HTTP/1.1 200")
    while await lines.readline():
        pass


asyncio.run(main())
