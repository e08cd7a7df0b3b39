"""
What a member's worker learns of its rank: variables of its environment, and torchrun's options.

The manifest gives each Pod the number of its slot. In a group with spares the rank is known only at the lift, so the
guard replaces what the manifest says. A variable of the manifest is replaced only if it is set. The members are Pods;
where whole Jobs play ranks, they are the Pods of those Jobs.

| variable                                          | value                                        |
|---------------------------------------------------|----------------------------------------------|
| INPLACE_RANK, INPLACE_SIZE                        | rank and number of the members; always set   |
| INPLACE_COORDINATOR                               | host of rank 0; only where Pods have names   |
| JOB_COMPLETION_INDEX                              | rank; always set; not where Jobs play ranks  |
| NODE_RANK, GROUP_RANK, PET_NODE_RANK              | rank                                         |
| NNODES, NUM_NODES, GROUP_WORLD_SIZE, PET_NNODES   | number of the members                        |
| PODS_PER_JOB                                      | the same; not where Jobs play ranks          |
| RANK and WORLD_SIZE, JAX_PROCESS_ID and           | k x rank, k x number of the members          |
| JAX_NUM_PROCESSES, PROCESS_ID and NUM_PROCESSES,  |                                              |
| OMPI_COMM_WORLD_RANK and ..._SIZE,                |                                              |
| PMI_RANK and PMI_SIZE,                            |                                              |
| DMLC_TASK_ID and DMLC_NUM_WORKER                  |                                              |
| MASTER_ADDR, PET_MASTER_ADDR, COORDINATOR,        | host of rank 0, with the port that was there |
| PET_RDZV_ENDPOINT, COORDINATOR_ADDRESS,           |                                              |
| JAX_COORDINATOR_ADDRESS, DMLC_TRACKER_URI         |                                              |
| torchrun's --nnodes, --node-rank, --master-addr   | the same, in the command                     |
| and --rdzv-endpoint                               |                                              |

Where Jobs play ranks:

| INPLACE_JOB_RANK, INPLACE_JOBS                    | rank of the Job, and number of Jobs that are |
|                                                   | members; always set                          |
| JOB_INDEX, JOB_GLOBAL_INDEX, MEGASCALE_SLICE_ID   | rank of the Job                              |
| MEGASCALE_NUM_SLICES                              | number of the Jobs                           |
| MEGASCALE_COORDINATOR_ADDRESS                     | host of rank 0, with the port that was there |

k is how many ranks a Pod has: the manifest's size (WORLD_SIZE) divided by its number of Pods, which is the first
number among NNODES, NUM_NODES, PET_NNODES, PODS_PER_JOB (not where Jobs play ranks) and GROUP_SIZE. Without one, or if
it does not divide the size, k is 1. A number is replaced by a number: a range (`--nnodes=1:4`) and any other text stay.

Pure. Loaded by guards of groups with spares only.

Source: torch.distributed.run (PET_ is torchrun's prefix); jax.distributed.initialize; training-operator's JAXJob;
https://cloud.google.com/kubernetes-engine/docs/how-to/tpu-multislice (MEGASCALE_).
"""

from __future__ import annotations

from inplace.common.bare.typed import Final, Mapping, Sequence
from inplace.common.protocol.link import PlayedRank

_RANKS: Final = ("NODE_RANK", "GROUP_RANK", "PET_NODE_RANK")
_SIZES: Final = ("NNODES", "NUM_NODES", "GROUP_WORLD_SIZE", "PET_NNODES")
_PER_JOB: Final = "PODS_PER_JOB"
_JOB_RANKS: Final = ("JOB_INDEX", "JOB_GLOBAL_INDEX", "MEGASCALE_SLICE_ID")
_JOBS: Final = "MEGASCALE_NUM_SLICES"
_OF_PROCESSES: Final = (
    ("RANK", "WORLD_SIZE"),
    ("JAX_PROCESS_ID", "JAX_NUM_PROCESSES"),
    ("PROCESS_ID", "NUM_PROCESSES"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("PMI_RANK", "PMI_SIZE"),
    ("DMLC_TASK_ID", "DMLC_NUM_WORKER"),  # XGBoost's tracker, as Trainer sets it
)
_HOSTS: Final = (
    "MASTER_ADDR",
    "PET_MASTER_ADDR",
    "PET_RDZV_ENDPOINT",
    "COORDINATOR",
    "COORDINATOR_ADDRESS",
    "DMLC_TRACKER_URI",
    "JAX_COORDINATOR_ADDRESS",
)
_HOST_OF_JOBS: Final = "MEGASCALE_COORDINATOR_ADDRESS"
_PODS: Final = ("NNODES", "NUM_NODES", "PET_NNODES", _PER_JOB, "GROUP_SIZE")
_TORCHRUN: Final = ("torchrun", "torch.distributed.run", "torch.distributed.launch")
_DIGITS_MAX: Final = 9


def rank_variables(member: PlayedRank, env: Mapping[str, str]) -> dict[str, str]:
    """Return what the environment of a member's worker has instead of, or beside, the guard's own."""
    rank, size = str(member.rank), str(member.size)
    job, jobs = str(member.job), str(member.jobs)
    own, numbers = {"INPLACE_RANK": rank, "INPLACE_SIZE": size}, dict.fromkeys(_RANKS, rank)
    numbers |= dict.fromkeys(_SIZES, size)
    if member.jobs:
        own |= {"INPLACE_JOB_RANK": job, "INPLACE_JOBS": jobs}
        numbers |= dict.fromkeys(_JOB_RANKS, job) | {_JOBS: jobs}
    else:
        own["JOB_COMPLETION_INDEX"] = rank
        numbers[_PER_JOB] = size
    pods = [name for name in _PODS if name != _PER_JOB or not member.jobs]
    for of_rank, of_size in _OF_PROCESSES:
        each = _ranks_per_pod(env, of_size, pods)
        numbers |= {of_rank: str(each * member.rank), of_size: str(each * member.size)}
    own |= {name: value for name, value in numbers.items() if _number(env, name) is not None}
    if member.host:
        own["INPLACE_COORDINATOR"] = member.host
        hosts = (*_HOSTS, _HOST_OF_JOBS) if member.jobs else _HOSTS
        own |= {name: _at_host(env[name], member.host) for name in hosts if env.get(name)}
    return own


def rank_command(member: PlayedRank, command: Sequence[str]) -> tuple[str, ...]:
    """Return a member's command: torchrun's options say its rank, also those that kubelet filled in."""
    words = list(command)
    begin = next((at for at, word in enumerate(words) if any(name in word for name in _TORCHRUN)), len(words))
    for at in range(begin + 1, len(words)):
        option, has_value, value = words[at].partition("=")
        if has_value:
            words[at] = f"{option}={_option(option, value, member)}"
        elif at + 1 < len(words):
            words[at + 1] = _option(option, words[at + 1], member)
    return tuple(words)


def _option(option: str, value: str, member: PlayedRank) -> str:
    """Return the value of one of torchrun's options; it takes both spellings."""
    match option.replace("_", "-"):
        case "--nnodes" if value.isdigit():
            return str(member.size)
        case "--node-rank" if value.isdigit():
            return str(member.rank)
        case "--master-addr" | "--rdzv-endpoint" if member.host:
            return _at_host(value, member.host)
    return value


def _ranks_per_pod(env: Mapping[str, str], of_size: str, of_pods: Sequence[str]) -> int:
    size, pods = _number(env, of_size), next((n for n in (_number(env, name) for name in of_pods) if n), None)
    return size // pods if size and pods and size % pods == 0 else 1


def _number(env: Mapping[str, str], name: str) -> int | None:
    text = env.get(name, "")
    return int(text) if text.isascii() and text.isdigit() and len(text) <= _DIGITS_MAX else None


def _at_host(address: str, host: str) -> str:
    """Return the address with another host: `a:1` keeps its port, an IPv6 address without brackets has none."""
    _, colon, port = address.rpartition(":")
    is_port = bool(colon) and port.isdigit() and (address.count(":") == 1 or "]:" in address)
    return f"{host}:{port}" if is_port else host
