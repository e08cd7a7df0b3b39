"""pods/log: what the API server itself checks and answers, before any kubelet is asked."""

from __future__ import annotations

from urllib.parse import urlencode

import pytest

from inplace.common.kube.errors import BadRequest, Invalid
from inplace.common.kube.resources import PODS
from tests.conformance.api import Api, refusal
from tests.conformance.widgets import pod

pytestmark = pytest.mark.asyncio

GATE = [{"name": "example.com/gate"}]  # keeps the real scheduler away
POD = pod(schedulingGates=GATE)
INVALID = 'PodLogOptions "p" is invalid: '


def log(api: Api, **query: str) -> str:
    """Return the path of the Pod's log."""
    return f"{api.path(PODS, 'p', 'log')}?{urlencode(query)}"


async def test_log_of_an_unknown_container_is_a_bad_request(api: Api) -> None:
    """pods/log with a container that the Pod does not have is a 400."""
    await api.create(POD, PODS)
    refused = await refusal(api.client.raw("GET", log(api, container="nobody")), BadRequest)
    assert refused.message == "container nobody is not valid for pod p"


async def test_log_of_an_unscheduled_pod_is_empty(api: Api) -> None:
    """pods/log of a Pod without a node is a 204."""
    await api.create(POD, PODS)
    assert (await api.send("GET", log(api), accept="*/*")).status == 204


async def test_log_of_several_containers_asks_which(api: Api) -> None:
    """The refusal lists them, init containers first."""
    containers = {name: {"name": name, "image": "i"} for name in "abc"}
    spec = {
        "schedulingGates": GATE,
        "containers": [containers["a"], containers["b"]],
        "initContainers": [containers["c"]],
    }
    await api.create(POD | {"spec": spec}, PODS)
    refused = await refusal(api.client.raw("GET", log(api)), BadRequest)
    assert refused.message == "a container name must be specified for pod p, choose one of: [c a b]"


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ({"tailLines": "-1"}, "tailLines: Invalid value: -1: must be greater than or equal to 0"),
        ({"limitBytes": "0"}, "limitBytes: Invalid value: 0: must be greater than 0"),
        ({"sinceSeconds": "0"}, "sinceSeconds: Invalid value: 0: must be greater than 0"),
        (
            {"sinceSeconds": "1", "sinceTime": "2026-01-01T00:00:00Z"},
            "[]: Forbidden: at most one of `sinceTime` or `sinceSeconds` may be specified",
        ),
        (
            {"tailLines": "-1", "limitBytes": "-1"},
            (
                "[tailLines: Invalid value: -1: must be greater than or equal to 0, "
                "limitBytes: Invalid value: -1: must be greater than 0]"
            ),
        ),
    ],
)
async def test_log_options_out_of_range_are_invalid(api: Api, query: dict[str, str], words: str) -> None:
    """A 422 with the options' names."""
    await api.create(POD, PODS)
    assert (await refusal(api.client.raw("GET", log(api, **query)), Invalid)).message == INVALID + words


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ({"tailLines": "x"}, 'strconv.ParseInt: parsing "x": invalid syntax'),
        ({"limitBytes": "9" * 20}, f'strconv.ParseInt: parsing "{"9" * 20}": value out of range'),
        ({"sinceTime": "yesterday"}, 'parsing time "yesterday" as "2006-01-02T15:04:05Z07:00": cannot parse'),
    ],
)
async def test_log_options_that_cannot_be_read_are_a_bad_request(api: Api, query: dict[str, str], words: str) -> None:
    """A 400 with Go's words."""
    await api.create(POD, PODS)
    await refusal(api.client.raw("GET", log(api, **query)), BadRequest, words)


async def test_log_since_a_time_with_fraction_and_zone(api: Api) -> None:
    """The server reads both; the Pod has no node, so the answer is empty."""
    await api.create(POD, PODS)
    path = log(api, sinceTime="2026-01-01T01:00:01.999999999+01:00", timestamps="true", tailLines="0")
    assert (await api.send("GET", path, accept="*/*")).status == 204
