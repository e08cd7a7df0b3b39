"""
Read a JobSet and its Pods in two requests, however many Pods there are, with as few bytes as possible.

A Pod is 14 kB of JSON, a third of it managedFields. The second request depends on the answer to the first (measured at
5,000 Pods, docs/adr/0041). It reads the whole Pods of a small group. Of a large group it reads a Table without objects
while an epoch runs (0.8 MB), and the Pods' metadata with their epochs while the group gathers (44 MB).

Whether a controller works says its Lease, which it renews every two seconds. Both times are the server's side of the
world: the Lease's is the controller's clock, the other the answer's Date.
"""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import Final

import msgspec

from inplace.cli.connection import Connection, did_you_mean
from inplace.cli.group.pod_facts import POD_CODEC, POD_LIST, PodFact, PodsRead
from inplace.cli.group.pod_table import ACCEPT as TABLE
from inplace.cli.group.pod_table import decode_table
from inplace.cli.refusal import CliExit, RefusalError
from inplace.cli.terminal.moments import duration_text
from inplace.common.bare.record import record
from inplace.common.jobset.causes import unix_time
from inplace.common.jobset.headline import Pulse, pulse_of
from inplace.common.jobset.jobset import parse_jobset
from inplace.common.kube.answers import decoded
from inplace.common.kube.client import LIST_TIMEOUT_S
from inplace.common.kube.errors import ApiError, NotFound
from inplace.common.kube.http.request import Request, TransportError
from inplace.common.kube.resources import JOBSETS, LEASES, PODS, KubeObject
from inplace.common.protocol.errors import RemoteProtocolError
from inplace.common.protocol.members import Members
from inplace.common.wire import names as wire

PAGE: Final = 5_000  # Pods in one answer: 44 MB of metadata, below what the transport takes (64 MB)
WHOLE_PAGE: Final = 1_000  # the same for whole Pods
WHOLE: Final = "application/json"
METADATA: Final = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"


async def read_group(connection: Connection, name: str) -> tuple[KubeObject, list[PodFact]]:
    """Return a JobSet, raw, and its Pods, as far as the moment needs them.

    Raises:
        RefusalError: there is no such JobSet.
        ApiError, TransportError: the cluster refused, or did not answer.
    """
    raw = await read_jobset(connection, name)
    return raw, (await read_pods_of(connection, raw)).pods


async def read_pods_of(connection: Connection, raw: KubeObject) -> PodsRead:
    """Return the Pods of a JobSet, as far as the moment needs them."""
    name, (expected, synced, members) = raw["metadata"]["name"], _size_and_epoch(raw)
    if expected <= connection.whole_max:
        return await read_pods(connection, name)
    if not synced:
        return await read_pods(connection, name, METADATA, PAGE)
    body = await _get_pods(connection, {"labelSelector": pods_selector(name), "includeObject": "None"}, TABLE)
    return decode_table(body, name, synced, members)


async def read_jobset(connection: Connection, name: str) -> KubeObject:
    """Return a JobSet, raw.

    Raises:
        RefusalError: there is none of this name; the message says which there are.
    """
    try:
        return await connection.client.get(JOBSETS, connection.namespace, name)
    except NotFound as error:
        if not error.details.get("name"):
            raise  # the path itself is unknown: no CRD
    raise await _not_found(connection, name)


async def read_pod(connection: Connection, name: str) -> PodFact:
    """Return one Pod, whole."""
    path = PODS.path(connection.namespace, name)
    return decoded(POD_CODEC.decode, (await connection.client.raw("GET", path)).body, "a Pod")


async def read_pods(connection: Connection, name: str, accept: str = WHOLE, page: int = WHOLE_PAGE) -> PodsRead:
    """Return the Pods of a JobSet, as few pages as fit."""
    query, pods = {"labelSelector": pods_selector(name), "limit": str(page)}, list[PodFact]()
    while True:
        found = decoded(POD_LIST.decode, await _get_pods(connection, query, accept), "a list of Pods")
        pods += found.items or []
        if not found.metadata.go_on:
            return PodsRead(pods, found.metadata.resource_version)
        query = query | {"continue": found.metadata.go_on}


async def read_jobsets(
    connection: Connection, *, everywhere: bool = False, selector: str | None = None
) -> list[KubeObject]:
    """Return every JobSet of the namespace, or of all namespaces; `selector` is one of labels."""
    query = {"labelSelector": selector} if selector else None
    found = await connection.client.list(JOBSETS, None if everywhere else connection.namespace, query=query)
    return list(found["items"])


async def _get_pods(connection: Connection, query: dict[str, str], accept: str) -> bytes:
    headers = connection.client.headers | {"accept": accept}
    request = Request("GET", PODS.path(connection.namespace, query=query), headers)
    return (await connection.client.send(request, timeout_s=LIST_TIMEOUT_S)).body


def pods_selector(name: str) -> str:
    """Return the label selector of a JobSet's Pods."""
    return f"{wire.JOBSET_NAME}={name}"


def _size_and_epoch(raw: KubeObject) -> tuple[int, int, Members | None]:
    """Return how many Pods a JobSet expects, S while that epoch runs (else 0), and its members if some are spares.

    A JobSet in scopes has no one S; its Pods' epochs have to be read.
    """
    try:
        jobset = parse_jobset(raw)
        scopes = list(jobset.scopes.values())
    except RemoteProtocolError:
        return 0, 0, None
    size = sum(job.replicas * job.parallelism for job in jobset.replicated_jobs)
    first = scopes[0]
    runs = len(scopes) == 1 and first.is_running
    if not runs or (first.has_spares and first.ranks is None):  # each may be a member
        return size, 0, None
    return size, first.synced, first.ranks if first.has_spares else None


async def _not_found(connection: Connection, name: str) -> RefusalError:
    """Return the refusal, with what was perhaps meant; asking for it costs one more request, in this case alone."""
    namespace = connection.namespace
    message = f"there is no JobSet {name} in {connection.place}"
    try:
        jobsets = (await connection.client.list(JOBSETS, None))["items"]
    except (ApiError, TransportError):
        return RefusalError(f"{message}; `inplace status` lists those that you may see", CliExit.NOT_FOUND)
    known = [(one["metadata"].get("namespace") or "", one["metadata"]["name"]) for one in jobsets]
    places = sorted({place for place, other in known if other == name})
    here = [other for place, other in known if place == namespace]
    if places:
        return RefusalError(f"{message}, but one in {', '.join(places)}: use --namespace", CliExit.NOT_FOUND)
    hint = did_you_mean(name, here) if here else "this namespace has none at all; --namespace, or apply one"
    return RefusalError(f"{message}: {hint}", CliExit.NOT_FOUND)


OUR_LEASE: Final = ("inplace-system", "inplace-controller")
NAMESPACE: Final = OUR_LEASE[0]
NAME: Final = "/".join(OUR_LEASE)


class _Spec(msgspec.Struct, rename="camel"):
    holder_identity: str | None = None
    renew_time: str | None = None


class _Lease(msgspec.Struct):
    spec: _Spec | None = None


_LEASE: Final = msgspec.json.Decoder(_Lease)


@record
class Controller:
    """What is known of the controller.

    Args:
        words: what its Lease says, where it has stopped.
        pod: the Pod that holds the Lease; "" for none.
    """

    pulse: Pulse
    words: str = ""
    pod: str = ""

    @property
    def advice(self) -> str:
        """Return what to look at, with commands that work as they stand."""
        if not self.pod:
            return f"start it: kubectl get deployments,pods -n {NAMESPACE}"
        return (
            f"look at it: kubectl get pods -n {NAMESPACE}, and kubectl logs {self.pod} -n {NAMESPACE} --tail 50; if "
            f"its log stands still, let another one take over: kubectl delete pod {self.pod} -n {NAMESPACE}"
        )


NOT_ASKED: Final = Controller(Pulse.UNKNOWN)


async def read_controller(connection: Connection, unread: list[str]) -> Controller:
    """Return what the Lease says; why it cannot be read is added to `unread`."""
    try:
        answer = await connection.client.raw("GET", LEASES.path(*OUR_LEASE))
        spec = decoded(_LEASE.decode, answer.body, "a Lease").spec or _Spec()
    except NotFound:  # it runs elsewhere, or without an election
        return NOT_ASKED
    except (ApiError, TransportError) as error:
        unread.append(f"the controller's Lease {NAME}, so it is not known whether the controller works: {error}")
        return NOT_ASKED
    holder, now_s = spec.holder_identity or "", _unix_time(answer.headers.get("date", ""))
    renewed_s = unix_time(spec.renew_time) if holder else None
    pulse = pulse_of(renewed_s, now_s)
    if pulse is Pulse.BEATS:
        return Controller(pulse)
    if renewed_s is None:
        return Controller(pulse, f"no controller works: nobody holds the Lease {NAME}")
    ago = duration_text(max(0.0, now_s - renewed_s))
    pod = holder.rpartition("_")[0] or holder
    return Controller(pulse, f"the controller does not answer: Pod {pod} renewed the Lease {NAME} {ago} ago", pod)


def _unix_time(date: str) -> float:
    """Read the header Date, which HTTP knows in one form, in English; this machine's time without one."""
    try:
        _, day, month, year, clock, _ = date.split()
        hour, minute, second = map(int, clock.split(":"))
        number = 1 + "JanFebMarAprMayJunJulAugSepOctNovDec".index(month) // 3
        return datetime(int(year), number, int(day), hour, minute, second, tzinfo=UTC).timestamp()
    except ValueError:
        return time.time()
