"""
Read a Pod's place in a group with spares: the number of its unit, and the host names of all units (MEMBERS).

Where Pods are the units, MEMBERS is their host names, and this Pod's number is its completion index. Where whole Jobs
are, MEMBERS is its Job's index and the host names of their first Pods: `3/train-w-*-0.train`. Loaded only where MEMBERS
is set; the controller writes its annotation (`controller.plan.jobs`). docs/adr/0107
"""

from __future__ import annotations

from inplace.agent.settings.environment import Environment, is_integer, is_object_name
from inplace.common.bare.typed import Final
from inplace.common.protocol.members import SLOTS_MAX

HOSTS_CHARACTERS_MAX: Final = 250  # with four digits for "*", a DNS name has at most 253
NO_HOSTS: Final = "*"
_INDEX: Final = "JOB_COMPLETION_INDEX"


def read_slot(read: Environment) -> tuple[int | None, int | None, str]:
    """Return the number of the unit, this Pod's in its Job where that is the unit, and host names with "*" for a unit.

    Refuses what cannot work beside MEMBERS.
    """
    job, has_job, hosts = read.get("MEMBERS").rpartition("/")
    index = read.get(_INDEX)
    is_name = hosts.count("*") == 1 and is_object_name(hosts.replace("*", "0"), HOSTS_CHARACTERS_MAX)
    if not is_name or (has_job and not is_integer(job, 0, SLOTS_MAX - 1)):
        expected = f"host names with one '*' for a Pod's number, or '{NO_HOSTS}'"
        read.refuse("MEMBERS", f"{expected}, behind 'INDEX/' where whole Jobs play ranks (annotation of the Pod)")
        return None, None, hosts
    if not read.get("RESTART_SCOPE"):
        cure = "valueFrom.fieldRef.fieldPath metadata.annotations['inplace.dev/restart-scope']"
        read.refuse("RESTART_SCOPE", f"the name of this Pod's scope beside MEMBERS ({cure})")
    if read.get("GUARDS_AWAITED") not in ("", "0"):
        read.refuse("GUARDS_AWAITED", "none beside MEMBERS: a worker without a guard learns no rank")
    if not is_integer(index, 0, SLOTS_MAX - 1):
        read.refuse(_INDEX, f"the number of a Pod of an Indexed Job, 0 to {SLOTS_MAX - 1}, beside MEMBERS")
        return None, None, hosts
    return (int(job), int(index), hosts) if has_job else (int(index), None, hosts)


def host_of(hosts: str, unit: int) -> str:
    """Return the host name of a unit's Pod, of a Job's first one; "" where Pods have none."""
    return "" if hosts == NO_HOSTS else hosts.replace("*", str(unit))
