"""
The class of a failure: where to look first. It follows from reason, trigger, last line and exit code.

    outside      another program or a person ended it: eviction, preemption, a deleted Pod, SIGTERM, SIGKILL
    launch       the program never began to train: a wrong command, a missing module, a variable that is not set
    memory       of the process, its container, its GPU, or shared memory
    device       a GPU or TPU, its driver, or its node
    collective   a peer, a connection, a timeout: most often the echo of another rank's failure
    storage      a file or bucket that cannot be read or written
    numerics     a loss or gradient that is no finite number
    data         an input that cannot be decoded
    code         the script or a library it uses
    unknown      nothing says it

Kubernetes' reason decides first, then the trigger, then the rules below in their order: each is a pattern that is
searched in the worker's last line, and the first one that is found decides. Where no pattern is found, the exit code
decides. So a failure has the same class in the controller, in every command and in the tests. When programs change
their words, add the new line to tests/corpus/tails.txt first. Pure. docs/verdicts.md
"""

from __future__ import annotations

import re
from enum import Enum
from functools import lru_cache
from typing import Final

from inplace.common.jobset.causes import Failure, Trigger
from inplace.common.wire.last_line import is_bare_exit


class FailureClass(Enum):
    """What failed; a label's value, so closed."""

    OUTSIDE = "outside"
    LAUNCH = "launch"
    MEMORY = "memory"
    DEVICE = "device"
    COLLECTIVE = "collective"
    STORAGE = "storage"
    NUMERICS = "numerics"
    DATA = "data"
    CODE = "code"
    UNKNOWN = "unknown"

    @property
    def advice(self) -> str:
        """Return what helps, in one sentence; "" where nobody knows."""
        return _ADVICE.get(self, "")

    @property
    def may_be_of_the_node(self) -> bool:
        """Say whether another node may help; a script fails anywhere."""
        return self not in (FailureClass.LAUNCH, FailureClass.NUMERICS, FailureClass.DATA, FailureClass.CODE)


_OF_TRIGGERS: Final = {
    Trigger.STALLED: FailureClass.COLLECTIVE,
    Trigger.LOSS_NOT_FINITE: FailureClass.NUMERICS,
    Trigger.SLOW: FailureClass.DEVICE,
    Trigger.POD_LOST: FailureClass.OUTSIDE,
    Trigger.DISRUPTED: FailureClass.OUTSIDE,
    Trigger.COMPLETED_EARLY: FailureClass.CODE,
}
OF_REASONS: Final = {
    "OOMKilled": FailureClass.MEMORY,
    "NodeLost": FailureClass.DEVICE,
    "NodeNotReady": FailureClass.DEVICE,
}
LINES_KEPT_MAX: Final = 1024  # classes of lines, of at most 200 bytes each
_NOT_RUN: Final = (126, 127)  # a shell could not execute a command, or did not find it
_OF_CODES: Final = {
    128: FailureClass.LAUNCH,  # kubelet's StartError and ContainerCannotRun
    129: FailureClass.OUTSIDE,  # SIGHUP
    130: FailureClass.OUTSIDE,  # SIGINT
    132: FailureClass.CODE,  # SIGILL
    134: FailureClass.CODE,  # SIGABRT: a check of a library
    135: FailureClass.MEMORY,  # SIGBUS: a page of shared memory that is not there
    136: FailureClass.CODE,  # SIGFPE
    137: FailureClass.OUTSIDE,
    139: FailureClass.CODE,
    143: FailureClass.OUTSIDE,
}
# What a rule above takes, those below never see: "No space left" of shared memory is memory.
_RULES: Final = {
    FailureClass.OUTSIDE: r"""
        got signal: ?15|keyboardinterrupt|sigtermexception|received sigterm|killed by signal: terminated|preempted
        signal 9 \(sigkill\)|signal 15|evicted|termination signal|signal sigterm|cancelled at|return code = -(?:9|15)
    """,
    FailureClass.MEMORY: r"""
        out ?of ?memory|resource_?exhausted|(?:cannot|can't|unable to) allocate|memoryerror|bad_alloc|\boom\b
        shared memory|bus error|status_alloc_failed|line \d+: \d+ killed|killed by signal: killed|file </torch_\d
    """,
    FailureClass.DEVICE: r"""
        (?:cuda|hip|cudnn) error(?!: device-side assert)|cuda_error_|cudnn_status|cublas_status|hiperror|hsa_status
        no (?:cuda|hip) gpus|no supported gpu|requested gpu|cudagetdevicecount|unhandledcudaerror|streamexecutor
        cuda unknown error|cuda driver|nvidia driver|no cuda-capable|illegal memory access|launch failure
        nvidia-container|\becc\b|\bxid\b|fallen off the bus|gpu is lost|device handle for gpu|nvml|nvlink
        backend '(?:tpu|cuda|gpu|rocm)'|core halted|memory access fault by gpu|device halted|tpu initialization
    """,
    FailureClass.LAUNCH: r"""
        modulenotfounderror|importerror|syntaxerror|indentationerror|not found in \$path|can't open file
        (?:command|\d+: \S+): not found$|unrecognized arguments|arguments are required|unknown command line flag
        shared object file|glibc_|^exec:|exec format error|environment variable \w+ expected|unbound variable
        (?-i:KeyError: '(?:RANK|[A-Z][A-Z0-9]*_[A-Z0-9_]+)')|address already in use|eaddrinuse|have nccl built in
        requires at least one cuda device
        cuda_home|failed to import|building extension|parallel dims|not divisible by|config\w*error
        batch related parameters|\.sh: line \d+:|: error: argument |parameter not set
    """,
    FailureClass.COLLECTIVE: r"""
        nccl|gloo|\bmpi_|connection (?:was )?(?:closed|reset|refused|aborted|lost)|lost connection|broken ?pipe
        connection(?:reset|refused|aborted)error|no route to host|network is unreachable|name resolution
        name or service not known|dist(?:store|network|backend)error|rendezvous\w*error|collective op|heart ?beat
        deadline_exceeded|(?<!service)unavailable(?:error)?:|coordination service|barrier timed out
        distributed service detected|error received from peer|deadline exceeded|monitoredbarrier|is unreachable
        failed to connect to all addresses|horovod|\bucp_|\bibv_|infiniband
        (?:socket|recv|store|peer|client)\w*\b.{0,60}timed? ?out
        timed? ?out .{0,60}\b(?:recv|clients?|peers?|ranks?)
    """,
    FailureClass.NUMERICS: r"""
        \bnans?\b|\b(?:is|or|be|to|became|got|found) [-+]?inf\b|not finite|non-?finite|infinite loss|loss scale
        diverged|linalgerror|floatingpointerror|to satisfy the constraint|probability tensor contains
    """,
    FailureClass.STORAGE: r"""
        no space left|disk quota|input/output error|stale file handle|read-only file system|permission ?denied
        permissionerror|transport endpoint|botocore|\bs3\b|\bgs://|storage\.googleapis|google\.api_core|azure\.
        http response code|lustre|checkpoint|zip archive|pytorchstreamreader|inline_container|safetensor
        unpicklingerror|ran out of input|\bzarr\b|tensorstore|truncated file|restorev2|global metadata
        \.(?:pt|pth|ckpt|npz)'|filenotfounderror|notfounderror|too many open files|mountvolume|oserror: \[errno
        http\.client\.|urllib\.error\.|httperror
    """,
    FailureClass.DATA: r"""
        unicodedecodeerror|jsondecodeerror|identify image|unidentifiedimage|image file|dataloader worker|pyarrow
        parquet|zlib\.error|tarfile|dataset\w*error|badgzip|badzip|eoferror|corrupt|tokeniz\w*error|tokenizing data
        decompress|invalid ?data|parse serialized|libsndfile|decorderror|cv2\.error|opencv|webdataset|index file
        num_samples=0|stack expects each tensor|didn't find \[|tar archive|tar file|frames left|sample index
        loading video|struct\.error|sqlite3\.databaseerror|\bparseerror|wave\.error
    """,
    FailureClass.CODE: r"""
        ^(?:\[?rank ?\d+\]?: ?)?[A-Za-z_][\w.]*(?:error|exception|warning|exit)\b|segmentation fault|sigsegv|std::\w+$
    """,
}
_PATTERNS: Final = {
    found: re.compile("|".join(map(str.strip, words.strip().splitlines())), re.IGNORECASE)
    for found, words in _RULES.items()
}
_ADVICE: Final = {
    FailureClass.LAUNCH: "mend the command, the image or the variables: a restart does not help",
    FailureClass.MEMORY: "lower the batch or raise the limit; shared memory is a volume at /dev/shm",
    FailureClass.DEVICE: "look at the node: clocks, ECC errors, driver; kubectl cordon it if it comes back",
    FailureClass.COLLECTIVE: "look for the rank that failed first: this one may only have lost its peer",
    FailureClass.STORAGE: "look at the volume or the bucket: space, rights, quota, rate",
    FailureClass.NUMERICS: "look at the data and the learning rate of that step; load an older checkpoint",
    FailureClass.DATA: "look at the input of that step",
    FailureClass.CODE: "mend the script: it fails in the same way on any node",
}


def class_words(trigger: Trigger, failure: Failure | None) -> str:
    """Return what the class adds to a worker's last line, such as " (memory)"; "" for nothing."""
    if trigger is not Trigger.WORKER_EXIT or failure is None or not failure.last_line:
        return ""  # the trigger, the reason or the signal says as much
    found = class_of(trigger, failure)
    return "" if found is FailureClass.UNKNOWN else f" ({found.value})"


def class_of(trigger: Trigger, failure: Failure | None) -> FailureClass:
    """Return the class of a failure.

    Args:
        trigger: of its restart.
        failure: the first one; None if nobody knows it.
    """
    if failure is not None and (found := OF_REASONS.get(failure.reason)) is not None:
        return found
    if (found := _OF_TRIGGERS.get(trigger)) is not None:
        return found
    if failure is not None and failure.reason == Trigger.STALLED.reason:
        return FailureClass.COLLECTIVE  # its peers failed, and it was furthest behind
    if failure is None:
        return FailureClass.UNKNOWN
    if failure.exit_code in _NOT_RUN:
        return FailureClass.LAUNCH
    of_code = _OF_CODES.get(failure.exit_code or 0)
    if of_code is not None and is_bare_exit(failure.last_line):
        return of_code  # a script that handles a signal and ends with its code
    return _of_line(failure.last_line) or of_code or FailureClass.UNKNOWN


@lru_cache(LINES_KEPT_MAX)
def _of_line(line: str) -> FailureClass | None:
    """Return the class of a last line: a controller asks it again of the same one for each Pod that fails."""
    return next((found for found, pattern in _PATTERNS.items() if pattern.search(line)), None)
