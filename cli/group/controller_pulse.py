"""
Read whether a controller works: it renews its Lease every two seconds. One request.

Both times are the server's side of the world: the Lease's is the controller's clock, the other the answer's Date.
"""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import Final

import msgspec

from inplace.cli.connection import Connection
from inplace.cli.terminal.moments import duration_text
from inplace.common.bare.record import record
from inplace.common.jobset.causes import unix_time
from inplace.common.jobset.headline import Pulse, pulse_of
from inplace.common.kube.answers import decoded
from inplace.common.kube.errors import ApiError, NotFound
from inplace.common.kube.http.request import TransportError
from inplace.common.kube.resources import LEASES

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
