"""
Paths that a person names, judged by their text alone: what is cleaned between two workers, and files of progress.

The agent's and the guard's settings, `inplace inject` and lint refuse the same ones. Loaded only where one is named.
"""

from __future__ import annotations

import os

from inplace.common.bare.typed import Final

PATHS_MAX: Final = 32
PATH_CHARACTERS_MAX: Final = 1024
PATTERN_CHARACTERS_MAX: Final = 512
PATTERN_DEPTH_MAX: Final = 4  # parts of a pattern from its first wildcard on
SHM: Final = "/dev/shm"  # noqa: S108
# None of these is a worker's to remove, nor is anything below them.
_SYSTEM: Final = ("bin", "boot", "dev", "etc", "lib", "lib32", "lib64", "libx32", "opt", "proc", "sbin", "sys", "usr")
_WHOLE: Final = ("home", "media", "mnt", "root", "run", "srv", "var")  # not as a whole
_OURS: Final = (
    *("/var/run/inplace", "/run/inplace", "/var/run/inplace-keep", "/run/inplace-keep"),
    *("/var/run/secrets", "/run/secrets", "/inplace"),
)


def problem_of_path(path: str) -> str:
    """Say why a path is never cleaned, by its text alone; "" if nothing is wrong with it."""
    if len(path) > PATH_CHARACTERS_MAX:
        return f"expected at most {PATH_CHARACTERS_MAX} characters, saw {len(path)}"
    if not path.startswith("/") or "\0" in path or os.path.normpath(path) != path or path.startswith("//"):
        return f"expected an absolute path without '.', '..', '//' and a slash at its end, saw {path[:80]!r}"
    first = path.split("/")[1]
    is_shm = path == SHM or path.startswith(f"{SHM}/")
    if path == "/" or (first in _SYSTEM and not is_shm) or path[1:] in (*_WHOLE, "var/run", "var/lib", "var/log"):
        return f"expected a path of the worker's own, such as /tmp/NAME, saw {path[:80]!r}"
    if any(is_within(path, ours) or is_within(ours, path) for ours in _OURS):
        return f"expected a path that inplace and kubelet do not need, saw {path[:80]!r}"
    return ""


def problem_of_pattern(pattern: str) -> str:
    """Say what is wrong with a pattern of progress files; "" when nothing is."""
    text = pattern[:80]
    if not pattern.startswith("/") or pattern.endswith("/") or "\0" in pattern or "//" in pattern:
        return f"expected the absolute path of files, saw {text!r}"
    if len(pattern) > PATTERN_CHARACTERS_MAX:
        return f"expected at most {PATTERN_CHARACTERS_MAX} characters, saw {len(pattern)}"
    if "**" in pattern:
        return f"expected '*' for one name at a time, saw '**' in {text!r}"
    if len(split_pattern(pattern)[1]) > PATTERN_DEPTH_MAX:
        return f"expected at most {PATTERN_DEPTH_MAX} names from the first wildcard on, saw {text!r}"
    return ""


def split_pattern(pattern: str) -> tuple[str, list[str]]:
    """Return the folder above the first wildcard, and the names below it."""
    parts = pattern.split("/")
    first = next((index for index, part in enumerate(parts) if has_wildcard(part)), len(parts))
    first = min(first, len(parts) - 1)
    return "/".join(parts[:first]) or "/", parts[first:]


def has_wildcard(part: str) -> bool:
    """Say whether a part of a path stands for many names."""
    return any(character in part for character in "*?[")


def is_within(path: str, folder: str) -> bool:
    """Say whether a path is a folder or something below it."""
    return folder == "/" or path == folder or path.startswith(f"{folder}/")
