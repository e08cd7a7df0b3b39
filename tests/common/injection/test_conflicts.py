"""What stands in the agent's place is refused, with the path, what is there and what to do."""

from __future__ import annotations

import pytest

from inplace.common.injection.pod import OTHER_PORTS
from tests.cli.injecting import PLAIN, injected, plain, pod_spec_of, refused

ALL_PORTS = ", ".join(f"{{containerPort: {port}}}" for port in (8080, *OTHER_PORTS))


def mounting(name: str, place: str, source: str = "emptyDir: {}") -> str:
    """Return the plain example, whose worker mounts one volume more."""
    mounts = "              volumeMounts:\n"
    text = PLAIN.replace(mounts, f"{mounts}              - {{name: {name}, mountPath: {place}}}\n")
    assert text != PLAIN
    return text.replace("            volumes:\n", f"            volumes:\n            - {{name: {name}, {source}}}\n")


def test_a_mount_of_the_agents_image_that_is_there_is_used() -> None:
    """A template that mounts the image already gets no second volume."""
    made = pod_spec_of(injected(mounting("inplace", "/inplace", "image: {reference: 'a:1'}"), agent_image="a:1"))
    assert [volume["name"] for volume in made["volumes"]].count("inplace") == 1
    assert [mount["mountPath"] for mount in made["containers"][0]["volumeMounts"]].count("/inplace") == 1


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (plain(worker=f"ports: [{ALL_PORTS}]"), "found 8080, needed a port that the agent does not need; change it"),
        (
            plain(pod="initContainers: [{name: inplace-agent, image: 'i:1', command: [x]}]"),
            'initContainers[name="inplace-agent"].name: found inplace-agent, needed another name; rename it',
        ),
        (
            plain(pod="initContainers: [{name: inplace-copy, image: 'i:1', command: [x]}]"),
            "found inplace-copy, needed another name; rename it",
        ),
        (mounting("data", "/inplace"), "volumeMounts[0]: found data at /inplace, needed nothing there"),
        (
            mounting("data", "/inplace/data/"),
            "found data at /inplace/data, needed nothing there: /inplace is for the agent's programs",
        ),
        (mounting("data", "/var/run/inplace"), "/var/run/inplace is for the agent and its guards; mount it"),
        (
            mounting("inplace", "/data"),
            "volumes[0]: found inplace, which is emptyDir, needed the agent's image under this name; rename it",
        ),
        (
            mounting("inplace", "/inplace", "image: {reference: 'data:1'}"),
            "found inplace, which is image data:1, needed the agent's image",
        ),
        (mounting("inplace-agent", "/x", "hostPath: {path: /x}"), "which is hostPath, needed an emptyDir"),
        (mounting("inplace-agent-token", "/x"), "which is emptyDir, needed a token"),
    ],
)
def test_what_is_in_the_way_is_refused(text: str, expected: str) -> None:
    """A port, a container, a volume or a mount."""
    assert expected in refused(text)
