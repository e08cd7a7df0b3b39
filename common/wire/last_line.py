r"""
The last words of a worker: one line of what it wrote, at most 200 bytes, without controls and what looks like a secret.

`last_line_of` finds the line in the end of a log or in a termination message: the last one that reads as an exception
("RuntimeError: CUDA error"), or else the last one with a word in it. Lines of our own logs and frames of native stacks
are passed over, and what a launcher or a runtime adds once a rank has failed, where anything else is there.

Secrets are found by how they look: a name such as `password`, `token` or `api_key` before `=` or `:`, credentials in a
URL, `Bearer` and `Basic`, the well-known prefixes of tokens, and long runs of letters and digits. What is found becomes
`***`. It is a net with meshes: a secret that looks like a word passes. This module is pure.

In depth `process` and supervisor mode no container ends, and the Pod's agent tells line and moment, with the
announcement or the report of the failure:

    annotation   = "v1,epoch=" epoch ",at=" milliseconds ",line=" [ line ]
    epoch        = in which the worker ran
    milliseconds = since the Unix epoch, by the node's clock; 13 digits: when the exception ended the first rank, or
                   else when the process ended. It is not when the failure was told.
"""

from __future__ import annotations

import re

from inplace.common.bare.record import record
from inplace.common.bare.typed import Final
from inplace.common.protocol.bounds import INT32_MAX
from inplace.common.wire.parts import VERSION, read_parts, unix_s, unix_text, whole

BYTES_MAX: Final = 200  # it goes into every copy of the JobSet
READ_CHARACTERS_MAX: Final = 4096  # kubelet keeps 4096 bytes of a termination message; each pattern is linear in them
_LINE_PART: Final = ",line="  # the last part, which may hold anything
_TOLD: Final = {"epoch": whole(1, INT32_MAX), "at": unix_s}
_HEAD_BYTES_MAX: Final = len("v1,epoch=2147483647,at=1790000000123")
_LINE_CHARACTERS_MAX: Final = 1024  # of one line
_HIDDEN: Final = "***"
_ESCAPES: Final = re.compile("\x1b(?:\\[[0-9;?]*[ -/]*[@-~]|\\][^\x07\x1b]*(?:\x07|\x1b\\\\)?|[@-_])")
_EXCEPTION: Final = re.compile(
    r"(?:\[?rank ?\d+\]?: ?)?[A-Za-z_][\w.]*(?:Error|Exception|Interrupt|Exit|Failure|Fault|Timeout): *\S"
    r"|(?:fatal|panic|error|terminate called)\b|what\(\): *\S",
    re.IGNORECASE,
)
_NO_WORDS: Final = re.compile(  # of agent/report/log_line.py; frames of native stacks; what gloo says when all is well
    r'\{"timestamp": "[^"]*", "level": "|@ +0x[0-9a-f]+|frame #\d+|\[Gloo\] Rank \d+ is connected to'
)
_LAUNCHERS: Final = re.compile(
    r"childfailederror|calledprocesserror: command|^=+$|^-+$|^\S+\.py failed$|^(?:failures|root cause\b.*):$"
    r"|<no_other_failures>|^(?:fatal python error: )?aborted\b|^\[\d+\]:$|exited with code \d"
    r"|^\[\[\{\{node|^object_type="
    r"|^(?:time|host|rank|exitcode|error_file|traceback) *:|failed \(exitcode: |exits with return code"
    r"|sending process \d+ closing signal|killing subprocess \d+|^(?:srun|slurmstepd|mpirun|prterun|launcher)\b"
    r"|primary job +terminated|therefore will terminate the job|a non-zero exit code|process exited with code",
    re.IGNORECASE,
)
_PEERS_SIGNS: Final = re.compile(
    r"connection (?:was )?(?:closed|reset|refused|aborted|lost|broken)|lost connection|broken ?pipe"
    r"|connection(?:reset|refused|aborted)error|transport endpoint is not connected|no route to host"
    r"|remote (?:process|peer|endpoint|side)\b|ncclremoteerror|nccl communicator was aborted|peer (?:is gone|died)"
    r"|some nccl operations have failed or timed out|collective operation timeout|watchdog caught"
    r"|heart ?beat|(?:socket|barrier|rendezvous|store|read|wait\w*|recv\w*|allreduce|all_?gather)\b.{0,40}timed? ?out"
    r"|timed? ?out (?:waiting|after|in|during)\b.{0,80}\b(?:peers?|ranks?|clients?|barrier|rendezvous|store|worker)"
    r"|\bdeadline_exceeded\b|\bunavailable:|coordination service|distributed service detected|another task|tasks? died"
    r"|rendezvous\w*error|diststoreerror|distnetworkerror|got signal: ?15|childfailederror|sigtermexception",
    re.IGNORECASE,
)
_BARE_EXIT: Final = re.compile(r"(?:SystemExit: -?\d+)?")
_SECRETS: Final = (
    # Credentials in a URL.
    (re.compile(r"(://)[^\s/@]{1,512}@"), rf"\1{_HIDDEN}@"),
    (re.compile(r"\b(bearer|basic) +[\w.~+/=-]{6,}", re.IGNORECASE), rf"\1 {_HIDDEN}"),
    # NAME=VALUE and "NAME": "VALUE", also where the name is the end of a longer one.
    (
        re.compile(
            r"((?:passw(?:or)?d|pwd|passphrase|secret|token|credentials?|authorization|signature"
            r"|(?:api|access|private|secret|account|auth|signing)[_ -]?key(?:[_-]?id)?|cookie|sig)"
            r"[\"']?\s{0,4}[=:]\s{0,4})(?!bearer |basic )(?:\"[^\"]*\"?|'[^']*'?|[^\s\"',;&)}\]]+)",
            re.IGNORECASE,
        ),
        rf"\1{_HIDDEN}",
    ),
    # Tokens that say what they are: Hugging Face, GitHub, GitLab, Slack, OpenAI and its like, AWS, Google, JWT, npm.
    (
        re.compile(
            r"\b(?:hf_|gh[opsur]_|github_pat_|glpat-|xox[abeprs]-|sk-|pk-|npm_|AKIA|ASIA|AIza|ya29\.|eyJ)[\w.+/=-]{12,}"
        ),
        _HIDDEN,
    ),
    # Long runs of hexadecimal digits, and of letters of both cases with digits among them: keys, and a few checksums.
    (re.compile(r"(?<![\w+/])[0-9a-fA-F]{32,}(?![\w+/])"), _HIDDEN),
    (re.compile(r"(?<![\w+/])(?=\w*[a-z])(?=\w*[A-Z])(?=\w*[0-9])[A-Za-z0-9+/]{40,}={0,2}"), _HIDDEN),
)


@record
class LastLine:
    """How a worker ended by itself.

    Args:
        at_s: when, Unix time by the node's clock.
        line: what it wrote last, as the text has it; `clean_line` is the reader's part. "" if it left none.
    """

    at_s: float
    line: str


def last_line_of(text: str) -> str:
    """Return the line of a text that a person would search for, clean; "" if there is none."""
    found = launchers = ""
    for line in reversed(text[-READ_CHARACTERS_MAX:].splitlines()):
        plain = _printable(line)
        if not any(map(str.isalnum, plain)) or _NO_WORDS.match(plain):
            continue
        if _LAUNCHERS.search(plain):
            launchers = launchers or plain
            continue
        if _EXCEPTION.match(plain):
            return clean_line(plain)
        found = found or plain
    return clean_line(found or launchers)


def is_bare_exit(line: str) -> bool:
    """Say whether words tell an exit code and nothing else: what the worker wrote before may say why."""
    return _BARE_EXIT.fullmatch(line) is not None


def is_peers_sign(line: str) -> bool:
    """Say whether a last line tells that a peer is gone or silent, and nothing of the process that wrote it."""
    return _PEERS_SIGNS.search(line) is not None


def clean_line(text: str, bytes_max: int = BYTES_MAX) -> str:
    """Return a text as one line without controls and secrets, cut to so many bytes of UTF-8."""
    line = _printable(text)
    for pattern, hidden in _SECRETS:
        line = pattern.sub(hidden, line)
    whole = line.encode()
    if len(whole) <= bytes_max:
        return line
    return whole[: bytes_max - len("...")].decode(errors="ignore") + "..."


def last_line_text(epoch: int, at_s: float, line: str) -> str:
    """Return the annotation's value."""
    return f"{VERSION},epoch={epoch},at={unix_text(at_s)}{_LINE_PART}{clean_line(line)}"


def told_line_of(text: str, epoch: int) -> LastLine | None:
    """Read the annotation's value; None for another epoch's, and for garbage."""
    head, is_there, line = text.partition(_LINE_PART)
    read = read_parts(head, _TOLD, (("epoch", "at"),), _HEAD_BYTES_MAX)
    return LastLine(read["at"], line) if is_there and read is not None and read["epoch"] == epoch else None


def _printable(text: str) -> str:
    """Return the words of a text, with one space for whatever is between them or cannot be printed."""
    text = _ESCAPES.sub("", text[:_LINE_CHARACTERS_MAX])
    return " ".join("".join(one if one.isprintable() else " " for one in text).split())
