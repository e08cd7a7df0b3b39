"""The agent comes beside the worker or around it, with its image as a volume, a port and a token of its own."""

from __future__ import annotations

from pathlib import PurePosixPath

import pytest

from inplace.agent.settings.address import LINK_FILE, progress_dir
from inplace.cli.manifests.yaml_loader import parse
from inplace.common.injection import agent_pieces
from inplace.common.injection.agent_pieces import token_mount, token_volume
from inplace.common.injection.pod_roles import SERVICE_ACCOUNT_DIR
from inplace.common.kube.http.credentials import service_account_dir
from inplace.common.kube.resources import KubeObject
from inplace.common.wire import names as wire
from tests.cli.injecting import (
    PLAIN,
    SILENT,
    TWO,
    annotated,
    as_yaml,
    findings_of,
    injected,
    jobset_of,
    plain,
    pod_spec_of,
    refused,
)

ENV = "              env:\n"


def silent(**lines: str) -> str:
    """Return the plain example without a command, with further lines."""
    return plain(**lines).replace("              command: [python3, -m, inplace.examples.train]\n", "")


def by_name(items: list[KubeObject]) -> dict[str, KubeObject]:
    """Return named objects by name."""
    return {item["name"]: item for item in items}


@pytest.mark.parametrize(
    ("mode", "program"), [("sidecar", ["/inplace/bin/guard"]), ("supervisor", ["/inplace/bin/inplace-agent", "run"])]
)
def test_the_agents_image_is_a_volume_of_the_worker(mode: str, program: list[str]) -> None:
    """Once, at the place where its programs are; the agent's own container needs none."""
    image = {"reference": "a:1", "pullPolicy": "IfNotPresent"}
    pod = pod_spec_of(injected(PLAIN, mode=mode, agent_image="a:1"))
    (worker,) = pod["containers"]
    assert worker["command"] == [*program, "--", "python3", "-m", "inplace.examples.train"]
    assert worker["volumeMounts"].count({"name": "inplace", "mountPath": "/inplace", "readOnly": True}) == 1
    assert [volume for volume in pod["volumes"] if volume["name"] == "inplace"] == [{"name": "inplace", "image": image}]
    for agent in pod.get("initContainers", ()):
        assert all(mount["name"] != "inplace" for mount in agent["volumeMounts"])
        assert by_name(agent["env"])["LINK_FILE"] == by_name(worker["env"])["LINK_FILE"]


@pytest.mark.attack
@pytest.mark.parametrize("depth", ["process", "containers"])
def test_a_worker_cannot_write_the_agents_memory_nor_its_link(depth: str) -> None:
    """Its container sees both read-only. What it may write is a small folder, which the agent's memory is not in."""
    pod = pod_spec_of(injected(annotated(restart=depth)))
    (agent,), (worker,) = pod["initContainers"], pod["containers"]
    files = [PurePosixPath(by_name(agent["env"])[name]["value"]) for name in ("EPOCH_FILE", "LINK_FILE")]
    for file in files:
        assert mount_of(agent, file) == {"name": "inplace-agent", "mountPath": "/var/run/inplace"}
        assert mount_of(worker, file) == {"name": "inplace-agent", "mountPath": "/var/run/inplace", "readOnly": True}
    progress = PurePosixPath(progress_dir("", str(files[0]))) / "rank-0"
    assert mount_of(worker, progress) == mount_of(agent, progress)
    assert mount_of(worker, progress)["name"] == "inplace-progress"
    assert by_name(worker["env"])["LINK_FILE"] == by_name(agent["env"])["LINK_FILE"]


@pytest.mark.attack
@pytest.mark.parametrize("copies", [False, True])
@pytest.mark.parametrize("mode", ["sidecar", "supervisor"])
def test_every_folder_that_is_added_has_a_bound(mode: str, copies: bool) -> None:
    """What is written to while the worker runs is in memory, so that a full one refuses, and evicts nobody."""
    volumes = pod_spec_of(injected(PLAIN, mode=mode, copies_image=copies))["volumes"]
    added = [one for one in volumes if "emptyDir" in one and one["name"] != "checkpoints"]  # which is the author's
    for volume in added:
        assert "sizeLimit" in volume["emptyDir"], volume
        assert volume["emptyDir"].get("medium") == (None if volume["name"] == "inplace" else "Memory")
    assert {one["name"] for one in added} == {
        "inplace-agent",
        *(["inplace-progress"] if mode == "sidecar" else []),
        *(["inplace"] if copies else []),
    }


def mount_of(container: KubeObject, file: PurePosixPath) -> KubeObject:
    """Return the mount in which a file lies."""
    mounts = [one for one in container["volumeMounts"] if file.is_relative_to(one["mountPath"])]
    return max(mounts, key=lambda one: len(one["mountPath"]))


@pytest.mark.parametrize("mode", ["sidecar", "supervisor"])
def test_the_programs_are_copied_where_nodes_have_no_image_volumes(mode: str) -> None:
    """BEFORE all other init containers, from the agent's image to an emptyDir; the worker is the same."""
    text = plain(pod="initContainers: [{name: first, image: 'i:1', command: [prepare]}]")
    mounted, copied = (
        pod_spec_of(injected(text, mode=mode, agent_image="a:1", copies_image=copies)) for copies in (False, True)
    )
    copier, *others = copied["initContainers"]
    assert (copier["name"], copier["image"]) == ("inplace-copy", "a:1")
    assert copier["command"] == ["/inplace/bin/copy", "/inplace-copy"]
    assert copier["volumeMounts"] == [{"name": "inplace", "mountPath": "/inplace-copy"}]
    assert by_name(copied["volumes"])["inplace"] == {"name": "inplace", "emptyDir": {"sizeLimit": "256Mi"}}
    assert (others, copied["containers"]) == (mounted["initContainers"], mounted["containers"])


def test_a_port_that_the_pod_declares_is_left_to_it() -> None:
    """Agent and probe take the first other port that no container declares."""
    text = plain(worker="ports: [{containerPort: 8080}, {containerPort: 18080}]")
    (agent,) = pod_spec_of(injected(text))["initContainers"]
    assert by_name(agent["env"])["BARRIER_PORT"]["value"] == "18081"
    assert agent["readinessProbe"]["httpGet"]["port"] == 18081
    assert findings_of(*parse(injected(text))) == ()
    (agent,) = pod_spec_of(injected(PLAIN))["initContainers"]
    assert "BARRIER_PORT" not in by_name(agent["env"])


def test_a_probe_that_is_added_asks_at_the_agents_own_port() -> None:
    """An agent that is there says its port by a variable; what other containers declare does not matter to it."""
    document = jobset_of(injected(plain(worker="ports: [{containerPort: 8080}]")))
    pod = document["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]
    (agent,) = pod["initContainers"]
    del agent["readinessProbe"]
    by_name(agent["env"])["BARRIER_PORT"]["value"] = "9000"
    (agent,) = pod_spec_of(injected(as_yaml([document])))["initContainers"]
    assert agent["readinessProbe"]["httpGet"]["port"] == 9000
    assert by_name(agent["env"])["BARRIER_PORT"]["value"] == "9000"


def test_a_worker_without_a_command_gets_a_guard_if_its_image_lets_one_in() -> None:
    """Only its image knows its program: glibc's loader puts the guard around it, and a probe holds back all others."""
    pod = pod_spec_of(injected(SILENT))
    (agent,), (worker,) = pod["initContainers"], pod["containers"]
    assert "command" not in worker
    loaded = by_name(worker["env"])
    assert loaded["LD_AUDIT"]["value"] == "/inplace/lib/entrypoint.so"
    assert loaded["ENTRYPOINT_GUARD"]["value"] == "/inplace/bin/guard"
    assert {mount["mountPath"] for mount in worker["volumeMounts"]} >= {"/inplace", "/var/run/inplace"}
    assert "inplace" in by_name(pod["volumes"])
    assert ("startupProbe" in agent, "readinessProbe" in agent) == (True, False)
    assert by_name(agent["env"]).keys() >= {"LINK_FILE", "GUARDS_AWAITED"}
    assert by_name(agent["env"])["GUARDS_AWAITED"]["value"] == "1"


def test_the_guard_of_an_entrypoint_knows_the_codes_and_the_signal_that_end_its_pod() -> None:
    """As the guard of a command does."""
    text = silent(worker="lifecycle: {stopSignal: SIGUSR1}")
    (worker,) = pod_spec_of(injected(text))["containers"]
    assert by_name(worker["env"])["ENTRYPOINT_GUARD"]["value"] == "/inplace/bin/guard --stop-signal SIGUSR1"


@pytest.mark.parametrize(
    "text",
    [
        silent(pod="shareProcessNamespace: true"),
        silent(pod="hostPID: true"),
        SILENT.replace(ENV, f"{ENV}              - {{name: LD_AUDIT, value: /mine.so}}\n", 1),
        silent(metadata="annotations: {inplace.dev/restart: containers}"),
    ],
    ids=["shared", "host", "audited", "containers"],
)
def test_a_guard_that_may_not_come_must_not_be_needed(text: str) -> None:
    """Then a worker without a command has only the probe: its guard could not be process 1, or must not be missing."""
    pod = pod_spec_of(injected(text))
    assert "ENTRYPOINT_GUARD" not in by_name(pod["containers"][0].get("env") or [])
    assert "LINK_FILE" not in by_name(pod["initContainers"][0]["env"])
    assert "startupProbe" in pod["initContainers"][0]


def test_a_restricted_pod_stays_restricted() -> None:
    """The agent's containers run as the Pod's user, and write nowhere but into volumes."""
    text = plain(
        pod="securityContext: {runAsNonRoot: true, runAsUser: 65534, seccompProfile: {type: RuntimeDefault}}",
        worker="securityContext: {readOnlyRootFilesystem: true}",
    )
    pod = pod_spec_of(injected(text, copies_image=True))
    assert pod["containers"][0]["securityContext"] == {"readOnlyRootFilesystem": True}
    for container in pod["initContainers"]:
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
            "readOnlyRootFilesystem": True,
            "runAsNonRoot": True,
            "seccompProfile": {"type": "RuntimeDefault"},
        }


@pytest.mark.parametrize("names", ["worker", "worker+logger", " worker + logger "])
def test_the_workers_are_named_by_an_annotation(names: str) -> None:
    """As by the option."""
    annotation = f'  annotations: {{{wire.AGENT}: "workers={names}"}}\n'
    made = injected(TWO.replace("  name: plain\n", f"  name: plain\n{annotation}", 1))
    workers = {name.strip() for name in names.split("+")}
    rules = {container["name"]: "restartPolicyRules" in container for container in pod_spec_of(made)["containers"]}
    assert rules == {name: name in workers for name in ("worker", "logger")}
    assert injected(made) == made


GPU = "resources: {limits: {nvidia.com/gpu: 8}}"


@pytest.mark.parametrize(("devices", "rules"), [(1, [True, False]), (2, [True, True])])
def test_the_containers_with_devices_are_the_workers(devices: int, rules: list[bool]) -> None:
    """Where several stand in a Pod and nobody names them."""
    text = TWO.replace("requests: {cpu: 50m, memory: 32Mi}", "limits: {nvidia.com/gpu: 8}", 1)
    assert text != TWO
    if devices == 2:
        text = text.replace("{name: logger,", f"{{name: logger, {GPU},")
    made = injected(text)
    assert ["restartPolicyRules" in container for container in pod_spec_of(made)["containers"]] == rules
    assert injected(made) == made


@pytest.mark.parametrize("barrier", ["guard", "probe"])
def test_the_token_is_in_the_agents_container_alone(barrier: str) -> None:
    """Wherever the worker has a container of its own; an author who wants it everywhere says so, and keeps it."""
    made = pod_spec_of(injected(PLAIN, barrier=barrier))
    assert made["automountServiceAccountToken"] is False
    assert made["initContainers"][0]["volumeMounts"][-1] == token_mount()
    assert all(mount["name"] != "inplace-agent-token" for mount in made["containers"][0].get("volumeMounts") or ())
    assert token_volume() in made["volumes"]
    for text, mounts in (("true", False), ("false", True)):
        kept = pod_spec_of(injected(plain(pod=f"automountServiceAccountToken: {text}"), barrier=barrier))
        assert kept["automountServiceAccountToken"] is (text == "true")
        assert (token_mount() in kept["initContainers"][0]["volumeMounts"]) is mounts


@pytest.mark.attack
@pytest.mark.parametrize("account", ["inplace-agent-b", "trainer", "default"])
@pytest.mark.parametrize("mode", ["sidecar", "supervisor"])
def test_no_container_but_the_agents_has_a_token_of_any_account(mode: str, account: str) -> None:
    """The account may announce by our doing, so what is added mounts its token where the agent runs alone."""
    text = TWO.replace(
        "            containers:", f"            serviceAccountName: {account}\n            containers:", 1
    )
    made = pod_spec_of(injected(text, mode=mode, workers=("worker",)))
    assert made["serviceAccountName"] == account
    assert made["automountServiceAccountToken"] is False
    containers = [*made.get("initContainers", ()), *made["containers"]]
    holders = [one["name"] for one in containers if token_mount() in one.get("volumeMounts", ())]
    assert holders == [{"sidecar": "inplace-agent", "supervisor": "worker"}[mode]]


def test_the_folders_of_an_agent_that_lost_its_mounts_come_back() -> None:
    """Beside a guard an agent that is there gets both folders again, as one that is added."""
    made = parse(injected(PLAIN))
    agent = made[-1]["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]["initContainers"][0]
    lost, agent["volumeMounts"] = agent["volumeMounts"], []
    (again,) = pod_spec_of(injected(as_yaml(made)))["initContainers"]
    assert by_name(again["volumeMounts"]) == by_name(lost)


def test_the_constants_are_the_agents() -> None:
    """The controller does not load the agent's modules."""
    assert agent_pieces.LINK_FILE == LINK_FILE
    assert service_account_dir({}) == SERVICE_ACCOUNT_DIR


@pytest.mark.parametrize(
    ("depth", "own", "policy"),
    [
        ({"restart": "containers"}, "", "FallbackToLogsOnError"),
        ({"restart": "containers"}, "File", "File"),
        ({"restart": "process"}, "", None),
        ({}, "", None),
    ],
)
def test_kubelet_tells_how_the_log_of_a_container_ended(depth: dict[str, str], own: str, policy: str | None) -> None:
    """Where the container ends with its worker, and its author set nothing else."""
    text = plain(worker=f"terminationMessagePolicy: {own}") if own else PLAIN
    (worker,) = pod_spec_of(injected(annotated(text, **depth)))["containers"]
    assert worker.get("terminationMessagePolicy") == policy


KEEPS = annotated(restart="keep=64Gi")


@pytest.mark.parametrize("mode", ["sidecar", "supervisor"])
def test_workers_get_a_folder_that_outlives_restarts(mode: str) -> None:
    """In memory, of the size that the JobSet says; the agent does not, and a second injection changes nothing."""
    pod = pod_spec_of(injected(KEEPS, mode=mode))
    (worker,) = pod["containers"]
    assert by_name(worker["env"])["INPLACE_KEEP_DIR"]["value"] == "/var/run/inplace-keep"
    assert {"name": "inplace-keep", "mountPath": "/var/run/inplace-keep"} in worker["volumeMounts"]
    volume = {"name": "inplace-keep", "emptyDir": {"medium": "Memory", "sizeLimit": "64Gi"}}
    assert [one for one in pod["volumes"] if one["name"] == "inplace-keep"] == [volume]
    for agent in pod.get("initContainers", ()):
        assert all(mount["name"] != "inplace-keep" for mount in agent["volumeMounts"])
    again = injected(injected(KEEPS, mode=mode), mode=mode)
    assert pod_spec_of(again) == pod


def test_nobody_gets_it_unasked() -> None:
    """Not by other parts of the same annotation."""
    pod = pod_spec_of(injected(annotated(restart="process")))
    assert all(volume["name"] != "inplace-keep" for volume in pod["volumes"])


@pytest.mark.parametrize("limit", ["32Gi", "64Gi", "65Gi"])
def test_what_is_kept_must_fit_into_the_workers_memory(limit: str) -> None:
    """Its files count against the worker's limit."""
    requests = "requests: {cpu: 50m, memory: 32Mi}"
    text = KEEPS.replace(requests, f"limits: {{cpu: 50m, memory: {limit}}}")
    assert text != KEEPS
    if limit == "65Gi":
        assert "inplace-keep" in injected(text)
        return
    said = refused(text)
    assert 'containers[name="worker"].resources.limits.memory' in said
    assert f"{limit}" in said
    assert "more than the 64Gi of keep in inplace.dev/restart; files there count" in said
