"""Every mutant, in the order of the table."""

from __future__ import annotations

from tests.mutants.bugs_caches import BACKOFF, INFORMER, QUEUE
from tests.mutants.bugs_controller import BUDGET, CONTROLLER, LEADER, MARKED
from tests.mutants.bugs_kubelet import KUBELET
from tests.mutants.bugs_protocol import AGENT, PROTOCOL
from tests.mutants.bugs_watchdog import WATCHDOG
from tests.mutants.mutant import Area, Mutant

MUTANTS = (*PROTOCOL, *AGENT, *WATCHDOG, *INFORMER, *QUEUE, *BACKOFF, *LEADER, *CONTROLLER, *MARKED, *BUDGET, *KUBELET)
AS_IT_IS = Mutant("no mistake: the code as it is", Area.PROTOCOL, ())
