"""A worker that keeps a record of its own life, and dies as it is told.

Imports nothing of this project: the record is evidence against it. One file for each process,
EVIDENCE/SLOT.EPOCH.TIME.life, holds one JSON object, written anew at every beat; so it tells of the last moment at
which the process surely ran, also when SIGKILL ended it. Times are CLOCK_MONOTONIC, which all containers of a machine
share.

What it imports is part of what a restart takes, so it does without pathlib, json and signal.

Once a second it says its step in INPLACE_PROGRESS_DIR, if it has that: a number in a file, as any program can. When
INPLACE_SAVE_FILE names its epoch, it ends as a rank that has saved; it has nothing to write.

An order is a file EVIDENCE/POD.order: "exit N", or "oom", or "hang" (which ignores SIGTERM). It is obeyed once.
"""

import os
import sys
import time
from _signal import SIG_IGN, SIGTERM, signal  # type: ignore[import-not-found]

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

BORN_S = time.monotonic()
BEAT_S = 0.05
STEP_S = 1.0
RECORD_BYTES = 512
SAVED = 75  # as examples/train.py ends after a save
BITE_BYTES = 16 * 1024 * 1024


def main() -> None:
    """Beat until an order or a signal ends it."""
    folder, pod = os.environ["EVIDENCE"], os.environ["POD_NAME"]
    record: dict[str, str | int | float] = {
        "pod": pod,
        "uid": os.environ["POD_UID"],
        "slot": f"{os.environ['JOB_INDEX']}-{os.environ['JOB_COMPLETION_INDEX']}",
        "epoch": int(os.environ.get("INPLACE_EPOCH") or os.environ["EPOCH"]),
        "born_s": BORN_S,
        "alive_s": time.monotonic(),
        "ended": "",
        "rank": int(os.environ.get("INPLACE_RANK", "-1")),
        "size": int(os.environ.get("INPLACE_SIZE", "-1")),
    }
    name = f"{folder}/{record['slot']}.{record['epoch']}.{time.time_ns()}"
    file = os.open(f"{name}.begun", os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644)

    def write(ended: str = "") -> None:
        record.update(alive_s=time.monotonic(), ended=ended)
        os.pwrite(file, json_of(record).ljust(RECORD_BYTES).encode(), 0)

    def told_to_stop(number: int, _frame: object) -> None:
        write(f"signal {number}")
        os._exit(128 + number)

    signal(SIGTERM, told_to_stop)
    write()
    os.rename(f"{name}.begun", f"{name}.life")
    order, save = f"{folder}/{pod}.order", os.environ.get("INPLACE_SAVE_FILE", "")
    say_step = steps_in(os.environ.get("INPLACE_PROGRESS_DIR", ""))
    while True:
        write()
        say_step()
        if os.path.exists(order):
            obey(take(order), write)
        if save and is_asked(save, record["epoch"]):
            write("saved")
            os._exit(SAVED)
        time.sleep(BEAT_S)


def steps_in(folder: str) -> "Callable[[], None]":
    """Return what says the newest step, once for each."""
    if not folder:
        return lambda: None
    file, said = os.open(f"{folder}/steps", os.O_CREAT | os.O_WRONLY, 0o644), -1

    def say() -> None:
        nonlocal said
        if (step := int((time.monotonic() - BORN_S) / STEP_S)) > said:
            said = step
            os.pwrite(file, f"{step}\n".encode(), 0)

    return say


def is_asked(save: str, epoch: object) -> bool:
    """Say whether the workers of an epoch are to save and end."""
    try:
        with open(save) as file:
            return file.read().strip() == str(epoch)
    except FileNotFoundError:
        return False


def json_of(record: "dict[str, str | int | float]") -> str:
    """Spell a record whose texts need no escapes: names, a uid, how it ended."""
    values = (
        f'"{name}": "{value}"' if isinstance(value, str) else f'"{name}": {value}' for name, value in record.items()
    )
    return "{" + ", ".join(values) + "}"


def take(order: str) -> list[str]:
    """Read an order and remove it."""
    with open(order) as file:
        words = file.read().split()
    os.unlink(order)
    return words


def obey(words: list[str], write: "Callable[[str], None]") -> None:
    """Do as told."""
    match words:
        case ["exit", code]:
            write(f"exit {code}")
            os._exit(int(code))
        case ["hang"]:
            signal(SIGTERM, SIG_IGN)
        case ["oom"]:
            eaten = []
            while True:
                eaten.append(bytearray(os.urandom(1)) * BITE_BYTES)
                write("oom")
        case _:
            sys.exit(f"worker: an order that nobody knows: {words}")


if __name__ == "__main__":
    main()
