"""Possible answers of an API server."""

import msgspec

from inplace.common.kube.http.request import Response


def refusal(code: int, reason: str, **headers: str) -> Response:
    """Return a Status."""
    status = {
        "kind": "Status",
        "apiVersion": "v1",
        "status": "Failure",
        "code": code,
        "reason": reason,
        "message": "no",
    }
    return Response(code, {"content-type": "application/json"} | headers, msgspec.json.encode(status))
