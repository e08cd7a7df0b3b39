"""Every mutant, in the order of the table."""

from __future__ import annotations

from tests.mutants.bugs_caches import BACKOFF, INFORMER, QUEUE
from tests.mutants.bugs_controller import BUDGET, CONTROLLER, LEADER
from tests.mutants.bugs_kubelet import KUBELET
from tests.mutants.bugs_protocol import AGENT, PROTOCOL
from tests.mutants.bugs_watchdog import WATCHDOG

MUTANTS = (*PROTOCOL, *AGENT, *WATCHDOG, *INFORMER, *QUEUE, *BACKOFF, *LEADER, *CONTROLLER, *BUDGET, *KUBELET)
