"""
Model one group restart on a cluster, event by event: from a worker's death to the last worker's start.

The agents' decisions about time are the real code (`Herd`, `RetryBudget`). Everything else is a delay from a profile,
or work that waits in a queue (`model_server`). `tests/benchmarks/test_calibration.py` compares it with the embedded
cluster, which runs the real agent and controller. The only fault is the one death.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Final

from benchmarks.model_bound import Least, emptied_s
from benchmarks.model_group import NO_SLOTS, SIDECARS, Mode, ModelledRestart, Pod, Slots
from benchmarks.model_server import Agenda, Cores, Server, servers_of
from inplace.agent.announce.herd import Herd, is_late
from inplace.agent.announce.report_delay import report_delay_s
from inplace.agent.announce.retry_budget import RetryBudget
from inplace.common.kube.errors import Throttled
from inplace.common.kube.watch import Busy
from inplace.simulator.profile import Profile

PROBE_PERIOD_S: Final = 1.0  # of upstream's manifest; our agent holds the probe's answer until the lift
CLIENT_GO_RETRIES_MAX: Final = 10  # with exactly Retry-After between them: client-go rest/with_retry.go
CLIENT_GO_BACKOFF_S_MAX: Final = 30.0
UPSTREAM_REQUESTS: Final = 4


@dataclass(slots=True)
class Restarting:
    """The run of one model.

    Args:
        pods: of the group; the first one's worker dies.
        apf: deploy/apf is applied, and agents use no slots.
        mode: ours, or upstream's sidecar with its controller. In mode guarded the dead worker's agent tells, guards end
            their workers before kubelet looks, and workers' containers are made while agents announce.
        looks: sidecars ask at once, and look at their first answers before they ask on; False: they wait for their
            slots.
    """

    profile: Profile
    pods: int
    mode: Mode = "sidecar"
    apf: bool = False
    slots: Slots = field(default_factory=Slots)
    seed: int = 1
    looks: bool = True
    agenda: Agenda = field(default_factory=Agenda)
    group: list[Pod] = field(default_factory=list)
    servers: list[Server] = field(default_factory=list)
    controller: Cores = field(default_factory=lambda: Cores(1))
    node: Cores | None = None
    phases: dict[str, float] = field(default_factory=dict)
    _rng: Random = field(default_factory=Random)
    _announced: int = 0
    _watching: set[int] = field(default_factory=set)
    _synced_s: list[float] = field(default_factory=list)
    _last_s: float = 0.0

    def run(self) -> ModelledRestart:
        """Restart the group once."""
        self._rng = Random(f"{self.seed}/{self.profile.name}/{self.pods}/{self.mode}")
        self.servers = servers_of(self.profile, self.agenda, apf=self.apf, rng=self._rng)
        if self.mode == "upstream":
            self.controller = Cores(int(self.profile["upstream.controller_cores"]))
        if cores := int(self.profile["node.cores"]):
            self.node = Cores(cores)
        self.group = [self._pod(index) for index in range(self.pods)]
        self._watching = set(range(1, self.pods))
        self._die()
        self.agenda.run()
        rejected = sum(server.rejected for server in self.servers)
        return ModelledRestart(self._last_s, self.kubelet_s(), self.bound_s(), rejected, self.phases)

    # What the draws say without any contention.

    def kubelet_s(self) -> float:
        """Return the nodes' share of the time: the slowest Pod down, then the slowest up."""
        if self.mode == "supervisor":
            return 0.0
        return max(*self._ready_s(), *self._made_s()) + max(pod.up_s for pod in self.group)

    def bound_s(self) -> float:
        """Return a lower bound for the same draws: no order of the same work on the same cores is faster.

        A line that gets pieces of work at t1 <= ... <= tM cannot be empty before the greatest of
        tk + (M - k + 1) x (CPU of a piece) / cores. The servers' line: each Pod's requests up to its announcement, from
        the moment its node lets it ask. The controller's: one announcement of each Pod, at the profile's cost of an
        event, and nothing else; that kubelets' status writes stand before them in the same watch is a cost of ours,
        not of the protocol's. After the later of the two come the fan-out of one write over all cores and the slowest
        worker's start, and on the way the network's shortest trips.
        """
        cores = self.profile["apiserver.servers"] * self.profile["apiserver.cores"]
        start_s = sum(self._request(step)[0] for step in range(self._requests) if self._is_needed(step))
        start_s += self._handshake_s
        ready_s = self._ready_s()
        counted_s = max(
            emptied_s(ready_s, start_s / cores),
            emptied_s(ready_s, self._event_cpu_s() / self._controller_cores),
        )
        fan_out_s = self.pods * self.profile["apiserver.event_cpu_s"] / cores
        trips = 5 + 2 * (self.mode in SIDECARS)  # the order to stop, (list, its answer,) patch, event; S, event
        network_s = trips * self.profile.delays["network.one_way"].draw(Least())
        lifted_s = counted_s + fan_out_s + network_s
        return max(lifted_s, *self._made_s()) + max(pod.up_s for pod in self.group)

    def _ready_s(self) -> list[float]:
        """Return each Pod's earliest first request: the dying Pod by its own death, the others by its announcement."""
        victim = self.group[0].down_s + self.group[0].agent_s
        told_s = self._seen_s if self.mode in SIDECARS else victim if self.mode == "upstream" else 0.0
        return [victim, *(told_s + pod.down_s + pod.agent_s for pod in self.group[1:])]

    def _made_s(self) -> list[float]:
        """Return when each worker's container can be there at the earliest; 0 where it waits for the lift."""
        return [self._seen_s + pod.down_s + pod.made_s if pod.made_s else 0.0 for pod in self.group[1:]] or [0.0]

    @property
    def _seen_s(self) -> float:
        """Return when kubelet sees the death, or the dead worker's agent tells of it."""
        return self.phases.get("seen", 0.0)

    # The draws.

    def _pod(self, index: int) -> Pod:
        draw, rng = self._draw, self._rng
        slots = NO_SLOTS if self.apf or self.mode == "upstream" else self.slots
        herd = Herd(self.pods, index, rng.random(), slots.rate_per_s, slots.window_s_max)
        is_guarded, made_s = self.mode == "guarded", 0.0
        if self.mode == "supervisor":
            down_s, agent_s, up_s = draw("supervisor.stop"), 0.0, draw("supervisor.start")
        else:
            relist_s, exit_s = rng.uniform(0.0, self.profile["kubelet.relist_s"]), draw("kubelet.process_exit")
            down_s = (max(relist_s, exit_s) if is_guarded else relist_s + exit_s) + draw("kubelet.container_start")
            agent_s, up_s = draw("agent.start"), draw("supervisor.start" if is_guarded else "kubelet.probe")
            made_s = draw("kubelet.container_start")
            if not is_guarded:
                up_s, made_s = up_s + made_s, 0.0
            if self.mode == "upstream":
                up_s += rng.uniform(0.0, PROBE_PERIOD_S)
            if index == 0:
                self.phases["seen"] = report_delay_s(self.pods, rng.random()) if is_guarded else relist_s
        budget = RetryBudget(rng, herd.spread_s)
        return Pod(down_s, agent_s, up_s, herd, budget, self._requests, made_s=made_s)

    def _draw(self, name: str) -> float:
        return self.profile.delays[name].draw(self._rng)

    @property
    def _requests(self) -> int:
        return {"sidecar": 3, "guarded": 3, "supervisor": 1, "upstream": UPSTREAM_REQUESTS}[self.mode]

    def _request(self, step: int) -> tuple[float, bool]:
        """Return the CPU of a start's request, and whether it writes."""
        profile = self.profile
        if self.mode == "upstream":  # discovery twice, watch, apply
            return profile["upstream.start_cpu_s"] / UPSTREAM_REQUESTS, step == UPSTREAM_REQUESTS - 1
        handshake_s, patch_s = profile["apiserver.handshake_cpu_s"], profile["apiserver.patch_cpu_s"]
        if self.mode == "supervisor":  # beside its watch: a second connection
            return handshake_s + patch_s, True
        return (profile["apiserver.list_cpu_s"], patch_s, profile["apiserver.watch_cpu_s"])[step], step == 1

    @property
    def _handshake_s(self) -> float:
        """Return the CPU of a sidecar's handshake, which comes before its first request and needs no seat."""
        return self.profile["apiserver.handshake_cpu_s"] if self.mode in SIDECARS else 0.0

    def _is_needed(self, step: int) -> bool:
        """Return whether the announcement waits for this request: a sidecar's watch comes after it."""
        return self.mode not in SIDECARS or step < 2

    @property
    def _controller_cores(self) -> float:
        return self.profile["upstream.controller_cores"] if self.mode == "upstream" else 1

    def _event_cpu_s(self) -> float:
        if self.mode == "upstream":
            return self.profile["upstream.event_cpu_s"] + self.pods * self.profile["upstream.event_cpu_s_per_pod"]
        return self.profile["controller.event_cpu_s"]

    # What happens, in order.

    def _die(self) -> None:
        """Let the first Pod's worker die."""
        victim = self.group[0]
        if self.mode == "sidecar":  # its kubelet's status write tells the controller, before its agent is back
            self._status_write(self._seen_s, True)
        elif self.mode == "upstream":
            self._status_write(self._seen_s, False)
        ends_s = 0.0
        if self.mode == "guarded":  # its agent tells on a connection of its own, and ends when it is answered
            told_s = self._seen_s + self._draw("network.one_way")
            told_s = self.servers[0].cores.work(told_s, self._handshake_s) + 2 * self._draw("network.one_way")
            ends_s = self._status_write(told_s, True)
        self.agenda.at(ends_s + victim.down_s, self._containers_restart, 0)

    def _containers_restart(self, now_s: float, index: int) -> None:
        """Let the node do its work up to the agent's start; a supervisor restarts no container."""
        done_s = now_s if self.mode == "supervisor" else self._on_node(now_s, "restart")
        if self.mode == "guarded":
            pod = self.group[index]
            pod.has_container_s = self._on_node(done_s, "start") + pod.made_s
        self.agenda.at(done_s, self._agent_starts, index)

    def _on_node(self, now_s: float, kind: str) -> float:
        """Return when a Pod's work that comes now is done: at once, where each Pod has a node of its own."""
        share = self.profile["upstream.node_share"] if self.mode == "upstream" else 1.0
        return self.node.work(now_s, share * self.profile[f"node.{kind}_cpu_s"]) if self.node else now_s

    def _agent_starts(self, now_s: float, index: int) -> None:
        pod = self.group[index]
        pod.begun_s = now_s
        slot_s = 0.0 if self.looks else pod.herd.start_slot_s
        if self.mode == "supervisor":  # the slot counts from the view, and the tree's end passes inside of it
            slot_s = 0.0 if index == 0 else max(0.0, pod.herd.restart_slot_s - pod.down_s)
        begin = self._shake_hands if self.mode in SIDECARS else self._ask
        self.agenda.at(now_s + max(pod.agent_s, slot_s) + self._draw("network.one_way"), begin, index)

    def _shake_hands(self, now_s: float, index: int) -> None:
        done_s = self.servers[index % len(self.servers)].cores.work(now_s, self._handshake_s)
        self.agenda.at(self._put_off_s(done_s, done_s - now_s, index), self._ask, index)

    def _put_off_s(self, now_s: float, waited_s: float, index: int) -> float:
        """Return when a sidecar goes on that waited so long beside the network for an answer."""
        pod = self.group[index]
        if not self.looks or not is_late(waited_s, 0.0):
            return now_s
        return max(now_s, pod.begun_s + pod.herd.start_slot_s)

    def _ask(self, now_s: float, index: int) -> None:
        pod = self.group[index]
        cpu_s, writes = self._request(self._requests - pod.left)
        commit_s = self._draw("apiserver.commit") if writes else 0.0

        def done(done_s: float) -> None:
            pod.left -= 1
            pod.budget.note_success(done_s)
            if writes:
                self._tell_controller(done_s, self._take_announcement)
            if pod.left:
                pause_s = 2 * self._draw("network.one_way") + self._draw("agent.think")
                is_list = self.mode in SIDECARS and not writes and pod.left == self._requests - 1
                next_s = self._put_off_s(done_s, done_s - now_s, index) if is_list else done_s
                self.agenda.at(next_s + pause_s, self._ask, index)
            if pod.left == 0 or (self.mode == "upstream" and pod.left == 1):
                self._watch(done_s, index)

        def refused(at_s: float, after_s: float) -> None:
            wait_s = self._wait_s(pod, at_s, after_s) + 2 * self._draw("network.one_way")
            self.agenda.at(at_s + wait_s, self._ask, index)

        self.servers[index % len(self.servers)].ask(now_s, cpu_s, commit_s, done, refused)

    def _wait_s(self, pod: Pod, now_s: float, after_s: float) -> float:
        pod.tries += 1
        if self.mode != "upstream":
            return pod.budget.wait_s(Busy(after_s, Throttled(429, "TooManyRequests", "modelled")), now_s)
        if pod.tries <= CLIENT_GO_RETRIES_MAX:
            return after_s
        doublings = pod.tries - CLIENT_GO_RETRIES_MAX - 1
        wait_s = min(CLIENT_GO_BACKOFF_S_MAX, self.profile["upstream.backoff_s"] * 2.0**doublings)
        return wait_s * (1.0 + self._rng.random())

    def _watch(self, now_s: float, index: int) -> None:
        """Open a watch: it begins with the JobSet as it is."""
        self._watching.add(index)
        if self._synced_s and now_s >= self._synced_s[0]:
            self._lift(now_s, [index])

    def _status_write(self, now_s: float, tells: bool) -> float:
        """Let a kubelet write what it saw, or an agent; the controller deprecates when it hears of the death.

        Returns:
            When it is stored.
        """
        stored_s = self.servers[0].write(now_s, self.profile["apiserver.patch_cpu_s"], self._draw("apiserver.commit"))
        self._tell_controller(stored_s, self._take_death if tells else lambda _: None)
        return stored_s

    def _tell_controller(self, stored_s: float, take: Callable[[float], None]) -> None:
        seen_s = stored_s + self._draw("apiserver.watch_lag") + self._draw("network.one_way")

        def arrive(now_s: float) -> None:
            self.agenda.at(self.controller.work(now_s, self._event_cpu_s()), take)

        self.agenda.at(seen_s, arrive)

    def _take_death(self, now_s: float) -> None:
        self._order(now_s, "deprecated", self._restart)

    def _take_announcement(self, now_s: float) -> None:
        self._announced += 1
        self.phases.setdefault("first_announced", now_s)
        if self._announced == 1 and self.mode not in SIDECARS:
            self._order(now_s, "deprecated", self._restart)
        if self._announced == self.pods:
            self.phases["last_announced"] = now_s
            held_s = self._rng.uniform(0.0, self.profile["controller.batch_s"])
            self._order(now_s + held_s, "synced", self._lift)

    def _order(self, now_s: float, name: str, obey: Callable[[float, list[int]], None]) -> None:
        """Write the JobSet's status, and let every watcher hear of it."""

        def write(at_s: float) -> None:
            stored_s = self.servers[0].write(
                at_s, self.profile["apiserver.patch_cpu_s"], self._draw("apiserver.commit")
            )
            self.phases[name] = stored_s
            if name == "synced":
                self._synced_s.append(stored_s)
            for number, server in enumerate(self.servers):
                self.agenda.at(stored_s + self._draw("apiserver.watch_lag"), self._fan_out, number, server, obey)

        self.agenda.at(now_s + self._draw("network.one_way"), write)

    def _fan_out(self, now_s: float, number: int, server: Server, obey: Callable[[float, list[int]], None]) -> None:
        watchers = [index for index in sorted(self._watching) if index % len(self.servers) == number]
        server.tell(now_s, watchers, self.profile["apiserver.event_cpu_s"], obey)

    def _restart(self, now_s: float, some: list[int]) -> None:
        """Let Pods restart: their watches end, their kubelets take note."""
        for index in some:
            if index == 0:
                continue
            seen_s = now_s + self._draw("network.one_way")
            if self.mode != "supervisor":
                self._watching.discard(index)
                for _ in range(int(self.profile["kubelet.status_writes"])):
                    self.agenda.at(seen_s + self.group[index].down_s / 2, self._status_write, False)
            self.agenda.at(seen_s + self.group[index].down_s, self._containers_restart, index)

    def _lift(self, now_s: float, some: list[int]) -> None:
        """Let workers run."""
        for index in some:
            lifted_s = now_s + self._draw("network.one_way")
            self.phases["last_lifted"] = max(self.phases.get("last_lifted", 0.0), lifted_s)
            self.agenda.at(lifted_s, self._worker_starts, index)

    def _worker_starts(self, now_s: float, index: int) -> None:
        """Let a worker run, after its node's work."""
        pod = self.group[index]
        if self.mode == "guarded":
            done_s = max(now_s, pod.has_container_s)
        else:
            done_s = self._on_node(now_s, "supervised" if self.mode == "supervisor" else "start")
        self._last_s = max(self._last_s, done_s + pod.up_s)
