"""
Remove what a dead worker left at paths of its container: lock files, half-written files, caches (`--clean PATH`).

What is removed must belong to the container: its own file system, a tmpfs, or an emptyDir, as /proc/self/mountinfo
shows them. A hostPath, a claim or a ConfigMap is refused, as are `/`, system folders, links and what this program
needs. The way to the path is walked by descriptors without following a link, and no mount below it is entered. So a
worker that puts a link into the way gains nothing. Loaded only with --clean. docs/adr/0081
"""

from __future__ import annotations

import os
import time
from _stat import S_ISDIR, S_ISLNK

from inplace.agent.settings.paths import is_within
from inplace.common.bare.typed import Final

ENTRIES_MAX: Final = 100_000  # removed in one go; some seconds on a disk
CLEAN_S_MAX: Final = 10.0  # the whole group waits for it
DEPTH_MAX: Final = 64
_EMPTY_DIR: Final = "/volumes/kubernetes.io~empty-dir/"  # in the root of an emptyDir's mount, wherever kubelet lives
_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def problem_of_mount(path: str, kept: str, mountinfo: str = "/proc/self/mountinfo") -> str:
    """Say why a path does not belong to the container; "" if it does.

    Args:
        path: that `settings.paths.problem_of_path` finds nothing wrong with.
        kept: the folder that agent and worker share; "" for none.
        mountinfo: where the kernel lists this process's mounts.
    """
    if kept and (is_within(kept, path) or is_within(path, kept)):
        return f"expected a path outside of {kept}, which inplace needs, saw {path[:80]!r}"
    point, root, kind = "", "", ""
    for found in _mounts(mountinfo):
        if is_within(path, found[0]) and len(found[0]) >= len(point):
            point, root, kind = found
    if point in ("", "/") or (kind == "tmpfs" and root == "/") or _EMPTY_DIR in root:
        return ""
    return f"expected the container's own file system or an emptyDir, saw a {kind} mount at {point[:80]!r}"


class CleanPaths:
    """Remove these paths; a folder stays, and loses what is in it.

    Args:
        paths: that nothing is wrong with.
        kept: as `problem_of_mount` has it.
    """

    def __init__(self, paths: tuple[str, ...], kept: str, mountinfo: str = "/proc/self/mountinfo") -> None:
        self._paths = paths
        self._kept = kept
        self._mountinfo = mountinfo
        self._points = frozenset[str]()
        self._left = 0
        self._by_s = 0.0

    def clean(self) -> list[str]:
        """Remove what is there, within bounds; return what could not be done, a sentence for each path."""
        self._points = frozenset(point for point, _, _ in _mounts(self._mountinfo))
        self._left, self._by_s = ENTRIES_MAX, time.monotonic() + CLEAN_S_MAX
        problems = []
        for path in self._paths:
            problem = problem_of_mount(path, self._kept, self._mountinfo)
            try:
                if not problem:
                    self._clean(path)
            except FileNotFoundError:
                continue
            except OSError as error:
                problem = error.strerror or str(error)
            if problem:
                problems.append(f"cannot clean {path}: {problem}")
        return problems

    def _clean(self, path: str) -> None:
        *above, name = path[1:].split("/")
        folder = os.open("/", _FOLDER)
        try:
            for part in above:
                below = os.open(part, _FOLDER, dir_fd=folder)  # ENOTDIR or ELOOP for a link
                os.close(folder)
                folder = below
            found = os.stat(name, dir_fd=folder, follow_symlinks=False)
            if S_ISLNK(found.st_mode):
                raise OSError(40, "expected a file or a folder, saw a link")
            if S_ISDIR(found.st_mode):
                self._empty(folder, name, path, 0)
            else:
                os.unlink(name, dir_fd=folder)
        finally:
            os.close(folder)

    def _empty(self, above: int, name: str, path: str, depth: int) -> None:
        """Remove what is in a folder, but for mounts and what is on them."""
        folder = os.open(name, _FOLDER, dir_fd=above)
        try:
            with os.scandir(folder) as entries:
                names = [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in entries]
            for entry, is_folder in names:
                own = f"{path}/{entry}"
                if any(is_within(point, own) for point in self._points):
                    continue
                if not self._left or time.monotonic() > self._by_s:
                    raise OSError(62, f"expected at most {ENTRIES_MAX} entries and {CLEAN_S_MAX:g} s, saw more")
                self._left -= 1
                if not is_folder:
                    os.unlink(entry, dir_fd=folder)
                elif depth < DEPTH_MAX:
                    self._empty(folder, entry, own, depth + 1)
                    os.rmdir(entry, dir_fd=folder)
                else:
                    raise OSError(40, f"expected at most {DEPTH_MAX} folders below each other, saw more")
        finally:
            os.close(folder)


def _mounts(mountinfo: str) -> list[tuple[str, str, str]]:
    """Return (mount point, root within its file system, kind), the newest last; proc(5)."""
    with open(mountinfo, encoding="utf-8", errors="surrogateescape") as lines:  # noqa: PTH123
        rows = [line.partition(" - ") for line in lines]
    return [(_plain(head.split()[4]), _plain(head.split()[3]), tail.split()[0]) for head, _, tail in rows]


def _plain(text: str) -> str:
    """Undo the kernel's octal escapes of blanks."""
    for code, character in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")):
        text = text.replace(code, character)
    return text
