"""
Read a Pod's place in a group with spares: its number among the slots, and the host names of all Pods (MEMBERS).

Loaded only where MEMBERS is set; the controller writes its annotation (`common.jobset.members`). docs/adr/0107
"""

from __future__ import annotations

from inplace.agent.settings.environment import Environment, is_integer, is_object_name
from inplace.common.bare.typed import Final
from inplace.common.protocol.members import SLOTS_MAX

HOSTS_CHARACTERS_MAX: Final = 250  # with four digits for "*", a DNS name has at most 253
NO_HOSTS: Final = "*"
_INDEX: Final = "JOB_COMPLETION_INDEX"


def read_slot(read: Environment) -> tuple[int | None, str]:
    """Return (slot, host names with "*" for a Pod's number), and refuse what cannot work beside MEMBERS."""
    hosts, index = read.get("MEMBERS"), read.get(_INDEX)
    is_name = hosts.count("*") == 1 and is_object_name(hosts.replace("*", "0"), HOSTS_CHARACTERS_MAX)
    if not is_name:
        read.refuse("MEMBERS", f"host names with one '*' for a Pod's number, or '{NO_HOSTS}' (annotation of the Pod)")
    if not read.get("RESTART_SCOPE"):
        cure = "valueFrom.fieldRef.fieldPath metadata.annotations['inplace.dev/restart-scope']"
        read.refuse("RESTART_SCOPE", f"the name of this Pod's scope beside MEMBERS ({cure})")
    if read.get("GUARDS_AWAITED") not in ("", "0"):
        read.refuse("GUARDS_AWAITED", "none beside MEMBERS: a worker without a guard learns no rank")
    if not is_integer(index, 0, SLOTS_MAX - 1):
        read.refuse(_INDEX, f"the number of a Pod of an Indexed Job, 0 to {SLOTS_MAX - 1}, beside MEMBERS")
        return None, hosts
    return int(index), hosts


def host_of(hosts: str, slot: int) -> str:
    """Return the host name of a slot's Pod; "" where Pods have none."""
    return "" if hosts == NO_HOSTS else hosts.replace("*", str(slot))
