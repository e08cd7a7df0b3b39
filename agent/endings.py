"""
What to do after a request failed or a watch ended: how long to wait, and what to tell whoever reads the log.

One table for the watch and the announcement. All waits are full jitter, so that 5,000 agents that fail
together do not come back together: at a cap of C seconds they send about 10,000 / C requests per second.
"""

from __future__ import annotations

from random import Random
from typing import Final

from common.kube.backoff import Backoff
from common.kube.errors import Forbidden, NotFound
from common.kube.http import CertificateError, GarbledError, TransportTimeoutError
from common.kube.watch import (
    Broken,
    Busy,
    Closed,
    Denied,
    Gone,
    Unauthenticated,
    WatchEnding,
)

RETRY_BASE_S: Final = 0.5  # a blip should cost less than a second
RETRY_CAP_S: Final = 30.0  # 5,000 agents: 330 requests per second in the worst hour of an API server
DENIED_BASE_S: Final = 10.0  # somebody has to change RBAC, a CRD or a manifest
DENIED_CAP_S: Final = 120.0  # 5,000 agents: 80 requests per second
HEALTHY_S: Final = 10.0  # a watch that lived this long ends a row of failures
FREE_ENDINGS_MAX: Final = 2  # clean ends in a row, each before HEALTHY_S, that are followed by no wait


class Patience:
    """Say how long to wait before trying again.

    Args:
        rng: source of the jitter.
    """

    def __init__(self, rng: Random) -> None:
        self._retry = Backoff(RETRY_BASE_S, RETRY_CAP_S, rng)
        self._denied = Backoff(DENIED_BASE_S, DENIED_CAP_S, rng)
        self._free = 0

    def wait_s(self, ending: WatchEnding, lived_s: float = 0.0) -> float:
        """Return the seconds to wait after `ending` of something that worked for `lived_s` seconds."""
        if lived_s >= HEALTHY_S:
            self._retry.reset()
            self._denied.reset()
            self._free = 0
        match ending:
            case Closed() | Gone() if self._free < FREE_ENDINGS_MAX:
                self._free += 1
                return 0.0
            case Busy(after_s=after_s):
                return self._retry.next_s(after_s)
            case Denied():
                return self._denied.next_s()
            case _:
                return self._retry.next_s()


def cause_of(ending: WatchEnding) -> str:
    """Return the ending's name: a metric's label value and the log's `cause`. The set of names is bounded."""
    match ending:
        case Broken(error=TransportTimeoutError()):
            return "silent"
        case Broken(error=GarbledError()):
            return "garbled"
        case Broken(error=CertificateError()):
            return "certificate"
        case Denied(error=Forbidden()):
            return "forbidden"
        case Denied(error=NotFound()):
            return "not_found"
        case _:
            return type(ending).__name__.lower()


def cure_of(ending: WatchEnding, verb: str, resource: str, namespace: str) -> str:
    """Return what somebody has to do about `ending`; "" when waiting cures it."""
    what = f"{verb} {resource} in namespace {namespace}"
    match ending:
        case Denied(error=Forbidden()):
            return f"let the Pod's ServiceAccount {what} (RBAC), or see which admission policy refuses it"
        case Denied(error=NotFound()) if resource == "pods":
            return "none: this Pod is gone from the API server, and kubelet will stop it"
        case Denied(error=NotFound()):
            return "install the JobSet CRD (jobsets.jobset.x-k8s.io, v1alpha2)"
        case Denied() if resource == "pods":
            return "if the uid differs, another Pod of this name replaced this one, and kubelet will stop it"
        case Denied():
            return f"the server will not {what} as asked; see its message"
        case Unauthenticated():
            return "check that the Pod's token is mounted and the ServiceAccount exists"
        case Broken(error=CertificateError()):
            return "the CA of the credentials must have signed the API server's certificate"
        case _:
            return ""


def words_of(ending: WatchEnding) -> str:
    """Return the server's or the transport's own words."""
    match ending:
        case Closed():
            return "the server closed the watch"
        case Gone():
            return "the resourceVersion is no longer in the server's history"
        case _:
            return str(ending.error) or type(ending.error).__name__
