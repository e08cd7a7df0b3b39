from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from inplace.simulator.cluster import pod_lifecycle as life
from inplace.simulator.cluster.pod_lifecycle import Action, Exited, Kill, PodLifecycle, Start, Started, State, Stopped
from inplace.simulator.cluster.pod_spec import parse_pod
from inplace.simulator.cluster.pod_status import StatusReporter, phase

RESTART_ALL = [
    {"action": "RestartAllContainers", "exitCodes": {"operator": "NotIn", "values": [0]}},
    {"action": "RestartAllContainers", "exitCodes": {"operator": "In", "values": [0]}},
]


def training_pod(**spec: Any) -> dict[str, Any]:
    """Return a Pod with the agent as a sidecar whose startup probe is the barrier, and a worker."""
    probe = {"httpGet": {"path": "/barrier-is-lifted", "port": 8080}, "periodSeconds": 1}
    agent = {"name": "agent", "restartPolicy": "Always", "restartPolicyRules": RESTART_ALL, "startupProbe": probe}
    worker = {"name": "worker", "restartPolicy": "Never", "restartPolicyRules": RESTART_ALL[:1]}
    return {"spec": {"restartPolicy": "Never", "initContainers": [agent], "containers": [worker]} | spec}


class Driver:
    """Feeds a lifecycle, starts every container at once, and returns the requested actions."""

    def __init__(self, pod: dict[str, Any]) -> None:
        self.pod = PodLifecycle(parse_pod(pod))
        self.now_s = 0.0
        self.begun = self.step(life.Begin())

    def step(self, event: life.Event) -> list[str]:
        """Feed one event, then the events that a runtime which starts at once would send back; return the actions."""
        log = []
        for action in self.pod.step(event, self.now_s):
            log.append(_show(action))
            if isinstance(action, Start):
                log += self.step(Started(action.name, action.instance))
        return log

    def exit(self, name: str, code: int) -> list[str]:
        """Let the current instance of a container end."""
        return self.step(Exited(name, self.pod.containers[name].instance, code))

    def lift(self, name: str = "agent") -> list[str]:
        """Let the startup probe succeed."""
        return self.step(life.StartupPassed(name, self.pod.containers[name].instance))

    def status(self) -> dict[str, Any]:
        """Return the status that the kubelet would report."""
        return StatusReporter("uid", "127.1.0.1", "127.0.0.1", 0.0).report(self.pod, self.now_s)


def _show(action: Action) -> str:
    match action:
        case Start(name):
            return f"start {name}"
        case Kill(name, _, grace_s):
            return f"kill {name} {grace_s:g}"
        case life.WakeAt(at_s):
            return f"wake {at_s:g}"
        case Stopped():
            return "stopped"


def test_the_worker_starts_after_the_barrier() -> None:
    """A sidecar's startup probe holds back the regular containers, and the Pod is Pending meanwhile."""
    driver = Driver(training_pod())
    assert driver.begun == ["start agent"]
    assert phase(driver.pod) == "Pending"
    assert driver.lift() == ["start worker"]
    assert phase(driver.pod) == "Running"


def test_a_worker_that_dies_restarts_all_containers() -> None:
    """Targets are killed before sources, all are removed, then the Pod starts from the beginning."""
    driver = Driver(training_pod())
    driver.lift()
    assert driver.exit("worker", 1) == ["kill agent 2"]
    condition = {c["type"]: c for c in driver.status()["conditions"]}["AllContainersRestarting"]
    assert (condition["status"], condition["reason"]) == ("True", "RestartAllContainersStarted")
    assert driver.exit("agent", 143) == ["start agent"]
    status = driver.status()
    worker = status["containerStatuses"][0]
    assert worker["state"] == {"waiting": {"reason": "RestartingAllContainers"}}
    last = worker["lastState"]["terminated"]
    assert (last["exitCode"], last["startedAt"], last["finishedAt"]) == (137, None, None)
    assert "containerID" not in last, "its log is gone with it"
    assert (worker["restartCount"], status["initContainerStatuses"][0]["restartCount"]) == (1, 1)
    assert status["phase"] == "Pending"


def test_the_agents_exit_restarts_all_containers_without_backoff() -> None:
    """Ten agent exits in a row start the agent again at once, each time behind its barrier."""
    driver = Driver(training_pod())
    for _ in range(10):
        driver.lift()
        assert driver.exit("agent", 88) == ["kill worker 2"]
        assert driver.exit("worker", 143) == ["start agent"]


def test_an_agent_that_exits_behind_the_barrier_leaves_the_worker_untouched() -> None:
    """A container that never started is not counted as restarted."""
    driver = Driver(training_pod())
    driver.exit("agent", 88)
    status = driver.status()
    assert status["initContainerStatuses"][0]["restartCount"] == 1
    assert status["containerStatuses"][0]["restartCount"] == 0


def test_a_worker_that_succeeds_ends_the_pod() -> None:
    """Exit 0 matches no rule, so the sidecar is stopped, its exit restarts nothing, and the Pod succeeded."""
    driver = Driver(training_pod())
    driver.lift()
    assert driver.exit("worker", 0) == ["kill agent 30"]
    assert driver.exit("agent", 143) == ["stopped"]
    assert phase(driver.pod) == "Succeeded"


def test_deletion_stops_regular_containers_before_sidecars() -> None:
    """The sidecar outlives the worker, and the Pod counts as failed."""
    driver = Driver(training_pod(terminationGracePeriodSeconds=5))
    driver.lift()
    assert driver.step(life.Deleted(5.0)) == ["kill worker 5"]
    assert driver.exit("worker", 143) == ["kill agent 5"]
    assert driver.exit("agent", 143) == ["stopped"]
    assert phase(driver.pod) == "Failed"


def test_an_active_deadline_stops_all_and_fails_the_pod() -> None:
    """The Pod is Failed with kubelet's reason once no container is left, also if its worker ends with 0."""
    driver = Driver(training_pod(terminationGracePeriodSeconds=7))
    driver.lift()
    assert driver.step(life.DeadlineExceeded()) == ["kill worker 7"]
    assert phase(driver.pod) == "Running"
    driver.exit("worker", 0)
    driver.exit("agent", 143)
    report = StatusReporter("uid", "10.0.0.1", "10.0.0.2", 0.0).report(driver.pod, 9.0)
    assert (report["phase"], report["reason"]) == ("Failed", "DeadlineExceeded")


def test_plain_restarts_back_off() -> None:
    """The first restart is free; then 10 s, doubling up to 300 s."""
    driver = Driver({"spec": {"restartPolicy": "Always", "containers": [{"name": "app"}]}})
    waits = []
    for _ in range(8):
        [line] = driver.exit("app", 1)
        if line.startswith("wake"):
            waits.append(float(line.split()[1]) - driver.now_s)
            assert driver.status()["containerStatuses"][0]["state"] == {"waiting": {"reason": "CrashLoopBackOff"}}
            driver.now_s = float(line.split()[1])
            driver.step(life.Tick())
    assert waits == [10, 20, 40, 80, 160, 300, 300]


def test_the_first_matching_rule_wins() -> None:
    """Restart before RestartAllContainers in the list restarts only the container."""
    rules = [{"action": "Restart", "exitCodes": {"operator": "In", "values": [3]}}, *RESTART_ALL]
    worker = {"name": "worker", "restartPolicy": "Never", "restartPolicyRules": rules}
    driver = Driver(training_pod(containers=[worker]))
    driver.lift()
    assert driver.exit("worker", 3) == ["start worker"]
    assert driver.exit("worker", 4) == ["kill agent 2"]


def test_plain_init_containers_run_one_after_the_other() -> None:
    """Each waits for the one before to succeed; a failure under restartPolicy Never fails the Pod."""
    pod = {
        "spec": {
            "restartPolicy": "Never",
            "initContainers": [{"name": "a"}, {"name": "b"}],
            "containers": [{"name": "c"}],
        }
    }
    driver = Driver(pod)
    assert driver.begun == ["start a"]
    assert driver.exit("a", 0) == ["start b"]
    assert driver.exit("b", 1) == ["stopped"]
    assert phase(driver.pod) == "Failed"


def test_a_failed_startup_probe_kills_and_restarts() -> None:
    """The kubelet kills the container, whose exit code then meets the rules."""
    driver = Driver(training_pod())
    assert driver.step(life.ProbeFailed("agent", driver.pod.containers["agent"].instance)) == ["kill agent 30"]
    assert driver.exit("agent", 137) == ["start agent"]


EVENTS = st.lists(
    st.tuples(
        st.sampled_from(["exit agent", "exit worker", "lift", "unhealthy", "tick"]), st.sampled_from([0, 1, 88, 137])
    ),
    max_size=40,
)


@given(events=EVENTS, delete_at=st.integers(0, 40))
def test_the_worker_never_runs_behind_a_barrier_that_is_up(events: list[tuple[str, int]], delete_at: int) -> None:
    """With exits in any order a worker starts only behind a lifted barrier, and a deleted Pod stops for good."""
    driver = Driver(training_pod())
    for position, (name, code) in enumerate(events):
        driver.now_s += 1
        if position == delete_at:
            driver.step(life.Deleted(1.0))
        agent, worker = driver.pod.containers["agent"], driver.pod.containers["worker"]
        before = worker.instance
        match name:
            case "exit agent":
                driver.exit("agent", code)
            case "exit worker":
                driver.exit("worker", code)
            case "lift":
                driver.lift()
            case "unhealthy":
                driver.step(life.ProbeFailed("agent", agent.instance))
            case _:
                driver.step(life.Tick())
        assert worker.instance == before or agent.started
        assert not (driver.pod.stopped and (agent.alive or worker.alive))
        assert driver.pod.stopped == (phase(driver.pod) in ("Succeeded", "Failed"))
        assert worker.state is not State.STARTING
