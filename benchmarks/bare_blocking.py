"""
The minimal agent: a get, a patch and a watch on one connection of a blocking socket, without features.

A reference for benchmarks.agent_start. No project import, no retry, no log; run as `python bare_blocking.py`.
"""

import json
import os
import socket
import ssl

ACCOUNT = os.environ["INPLACE_SERVICE_ACCOUNT_DIR"]
HOST, PORT = os.environ["KUBERNETES_SERVICE_HOST"], os.environ["KUBERNETES_SERVICE_PORT"]
NAMESPACE, POD, JOBSET = (os.environ[name] for name in ("NAMESPACE", "POD_NAME", "JOBSET_NAME"))
JOBSETS = f"/apis/jobset.x-k8s.io/v1alpha2/namespaces/{NAMESPACE}/jobsets"

tls = ssl.create_default_context(cafile=f"{ACCOUNT}/ca.crt")
with open(f"{ACCOUNT}/token") as account:  # noqa: PTH123 - as short as it can be
    head = f"HTTP/1.1\r\nhost: {HOST}\r\nauthorization: Bearer {account.read().strip()}\r\n"
connection = tls.wrap_socket(socket.create_connection((HOST, int(PORT))), server_hostname=HOST)
answers = connection.makefile("rb")


def ask(request: str) -> bytes:
    """Send a request; return the answer's body."""
    connection.sendall(request.encode())
    assert answers.readline().startswith(b"HTTP/1.1 200"), "expected 200"
    length = 0
    while (line := answers.readline()) != b"\r\n":
        if line.lower().startswith(b"content-length:"):
            length = int(line.split(b":")[1])
    if length:
        return answers.read(length)
    body = b""  # in chunks
    while size := int(answers.readline(), 16):
        body += answers.read(size)
        answers.readline()
    answers.readline()
    return body


jobset = json.loads(ask(f"GET {JOBSETS}/{JOBSET}?resourceVersion=0 {head}\r\n"))
epoch, version = jobset["status"]["syncedEpoch"] + 1, jobset["metadata"]["resourceVersion"]
patch = json.dumps({"metadata": {"annotations": {"jobset.sigs.k8s.io/epoch": str(epoch)}}})
kind = f"content-type: application/merge-patch+json\r\ncontent-length: {len(patch)}\r\n"
ask(f"PATCH /api/v1/namespaces/{NAMESPACE}/pods/{POD} {head}{kind}\r\n{patch}")
follow = f"?watch=1&fieldSelector=metadata.name%3D{JOBSET}&resourceVersion={version}"
connection.sendall(f"GET {JOBSETS}{follow} {head}\r\n".encode())
while answers.readline():
    pass
