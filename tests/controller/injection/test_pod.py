"""The agent comes beside the worker or around it, with its image as a volume, a port and a token of its own."""

from __future__ import annotations

import pytest

from inplace.agent.link.address import LINK_FILE
from inplace.common.kube.http.credentials import service_account_dir
from inplace.common.kube.resources import KubeObject
from inplace.common.wire import names as wire
from inplace.controller.injection import agent_pieces
from inplace.controller.injection.agent_pieces import token_mount, token_volume
from inplace.controller.injection.pod_roles import SERVICE_ACCOUNT_DIR
from tests.cli.injecting import PLAIN, SILENT, TWO, injected, plain, pod_spec_of

ENV = "              env:\n"


def silent(**lines: str) -> str:
    """Return the plain example without a command, with further lines."""
    return plain(**lines).replace("              command: [python3, -m, inplace.examples.train]\n", "")


def by_name(items: list[KubeObject]) -> dict[str, KubeObject]:
    """Return named objects by name."""
    return {item["name"]: item for item in items}


@pytest.mark.parametrize(
    ("mode", "program"),
    [("sidecar", ["/inplace/bin/guard"]), ("supervisor", ["/inplace/bin/inplace-agent", "run"])],
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
        assert agent["volumeMounts"][0] in worker["volumeMounts"]


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
    assert by_name(copied["volumes"])["inplace"] == {"name": "inplace", "emptyDir": {}}
    assert (others, copied["containers"]) == (mounted["initContainers"], mounted["containers"])


def test_a_port_that_the_pod_declares_is_left_to_it() -> None:
    """Agent and probe take the first other port that no container declares."""
    text = plain(worker="ports: [{containerPort: 8080}, {containerPort: 18080}]")
    (agent,) = pod_spec_of(injected(text))["initContainers"]
    assert by_name(agent["env"])["BARRIER_PORT"]["value"] == "18081"
    assert agent["readinessProbe"]["httpGet"]["port"] == 18081
    (agent,) = pod_spec_of(injected(PLAIN))["initContainers"]
    assert "BARRIER_PORT" not in by_name(agent["env"])


def test_an_exit_code_is_a_variable_only_where_it_is_asked_for() -> None:
    """The agent has the default itself."""
    name = "RESTART_POD_IN_PLACE_EXIT_CODE"
    values = [by_name(pod_spec_of(injected(PLAIN, **more))["initContainers"][0]["env"]).get(name) for more in CODES]
    assert values == [None, {"name": name, "value": "7"}]


CODES: list[dict[str, int]] = [{}, {"exit_code": 7}]


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


@pytest.mark.parametrize("names", ["worker", "worker,logger", " worker , logger "])
def test_the_workers_are_named_by_an_annotation(names: str) -> None:
    """As by the option."""
    annotation = f'  annotations: {{{wire.WORKERS}: "{names}"}}\n'
    made = injected(TWO.replace("  name: plain\n", f"  name: plain\n{annotation}", 1))
    workers = {name.strip() for name in names.split(",")}
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


def test_a_worker_with_an_account_of_its_own_keeps_its_token() -> None:
    """A restricted account is the agent's alone; another one the worker may need as well."""
    for account, automount in (("inplace-agent-b", False), ("trainer", None)):
        made = pod_spec_of(injected(plain(pod=f"serviceAccountName: {account}")))
        assert made.get("automountServiceAccountToken") is automount
        assert token_mount() in made["initContainers"][0]["volumeMounts"]


def test_the_constants_are_the_agents() -> None:
    """The controller does not load the agent's modules."""
    assert agent_pieces.LINK_FILE == LINK_FILE
    assert service_account_dir({}) == SERVICE_ACCOUNT_DIR


@pytest.mark.parametrize(
    ("depth", "own", "policy"),
    [
        ("containers", "", "FallbackToLogsOnError"),
        ("containers", "File", "File"),
        ("process", "", None),
        (None, "", None),
    ],
)
def test_kubelet_tells_how_the_log_of_a_container_ended(depth: str | None, own: str, policy: str | None) -> None:
    """Where the container ends with its worker, and its author set nothing else."""
    text = plain(worker=f"terminationMessagePolicy: {own}") if own else PLAIN
    (worker,) = pod_spec_of(injected(text, depth=depth))["containers"]
    assert worker.get("terminationMessagePolicy") == policy
