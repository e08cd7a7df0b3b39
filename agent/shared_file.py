"""
Open files where somebody else may write: in the folder that the containers of a Pod share.

A worker may put anything in a file's place: a link to a file of the agent's, a pipe that no open returns from, a
device, a file that never ends, a file of its own. So nothing is followed, nothing is waited for, little is read, and
only a regular file of this process's own user counts. A worker that runs as the agent's user can still write one: what
is read is checked again by its reader. On the agent's start path. `agent.progress.rank_files` does the same for files
of strangers.
"""

from __future__ import annotations

import errno
import os
from _stat import S_ISREG

from inplace.common.bare.typed import Final

_READ: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
MODE: Final = 0o644  # of what is written: a reader may be another user
_WRITE: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


def read_shared(path: str, bytes_max: int) -> bytes:
    """Return the content of this user's regular file.

    Raises:
        FileNotFoundError: there is none.
        OSError: it cannot be read, or is something else, somebody else's, or longer; `strerror` says what.
    """
    file = os.open(path, _READ)
    try:
        found = os.fstat(file)
        if not S_ISREG(found.st_mode):
            raise OSError(errno.EINVAL, "expected a regular file, saw something else")
        if found.st_uid != os.geteuid():
            raise OSError(errno.EPERM, f"expected a file of user {os.geteuid()}, saw one of {found.st_uid}")
        content = os.read(file, bytes_max + 1)
    finally:
        os.close(file)
    if len(content) > bytes_max:
        raise OSError(errno.EFBIG, f"expected at most {bytes_max} bytes, saw more")
    return content


def write_shared(path: str, content: bytes) -> None:
    """Replace a file in one step, so that a crash leaves the old or the new one; its old content does not matter.

    Raises:
        OSError: it cannot be written; `strerror` says why.
    """
    fresh = f"{path}.new"
    if os.path.lexists(fresh):
        os.unlink(fresh)  # noqa: PTH108 - pathlib costs 3 ms on the start path
    file = os.open(fresh, _WRITE, MODE)
    try:
        os.fchmod(file, MODE)  # whatever the umask
        rest = content
        while rest:
            rest = rest[os.write(file, rest) :]
    finally:
        os.close(file)
    os.replace(fresh, path)  # noqa: PTH105
