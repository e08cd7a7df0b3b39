"""
Measure the controller's CPU for one Pod event while a herd announces: read over TLS, decoded, counted, decided.

A second process plays the API server: a list of Pods at epoch 1, and a watch that sends each Pod's announcement of
epoch 2, as fast as it is read or at a rate. This process runs the controller's own transport, informer and ledgers,
without Jobs and status writes. `benchmarks.controller` measures those on a real API server, which cannot write 1,000
Pods a second on two cores. Every event is as large as that of a Pod of examples/train.yaml on a real server.

    python -m benchmarks.controller_events --json
"""

from __future__ import annotations

import asyncio
import multiprocessing
import re
import socket
import ssl
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Final

import msgspec
import structlog
import trustme

from benchmarks.controller_pods import PODS_PER_JOB, jobset, placed, pod_status
from benchmarks.figures import Figures, flags
from inplace.common.jobset.kinds import JOB_CODEC, POD_CODEC, Pod
from inplace.common.kube.client import KubeClient
from inplace.common.kube.clock import LoopClock
from inplace.common.kube.http.credentials import Credentials
from inplace.common.kube.http.http1 import Renew
from inplace.common.kube.informer import Informer
from inplace.common.kube.resources import PODS, KubeObject
from inplace.common.wire import names as wire
from inplace.controller.api.credentials import Identity
from inplace.controller.api.transport import open_transport
from inplace.controller.metrics import Metrics
from inplace.controller.tracking.membership import Membership
from inplace.controller.tracking.phases import PhaseReader

PODS_DEFAULT: Final = 5_000
RATES: Final = (0, 2_000, 500)  # events a second; 0: as fast as they are read
ROUNDS: Final = 3
POD_BYTES: Final = 9_000  # a Pod of examples/train.yaml on a real server, managedFields included
PIECE_BYTES: Final = 4_096  # Go's net/http flushes so much at once, and each flush is a TLS record
ROUND_S_MAX: Final = 120.0
PHASES: Final = "v1,kubelet=1203,view=41,announce=12,barrier=3021,lift=3074"
NAME: Final = "train"


def pod_event(number: int, epoch: int, kind: str) -> bytes:
    """Return one Pod's line of a watch."""
    job, index = divmod(number, PODS_PER_JOB)
    template = jobset(NAME, PODS_PER_JOB)["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": f"{NAME}-{job}", "uid": f"job-{job}", "controller": True}
    completion = {wire.JOB_COMPLETION_INDEX: str(index)}
    announcement = wire.epoch_annotations(epoch) | {wire.PHASES: PHASES}
    pod: KubeObject = {
        "metadata": {
            "name": f"{NAME}-workers-{job}-{index}",
            "namespace": "bench",
            "uid": f"pod-{number}",
            "resourceVersion": str(number + epoch * 10**6),
            "labels": completion,
            "annotations": completion | announcement,
            "ownerReferences": [owner],
        },
        "spec": placed(template["spec"]),
        "status": pod_status(NAME, 1, running=epoch == 1),
    }
    short = POD_BYTES - len(msgspec.json.encode(pod))
    pod["metadata"]["managedFields"] = [{"fieldsV1": {f"f:field-{field}": {} for field in range(short // 16)}}]
    return msgspec.json.encode({"type": kind, "object": pod})


def page_of(objects: list[bytes], request: bytes) -> bytes:
    """Return the page of the list that a request asks for, all of it where it states no limit."""
    asked = {name: int(number) for name, number in re.findall(rb"[?&](limit|continue)=(\d+)", request)}
    first = asked.get(b"continue", 0)
    after = first + asked.get(b"limit", len(objects))
    more = b',"continue":"%d"' % after if after < len(objects) else b""
    return b'{"metadata":{"resourceVersion":"1500000"%s},"items":[%s]}' % (more, b",".join(objects[first:after]))


def serve(listener: socket.socket, certificate: str, objects: list[bytes], events: list[bytes], rate: int) -> None:
    """Answer each connection's one request: a list of the objects, or a watch of the events."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    while True:
        with context.wrap_socket(listener.accept()[0], server_side=True) as connection:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            request = b""
            while b"\r\n\r\n" not in request:
                request += connection.recv(PIECE_BYTES)
            if b"watch=true" not in request:
                page = page_of(objects, request)
                connection.sendall(b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: %d\r\n\r\n" % len(page))
                connection.sendall(page)
                continue
            connection.sendall(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n")
            due_s = time.monotonic()
            for event in events:
                frame = b"%x\r\n%s\n\r\n" % (len(event) + 1, event)
                for at in range(0, len(frame), PIECE_BYTES):
                    connection.sendall(frame[at : at + PIECE_BYTES])
                due_s += 1 / rate if rate else 0.0
                if (left_s := due_s - time.monotonic()) > 0 and rate:
                    time.sleep(left_s)
            connection.recv(1)  # until we are left


@contextmanager
def server(pods: int, rate: int) -> Iterator[Credentials]:
    """Run the server in a process of its own. What it sends is made BEFORE: a client gives up a slow handshake."""
    events = [pod_event(number, 2, "MODIFIED") for number in range(pods)]
    objects = [pod_event(number, 1, "ADDED")[len(b'{"type":"ADDED","object":') : -1] for number in range(pods)]
    authority = trustme.CA()
    with tempfile.TemporaryDirectory() as folder, socket.create_server(("127.0.0.1", 0)) as listener:
        certificate, ca = Path(folder, "server.pem"), Path(folder, "ca.pem")
        authority.issue_cert("127.0.0.1").private_key_and_cert_chain_pem.write_to_path(certificate)
        authority.cert_pem.write_to_path(ca)
        process = multiprocessing.Process(
            target=serve, args=(listener, str(certificate), objects, events, rate), daemon=True
        )
        process.start()
        try:
            yield Credentials("127.0.0.1", listener.getsockname()[1], ca_file=str(ca))
        finally:
            process.kill()
            process.join()


def membership_of(pods: int) -> Membership:
    """Return the controller's view of one running JobSet and its Jobs."""
    log = structlog.get_logger()
    membership = Membership(lambda _key, _delay_s: None, lambda _obj, _note: None, LoopClock(), log)
    manifest = jobset(NAME, pods)
    manifest["metadata"] = {"name": NAME, "namespace": "bench", "uid": "jobset", "resourceVersion": "1"}
    membership.jobset_changed(None, manifest | {"status": wire.status_of_epochs(1, 0)})
    (workers,) = manifest["spec"]["replicatedJobs"]
    for index in range(workers["replicas"]):
        owner = {"kind": wire.KIND, "uid": "jobset", "controller": True}
        job = {
            "metadata": {
                "name": f"{NAME}-{workers['name']}-{index}",
                "namespace": "bench",
                "uid": f"job-{index}",
                "resourceVersion": "1",
                "ownerReferences": [owner],
                "labels": {wire.RESTART_ATTEMPT: "0"},
            }
        }
        membership.job_changed(None, JOB_CODEC.convert(job))
    return membership


def _unchanged(to: Credentials) -> Renew:
    async def read(_rejected: bool) -> Credentials:
        return to

    return read


async def us_per_event(to: Credentials, pods: int) -> float:
    """Let every Pod announce once; return the microseconds of CPU per announcement."""
    membership = membership_of(pods)
    (group,) = membership
    (counted,) = group.ledgers.values()
    clock = LoopClock()
    async with open_transport(Identity(to, _unchanged(to), clock=clock)) as transport:
        client = KubeClient(transport, user_agent="bench", field_manager="bench")
        log = structlog.get_logger()
        rest_s = membership.gathering.rest_s
        informer: Informer[Pod] = Informer(
            client,
            PODS,
            POD_CODEC,
            clock=clock,
            rng=Random(1),
            log=log,
            rest_s=rest_s,
            handlers=(membership.pod_changed, PhaseReader(Metrics(), membership.home_of).pod_changed),
        )
        running = asyncio.create_task(informer.run())
        await informer.wait_synced()
        assert counted.ledger.histogram() == {1: pods}, counted.ledger.histogram()
        began_s, next_epoch = time.process_time(), counted.ledger.next_epoch
        async with asyncio.timeout(ROUND_S_MAX):
            while counted.ledger.arrived(next_epoch) < pods:  # noqa: ASYNC110 - ten looks a second cost nothing
                await asyncio.sleep(0.1)
        spent_s = time.process_time() - began_s
        running.cancel()
    return spent_s / pods * 1e6


def measure(pods: int, rounds: int) -> Figures:
    """Measure some rounds at each rate."""
    figures = Figures(f"the controller's CPU for one Pod event, {pods} Pods, {rounds} rounds")
    for rate in RATES:
        with server(pods, rate) as to:
            for _ in range(rounds):
                us = asyncio.run(us_per_event(to, pods))
                figures.add(f"{rate} a second" if rate else "as fast as they are read", {"cpu_us": us})
    return figures


def main() -> None:
    """Measure and print."""
    parser = flags(__doc__, pods=PODS_DEFAULT, rounds=ROUNDS)
    options = parser.parse_args()
    if options.pods > PODS_PER_JOB and options.pods % PODS_PER_JOB:
        parser.error(f"expected up to {PODS_PER_JOB} pods or a multiple of it")
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(40))
    measure(options.pods, options.rounds).show(options)


if __name__ == "__main__":
    main()
