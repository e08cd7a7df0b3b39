"""
The cause, the cure and the log message of a request that failed or a watch that ended.

One table serves the watch and the announcement. `agent.announce.retry_budget` says how long to wait.
"""

from __future__ import annotations

from inplace.common.kube.errors import Forbidden, NotFound
from inplace.common.kube.http.request import CertificateError, GarbledError, TransportTimeoutError
from inplace.common.kube.watch import Broken, Closed, Denied, Gone, Unauthenticated, WatchEnding

_POLICY = "ValidatingAdmissionPolicy"  # the API server names the policy that refused; RBAC's words do not hold it


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
    """Return the cure of `ending` as a sentence for a person; "" when waiting cures it."""
    what = f"{verb} {resource} in namespace {namespace}"
    match ending:
        case Denied(error=Forbidden(message=said)) if _POLICY in said:
            return f"an admission policy will not let the Pod's ServiceAccount {what} as asked; see its message"
        case Denied(error=Forbidden()):
            return (
                f"let the Pod's ServiceAccount {what} (RBAC): the controller gives it the rights, or its Event "
                "AgentBindingFailed has the commands; `inplace inject` prints them for a manifest with an agent"
            )
        case Denied(error=NotFound()) if resource == "pods":
            return "none: this Pod is gone from the API server, and kubelet will stop it"
        case Denied(error=NotFound()):
            return "install the JobSet CRD (jobsets.jobset.x-k8s.io, v1alpha2): kubectl apply --server-side -k deploy/"
        case Denied() if resource == "pods":
            return "if the uid differs, another Pod of this name replaced this one, and kubelet will stop it"
        case Denied():
            return f"the server will not {what} as asked; see its message"
        case Unauthenticated():
            return "check that the Pod's token is mounted (automountServiceAccountToken) and its ServiceAccount exists"
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
