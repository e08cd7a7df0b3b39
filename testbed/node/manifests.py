"""The JobSets of the node tests: examples/train*.yaml with a worker that keeps records.

What is proved here is what users copy, so only what the test needs is changed: size, images, the worker's command, a
folder for the evidence. Pods keep to Pod Security `restricted`, but for that folder, which is on the host.
"""

from pathlib import Path
from typing import Any

from inplace.common.injection.agent_pieces import NEVER_CLEAN
from inplace.common.injection.policies import CHECKS
from inplace.common.kube.resources import KubeObject
from inplace.common.wire import names as wire
from inplace.common.wire import unfit
from inplace.common.wire.mode import Mode
from testbed.kube_client import moved_to
from testbed.node.archives import JAX_IMAGE, UPSTREAM_AGENT_IMAGE, WORKER_IMAGE, torch_packages

EXAMPLES = Path(__file__).parents[2] / "examples"
JOBSET = "train"
WORKER = ["/usr/bin/python3", "-IS", "/worker.pyc"]
MEMORY_LIMIT = "64Mi"
SHELL = Path("/bin/sh")
PACKAGES = "/opt/packages"  # where the image of examples/Containerfile has JAX and what it needs
_AGENTS = ("agent", "progress", "token", "inplace")  # the example's volumes that our agent needs

RESTRICTED = {
    "runAsNonRoot": True,
    "runAsUser": 65532,
    "allowPrivilegeEscalation": False,
    "readOnlyRootFilesystem": True,
    "capabilities": {"drop": ["ALL"]},
    "seccompProfile": {"type": "RuntimeDefault"},
}


def documents(mode: str, namespace: str, *, pods: int, restarts_max: int, evidence: Path | None) -> list[KubeObject]:
    """Return the example's documents for one namespace, the JobSet last; evidence of None stays in the Pod."""
    read = documents_of(
        (EXAMPLES / ("train-supervisor.yaml" if mode == Mode.SUPERVISOR else "train.yaml")).read_text(), namespace
    )
    (jobset,) = (each for each in read if each["kind"] == "JobSet")
    jobset["spec"]["failurePolicy"]["maxRestarts"] = restarts_max
    job = jobset["spec"]["replicatedJobs"][0]["template"]["spec"]
    job["parallelism"] = job["completions"] = pods
    # Tests and benchmarks kill workers faster than these could make progress.
    jobset["metadata"].setdefault("annotations", {})[wire.FAILURES] = "backoff=0"
    settings = {wire.CLEAN_AFTER: "0"} | (
        {wire.RESTART_DEPTH: wire.DEPTH_CONTAINERS} if mode == Mode.CONTAINERS else {}
    )
    job["template"]["metadata"] = {"annotations": settings}  # of the Pods: upstream's controller copies nothing to them
    _adapt(job["template"]["spec"], evidence)
    return read


def documents_of(text: str, namespace: str) -> list[KubeObject]:
    """Return the documents of a manifest, moved to a namespace, the JobSet last."""
    return sorted(moved_to(namespace, text), key=lambda each: bool(each["kind"] == "JobSet"))


def keep_claims_on_host(jobset: KubeObject, folder: Path) -> None:
    """Make each claim of a JobSet a folder of this machine, which all nodes see: no storage is installed."""
    for policy in jobset["spec"].pop("volumeClaimPolicies", ()):
        for template in policy["templates"]:
            (path := folder / template["metadata"]["name"]).mkdir(parents=True)
            path.chmod(0o777)
            volume = {"name": path.name, "hostPath": {"path": str(path), "type": "Directory"}}
            _pod_of(jobset)["volumes"].append(volume)


def watch_over(jobset: KubeObject, stall_after_s: float) -> None:
    """Set the watchdog's limit: on the sidecar, or on the supervisor, which is the worker's container."""
    _agent_of(jobset)["env"].append({"name": "STALL_AFTER_S", "value": f"{stall_after_s:g}"})


def avoid_bad_nodes(jobset: KubeObject, policy: str) -> None:
    """Let replaced Pods avoid bad nodes.

    Several Pods of the group share a node here. The scheduler's default spread would weigh as much as what is to be
    shown, so the Pods have a constraint of their own, in which all nodes are alike.
    """
    jobset["metadata"].setdefault("annotations", {})[wire.NODES] = policy
    alike = {"maxSkew": 1, "topologyKey": "no-node-has-it", "whenUnsatisfiable": "ScheduleAnyway", "labelSelector": {}}
    _pod_of(jobset)["topologySpreadConstraints"] = [alike]


def check_before_announcing(jobset: KubeObject, command: str) -> None:
    """Run a check in the worker's container before each announcement; it knows NODE_NAME.

    The worker's image has no shell, so it gets the machine's, which needs libc alone.
    """
    pod = _pod_of(jobset)
    (worker,) = pod["containers"]
    worker["env"] += [
        {"name": "BEFORE_ANNOUNCE", "value": command},
        {"name": "NODE_NAME", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}},
    ]
    pod["volumes"].append({"name": "shell", "hostPath": {"path": str(SHELL.resolve()), "type": "File"}})
    worker["volumeMounts"].append({"name": "shell", "mountPath": str(SHELL), "readOnly": True})
    for agent in pod.get("initContainers", ()):
        agent["env"].append({"name": "CHECKS_BEFORE_ANNOUNCE", "value": "1"})
    for rule in worker.get("restartPolicyRules", ()):
        if rule["exitCodes"]["operator"] == "NotIn":
            rule["exitCodes"]["values"].append(unfit.CHECK_FAILED_EXIT_CODE)


def fence_after(jobset: KubeObject, length_s: int) -> None:
    """Give the workers leases."""
    jobset["metadata"].setdefault("annotations", {})[wire.FENCE_AFTER] = str(length_s)


def have_members(jobset: KubeObject, members: int) -> None:
    """Let so many Pods train; the others are spares."""
    jobset["metadata"].setdefault("annotations", {})[wire.MEMBERS] = f"max={members}"


def fill_nodes(jobset: KubeObject, cores: int) -> None:
    """Let each Pod ask for more than half of a node's cores: no two fit on one."""
    (worker,) = _pod_of(jobset)["containers"]
    worker["resources"]["requests"]["cpu"] = f"{cores * 550}m"


def run_image(jobset: KubeObject, image: str) -> None:
    """Let the worker run another image."""
    _pod_of(jobset)["containers"][0]["image"] = image


def run_with_torch(pod: dict[str, Any]) -> None:
    """
    Let the worker of a Pod template find PyTorch.

    Raises:
        MissingComponent, BuildFailed: as `torch_packages` does.
    """
    (worker,) = pod["containers"]
    worker["image"] = JAX_IMAGE
    pod["volumes"].append({"name": "packages", "hostPath": {"path": str(torch_packages()), "type": "Directory"}})
    worker["volumeMounts"].append({"name": "packages", "mountPath": PACKAGES, "readOnly": True})


def with_upstreams_agent(jobset: KubeObject) -> None:
    """Turn the guarded manifest into that of upstream's agent, as its KEP and its environment variables say.

    The barrier is a startup probe each second, the worker's command runs at once, and every container has the Pod's
    token. A worker is not told its epoch: upstream has no variable for it, and no rule is judged from its records.
    """
    pod = _pod_of(jobset)
    (ours,), (worker,) = pod["initContainers"], pod["containers"]
    ends = [{"action": "RestartAllContainers", "exitCodes": {"operator": "NotIn", "values": [0]}}]
    known = {"JOBSET_NAME", "POD_NAME"}
    agent = {
        "name": ours["name"],
        "image": UPSTREAM_AGENT_IMAGE,
        "imagePullPolicy": "IfNotPresent",
        "restartPolicy": "Always",
        "restartPolicyRules": ends,
        "startupProbe": {
            "httpGet": {"path": "/barrier-is-down", "port": 8081},
            "periodSeconds": 1,
            "failureThreshold": 600,
        },
        "env": [each for each in ours["env"] if each["name"] in known],
        "resources": ours["resources"],
    }
    pod["initContainers"] = [agent | {name: ours[name] for name in ("securityContext",) if name in ours}]
    pod.pop("automountServiceAccountToken")
    pod["volumes"] = [volume for volume in pod["volumes"] if volume["name"] not in _AGENTS]
    worker["command"] = worker["command"][worker["command"].index("--") + 1 :]
    worker["env"] = [each for each in worker["env"] if each["name"] != "LINK_FILE"] + [{"name": "EPOCH", "value": "0"}]
    worker["volumeMounts"] = [mount for mount in worker["volumeMounts"] if mount["name"] not in _AGENTS]


def _pod_of(jobset: KubeObject) -> dict[str, Any]:
    """Return the template of the group's Pods."""
    pod: dict[str, Any] = jobset["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]
    return pod


def _agent_of(jobset: KubeObject) -> dict[str, Any]:
    """Return the agent's container: the sidecar, or the supervisor, which is the worker's."""
    pod = _pod_of(jobset)
    agent: dict[str, Any] = (pod.get("initContainers") or pod["containers"])[0]
    return agent


def do_without_rules(jobset: KubeObject) -> None:
    """Take away kubelet's rules, as `inject --restart-rule off` does for Kubernetes before 1.36."""
    pod = _pod_of(jobset)
    for container in (*pod["containers"], *pod["initContainers"]):
        del container["restartPolicyRules"]
    for variable in _agent_of(jobset)["env"]:
        if variable["name"] == "CLEAN_AFTER_FAILURES":
            variable.clear()
            variable.update(NEVER_CLEAN)
    _agent_of(jobset)["env"].append({"name": CHECKS, "value": "1"})


def get_clean_containers(jobset: KubeObject) -> None:
    """Let a worker that fails a second time in a row get clean containers, as users have it."""
    del jobset["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["metadata"]["annotations"][wire.CLEAN_AFTER]


def _adapt(pod: dict[str, Any], evidence: Path | None) -> None:
    """Let the Pod run our images and write its records; take away what the worker of the example needed."""
    (worker,) = pod["containers"]
    command = worker["command"]
    worker["command"] = [*command[: command.index("--") + 1], *WORKER]
    worker["image"] = WORKER_IMAGE
    worker["resources"]["limits"] = {"memory": MEMORY_LIMIT}
    worker["env"] = [*worker["env"], *_identity(worker["env"])]
    pod["volumes"] = [volume for volume in pod["volumes"] if volume["name"] != "checkpoints"]
    worker["volumeMounts"] = [mount for mount in worker.get("volumeMounts", ()) if mount["name"] != "checkpoints"]
    on_host: dict[str, Any] = {"hostPath": {"path": str(evidence), "type": "Directory"}}
    pod["volumes"].append({"name": "evidence"} | ({"emptyDir": {}} if evidence is None else on_host))
    worker["volumeMounts"].append({"name": "evidence", "mountPath": "/evidence"})
    worker["env"].append({"name": "EVIDENCE", "value": "/evidence"})
    for container in (worker, *pod.get("initContainers", ())):
        container["securityContext"] = RESTRICTED


def _identity(present: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the variables with which a worker says who it is, less those that the example has."""
    names = {each["name"] for each in present}
    fields = {
        "POD_NAME": "metadata.name",
        "POD_UID": "metadata.uid",
        "JOB_INDEX": "metadata.labels['jobset.sigs.k8s.io/job-index']",
        "BARRIER_ADDRESS": "status.podIP",
    }
    return [
        {"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}}
        for name, path in fields.items()
        if name not in names
    ]
