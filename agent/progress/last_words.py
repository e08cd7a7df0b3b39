"""
Read what the worker that failed wrote last: the exception that ended a rank, or torchelastic's error file.

Both lie in the ranks' progress folder, which strangers may write into. One reading looks at NAMES_MAX names and
FILES_MAX files. It is done once, when a worker ended by itself with a code other than 0.
"""

from __future__ import annotations

import threading
from contextlib import suppress

from inplace.agent.progress.rank_files import (
    ERROR_SUFFIX,
    first_names,
    is_rank_file,
    modified_s,
    open_folder,
    read_start,
)
from inplace.agent.worker.command import ELASTIC_FILE
from inplace.common.bare.typed import Final

FILES_MAX: Final = 256  # ranks of one Pod
LINE_BYTES_MAX: Final = 1024  # inplace/last_words.py's
ELASTIC_BYTES_MAX: Final = 262_144  # it has a call stack; what is longer is not read
READ_S_MAX: Final = 0.2  # the announcement waits for it; only a hung file system takes longer


def last_words(folder: str, epoch: int) -> str:
    """Return the annotation's value, of the rank whose exception was written first.

    "" for none of this epoch, or where the file system hangs.
    """
    found: list[str] = []
    reading = threading.Thread(target=lambda: found.append(_read_words(folder, epoch)), daemon=True)
    reading.start()
    reading.join(READ_S_MAX)
    if not (found and found[0]):
        return ""
    from inplace.common.wire.last_line import last_line_text

    return last_line_text(epoch, found[0])


def _read_words(folder: str, epoch: int) -> str:
    with suppress(OSError), open_folder(folder.rstrip("/") or "/") as opened:  # there is none, or it is gone meanwhile
        return _of_ranks(opened, epoch) or _of_elastic(opened)
    return ""


def _of_ranks(folder: int, epoch: int) -> str:
    names = [name for name in first_names(folder) if name.endswith(ERROR_SUFFIX) and is_rank_file(name)][:FILES_MAX]
    first = None
    for name in names:
        with suppress(OSError):  # it is gone meanwhile, or a link
            changed_s, content = modified_s(folder, name), read_start(folder, name, LINE_BYTES_MAX)
            version, _, rest = content.decode(errors="replace").partition(" ")
            of_epoch, _, text = rest.partition(" ")
            if version == "v1" and of_epoch in ("-", str(epoch)) and (first is None or changed_s < first[0]):
                first = changed_s, text.partition("\n")[0]
    return first[1] if first is not None else ""


def _of_elastic(folder: int) -> str:
    """Return the message of torchelastic's error file.

    Source: torch/distributed/elastic/multiprocessing/errors: {"message": {"message": TEXT, "extraInfo": {...}}}, or
    {"message": TEXT}.

    Raises:
        OSError: there is none, or it is a link.
    """
    content = read_start(folder, ELASTIC_FILE, ELASTIC_BYTES_MAX + 1)
    if not content or len(content) > ELASTIC_BYTES_MAX:
        return ""
    import json

    try:
        message = json.loads(content)["message"]
        text = message["message"] if isinstance(message, dict) else message
    except (ValueError, KeyError, TypeError, RecursionError):
        return ""
    lines = text.splitlines() if isinstance(text, str) else []
    return next((line.strip() for line in lines if line.strip()), "")
