"""Settings of one controller: what its flags say, or a simulation."""

from __future__ import annotations

from dataclasses import dataclass

from inplace.common.jobset.node_taints import TaintLimits
from inplace.controller.act.job_settings import DEFAULT, JobSettings


@dataclass(frozen=True, slots=True)
class ControllerConfig:
    """Settings of one controller.

    Args:
        namespace: the one namespace to work in; None is all.
        leader_elect: take part in leader election; without it, this must be the only controller.
        identity: unique name of this process; also the reportingInstance of Events.
        lease_namespace: where the Lease is.
        workers: JobSets decided on at once, and those of one namespace in work at once.
        probe_address: (host, port) for /healthz and /readyz; None serves none; port 0 picks one.
        metrics_address: the same for /metrics.
        is_beside: another JobSet controller runs here; take only what spec.managedBy gives to us by name.
        job_settings: what is the same in all Jobs that it makes.
        taint_limits: of the nodes that it taints for queues; None taints none.
        on_cluster: it works on a cluster and not in memory. Then it says what the installation lacks, takes watch
            events in together where they come fast, removes taints that it finds without limits for them, and notes
            how long the event loop stands still.
    """

    namespace: str | None = None
    leader_elect: bool = True
    identity: str = "inplace-controller"
    lease_namespace: str = "inplace-system"
    lease_name: str = "inplace-controller"
    workers: int = 4
    probe_address: tuple[str, int] | None = None
    metrics_address: tuple[str, int] | None = None
    is_beside: bool = False
    job_settings: JobSettings = DEFAULT
    taint_limits: TaintLimits | None = None
    on_cluster: bool = False

    @property
    def watches_namespaces(self) -> bool:
        """Say whether labels of Namespaces decide; not for a controller of one namespace, which may not watch them."""
        return self.job_settings.agent is not None and self.job_settings.opt_in and self.namespace is None
