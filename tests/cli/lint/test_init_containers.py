"""Lint says which init containers cannot run again at a restart in place."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from inplace.cli.lint.init_containers import TEXT_CHARS_MAX, VALUE_CHARS_MAX, steps_of
from inplace.cli.lint.policy import policy_sentences
from inplace.common.kube.resources import KubeObject
from inplace.common.wire import names as wire
from tests.cli.injecting import documents_of, findings_of

KEPT = {"name": "src", "mountPath": "/work"}


def with_init(**container: Any) -> KubeObject:
    """Return the example with an init container in front of its agent, which mounts a volume that is kept."""
    document: KubeObject = documents_of("train.yaml")[-1]
    spec = document["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]
    document["metadata"]["annotations"] = {wire.RESTART: wire.DEPTH_CONTAINERS}
    spec["volumes"].append({"name": "src", "emptyDir": {}})
    made = {"name": "prepare", "image": "git:1", "volumeMounts": [dict(KEPT)]} | container
    spec["initContainers"].insert(0, made)
    return document


def found(document: KubeObject) -> set[tuple[str, str]]:
    """Return rule and path of each finding about what this test adds."""
    rules = ("init-not-repeatable", "image-pull", "fuse-sidecar")
    return {(one.rule, one.path.rpartition("spec.")[2]) for one in findings_of(document) if one.rule in rules}


def shell(text: str) -> list[str]:
    """Return a shell's command line."""
    return ["sh", "-c", text]


@pytest.mark.parametrize(
    "command",
    [
        ["git", "clone", "https://example.com/r.git", "/work/r"],
        ["git", "-c", "a=b", "clone", "--depth", "1", "-b", "main", "https://example.com/r.git", "/work/r"],
        ["/usr/bin/git", "clone", "u", "/work/"],
        shell("git clone u /work/r"),
        shell("cd /work && git clone https://example.com/r.git && make"),
        shell("set -euo pipefail\ncd /work # here\ngit clone u 'a b'\necho done"),
        shell("apt-get update; mkdir /work/x"),
        ["bash", "-euo", "pipefail", "-c", "mkdir /work/x; true"],
        ["bash", "-ec", "ln -s /a /work/a; true"],
        shell("mv /work/new /work/old"),
        shell("rm /work/lock && date > /work/log 2>&1"),
        shell("mkfifo -m 600 /work/pipe"),
        shell("mkdir -m 700 /work/x"),
        shell("mkdir /work/$JOB_COMPLETION_INDEX"),
        shell("ssh-keygen -t rsa -N '' -f /work/key"),
        ["bash", "-lc", "cd /work\nhg clone u r"],
    ],
)
def test_what_works_once_is_found(command: list[str]) -> None:
    """A command that fails the second time over a volume that is kept has a finding at its container."""
    path = 'initContainers[name="prepare"].command'
    assert found(with_init(command=command)) == {("init-not-repeatable", path)}
    assert found(with_init(command=command[:1], args=command[1:])) == {("init-not-repeatable", path)}


@pytest.mark.parametrize(
    "command",
    [
        ["git", "clone", "u", "/tmp/r"],  # the container's own file system is new
        shell("[ -d /work/r ] || git clone u /work/r"),
        shell("[ ! -d /work/r ] && git clone u /work/r; true"),
        shell("if [ ! -d /work/r ]; then\n  git clone u /work/r\nfi"),
        shell("for x in a b; do mkdir /work/$x; done"),
        shell("test -d /work/r && exit 0; git clone u /tmp/r"),
        shell("rm -rf /work/r && git clone u /work/r"),
        shell("[ -f /x ] || echo no\nmkdir /work/x"),
        shell("mkdir /work/x || true"),
        shell("mkdir /work/x; cp a /work/x"),
        shell("mkdir -p /work/x && ln -sfn a /work/a && rm -f /work/lock"),
        shell("echo 'git clone u /work/r'"),
        shell("cat > /work/x.sh <<EOF\nmkdir /work/x\nEOF"),
        shell("mkdir /work/x 'open"),
        shell("git -C /work/r pull"),
        shell("git clone u some/where"),
        shell("git clone u $WHERE"),
        shell("cd $WHERE && mkdir data/x"),
        ["python3", "-c", "import os; os.mkdir('/work/x')"],
        ["sh", "/work/prepare.sh"],
        ["sh"],
        [],
    ],
)
def test_what_can_be_repeated_or_is_not_understood_is_left_alone(command: list[str]) -> None:
    """A guarded, repeatable or unreadable command has no finding."""
    assert found(with_init(command=command)) == set()


def test_variables_and_a_git_image_are_understood() -> None:
    """Variables of the manifest are replaced as shell and kubelet do it; the args of an image of git are git's."""
    expected = {("init-not-repeatable", 'initContainers[name="prepare"].command')}
    where = [{"name": "WHERE", "value": "/work/r"}]
    for text in ("git clone u $WHERE", 'git clone u "${WHERE}"', "git clone u $(WHERE)"):
        assert found(with_init(command=shell(text), env=where)) == expected
    assert found(with_init(image="alpine/git:2", args=["clone", "--", "https://example.com/r", "/work/r"])) == expected
    assert found(with_init(image="git-sync:4", args=["--root", "/work"])) == set()
    for args in (["clone", "https://example.com/r"], ["-c", "a=b", "clone", "u", "r"]):  # into the image's own folder
        assert found(with_init(image="alpine/git:2", args=args)) == expected
        assert found(with_init(image="alpine/git:2", args=args, workingDir="/tmp")) == set()
    assert found(with_init(command=["git", "clone", "u", "."], workingDir="/work")) == expected


def test_long_values_are_not_put_in() -> None:
    """A value beyond the bound, or a text that grows beyond its own, is left alone: memory stays bounded."""
    long = [{"name": "WHERE", "value": "/work/" + "x" * VALUE_CHARS_MAX}]
    assert found(with_init(command=shell("git clone u $WHERE"), env=long)) == set()
    many = [{"name": "A", "value": "x" * VALUE_CHARS_MAX}]
    assert found(with_init(command=shell("mkdir /work/x; echo " + "$A" * (TEXT_CHARS_MAX // 4)), env=many)) == set()


def test_a_mount_that_cannot_be_written_is_left_alone() -> None:
    """A read-only mount is never filled, so nothing in it fails the second time only."""
    assert found(with_init(command=shell("mkdir /work/x"), volumeMounts=[KEPT | {"readOnly": True}])) == set()


def test_an_image_without_a_tag_is_pulled_again() -> None:
    """An init container's image is pulled at each restart, as a worker's."""
    path = 'initContainers[name="prepare"].imagePullPolicy'
    assert found(with_init(image="git")) == {("image-pull", path)}
    assert found(with_init(image="git", imagePullPolicy="IfNotPresent")) == set()
    assert found(with_init(image="git:1", imagePullPolicy="Always", restartPolicy="Always")) == {("image-pull", path)}


def annotate_pods(document: KubeObject) -> None:
    """Ask GKE for its sidecar."""
    pods = document["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]
    pods.setdefault("metadata", {})["annotations"] = {"gke-gcsfuse/volumes": "true"}


def mount_bucket(document: KubeObject) -> None:
    """Add a bucket's volume."""
    pods = document["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]
    pods["spec"]["volumes"].append({"name": "data", "csi": {"driver": "gcsfuse.csi.storage.gke.io"}})


@pytest.mark.parametrize("change", [annotate_pods, mount_bucket])
def test_a_bucket_s_mount_does_not_survive(change: Callable[[KubeObject], None]) -> None:
    """Volumes of Cloud Storage FUSE have a finding, but not where the containers stay."""
    document = with_init(command=["true"])
    change(document)
    assert found(document) == {("fuse-sidecar", "volumes")}
    document["metadata"]["annotations"] = {wire.RESTART: "process"}
    assert found(document) == {("fuse-sidecar", "volumes")}, "clean containers have a new sidecar, too"
    document["metadata"]["annotations"][wire.RESTART] = "depth=process,clean-after=0"
    assert found(document) == set()


def test_the_policy_names_what_runs_again() -> None:
    """The policy names the user's init containers and when they run; what runs once has no finding."""
    told = "Each restart in place runs the init containers again: prepare. Their volumes keep what is in them."
    document = with_init(command=shell("mkdir /work/x"))
    assert told in policy_sentences(document)
    once = "The init containers run once per Pod"
    again = ", and again for clean containers after failures in a row"
    document["metadata"]["annotations"] = {wire.RESTART: "process"}
    assert f"{once}{again}: prepare." in policy_sentences(document)
    assert found(document) == {("init-not-repeatable", 'initContainers[name="prepare"].command')}
    document["metadata"]["annotations"][wire.RESTART] = "depth=process,clean-after=0"
    assert f"{once}: prepare." in policy_sentences(document)
    assert found(document) == set()
    assert not any("init containers" in one for one in policy_sentences(documents_of("train.yaml")[-1]))


def test_a_long_script_is_not_read() -> None:
    """A script is read up to a bound; one character more is data."""
    text = "true\n" * (TEXT_CHARS_MAX // 5)
    assert len(steps_of(shell(text), "")) == TEXT_CHARS_MAX // 5
    assert steps_of(shell(text + "x"), "") == []
