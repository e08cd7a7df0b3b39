"""The log entry of a failure that a person must cure contains a command."""

from __future__ import annotations

import pytest

from inplace.agent.announce.retry_causes import cure_of
from inplace.common.kube.errors import error_from_status
from inplace.common.kube.watch import ending_of

# The message of kube-apiserver 1.36.
RBAC = 'pods "p" is forbidden: User "system:serviceaccount:ns:default" cannot patch resource "pods" in API group ""'
POLICY = (
    "pods \"p\" is forbidden: ValidatingAdmissionPolicy 'agents.inplace.dev' with binding 'agents.inplace.dev' denied "
    "request: an agent may patch only the Pod that its token is bound to"
)


@pytest.mark.parametrize(
    ("code", "message", "resource", "words"),
    [
        (403, RBAC, "pods", ("patch pods in namespace ns", "AgentBindingFailed", "inplace inject")),
        (403, POLICY, "pods", ("an admission policy", "see its message")),
        (
            404,
            "the server could not find the requested resource",
            "jobsets",
            ("kubectl apply --server-side -k deploy/",),
        ),
        (401, "Unauthorized", "pods", ("automountServiceAccountToken",)),
    ],
)
def test_the_cure_names_what_is_missing(code: int, message: str, resource: str, words: tuple[str, ...]) -> None:
    """Missing rights, a policy's refusal, a missing CRD and a missing token have different cures."""
    cure = cure_of(ending_of(error_from_status({"message": message}, code)), "patch", resource, "ns")
    assert [word for word in words if word not in cure] == []
