"""
The faults of the corpus: what each does to a rank, and what is to blame for it. It runs in a framework's Python.

A fault is a real one: the library, the interpreter or the kernel makes the words. What a script itself would say of its
own input is said here with `raise`. `start` faults come before the group meets, the others within a step.
"""

from __future__ import annotations

import argparse
import csv
import ctypes
import gzip
import importlib
import io
import json
import math
import mmap
import os
import pickle
import resource
import signal
import socket
import sqlite3
import struct
import subprocess
import sys
import tarfile
import time
import urllib.request
import wave
import zipfile
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final
from xml.etree import ElementTree

BOTH, TORCH, JAX = ("torch", "jax"), ("torch",), ("jax",)
FOR_EVER_S: Final = 3600.0
HUGE: Final = 1 << 45  # bytes: no machine has them


@dataclass(frozen=True, slots=True)
class Moment:
    """Where a rank is when its fault comes.

    Args:
        folder: of this rank, empty.
        full: a file system without room.
        read_only: one that takes no write.
    """

    rank: int
    world: int
    step: int
    framework: str
    folder: Path
    full: Path
    read_only: Path


@dataclass(frozen=True, slots=True)
class Kind:
    """One fault.

    Args:
        truth: what is to blame.
        do: the fault.
        at: "start" or "step".
        of: the frameworks that have it.
        rank: that alone can have it; None for any.
        hangs: the rank does not end by itself.
        alone: all ranks together cannot have it.
    """

    truth: str
    do: Callable[[Moment], object]
    at: str = "step"
    of: tuple[str, ...] = BOTH
    rank: int | None = None
    hangs: bool = False
    alone: bool = False


def _raise(error: BaseException) -> None:
    raise error


def _torch() -> Any:
    return importlib.import_module("torch")


def _jnp() -> Any:
    return importlib.import_module("jax.numpy")


def _numpy() -> Any:
    return importlib.import_module("numpy")


def _file(moment: Moment, name: str, content: bytes) -> Path:
    path = moment.folder / name
    path.write_bytes(content)
    return path


# The script.


def _shape(moment: Moment) -> None:
    if moment.framework == "jax":
        _jnp().zeros((4, 7)) @ _jnp().zeros((8, 8))
    _torch().nn.Linear(8, 8)(_torch().zeros(4, 7))


def _endless(depth: int = 0) -> int:
    return _endless(depth + 1) + 1


def _traced_bool(_: Moment) -> None:
    jax = importlib.import_module("jax")
    jax.jit(lambda x: x if x > 0 else -x)(1.0)


def _leaf(_: Moment) -> None:
    weight = _torch().zeros(2, requires_grad=True)
    weight += 1


def _backward_twice(_: Moment) -> None:
    weight = _torch().ones(2, requires_grad=True)
    loss = (weight * weight).sum()
    loss.backward()
    loss.backward()


def _crash(_: Moment) -> None:
    ctypes.string_at(8)


def _crash_with_words(moment: Moment) -> None:
    importlib.import_module("faulthandler").enable()
    _crash(moment)


# The input.


def _bad_gzip(moment: Moment) -> None:
    with gzip.open(_file(moment, "shard-0007.gz", b"not a gzip file at all")) as file:
        file.read()


def _cut_gzip(moment: Moment) -> None:
    with gzip.open(_file(moment, "shard-0007.gz", gzip.compress(os.urandom(4096))[:900])) as file:
        file.read()


def _nul_csv(_: Moment) -> None:
    list(csv.reader(io.StringIO('1,"2' + "x" * 200_000 + '"\n')))


def _bad_tar(moment: Moment) -> None:
    with tarfile.open(_file(moment, "shard-000012.tar", os.urandom(2048))) as file:
        file.getnames()


def _bad_npy(moment: Moment) -> None:
    _numpy().load(_file(moment, "tokens.npy", os.urandom(512)))


def _bad_database(moment: Moment) -> None:
    sqlite3.connect(_file(moment, "index.db", os.urandom(4096))).execute("select * from samples")


class _Samples:
    """A dataset of JSON lines, one of which is cut."""

    def __init__(self, lines: list[str]) -> None:
        self.lines = lines

    def __len__(self) -> int:
        return len(self.lines)

    def __getitem__(self, at: int) -> Any:
        return _torch().zeros(len(json.loads(self.lines[at])["tokens"]))


def _loader(lines: list[str], workers: int) -> None:
    data = importlib.import_module("torch.utils.data")
    for _ in data.DataLoader(_Samples(lines), batch_size=2, num_workers=workers, shuffle=not lines):
        pass


def _killed_loader(_: Moment) -> None:
    data = importlib.import_module("torch.utils.data")
    for number, _batch in enumerate(data.DataLoader(_Samples(['{"tokens": [1]}'] * 4000), num_workers=1)):
        if number == 3:
            for child in Path(f"/proc/{os.getpid()}/task/{os.getpid()}/children").read_text().split():
                os.kill(int(child), signal.SIGKILL)


# Numbers.


def _clip(_: Moment) -> None:
    weight = _torch().ones(2, requires_grad=True)
    (weight * math.nan).sum().backward()
    _torch().nn.utils.clip_grad_norm_([weight], 1.0, error_if_nonfinite=True)


def _anomaly(_: Moment) -> None:
    weight = _torch().zeros(2, requires_grad=True)
    with _torch().autograd.detect_anomaly():
        (_torch().sqrt(weight) * 0).sum().backward()


def _numpy_overflow(_: Moment) -> None:
    with _numpy().errstate(all="raise"):
        _numpy().exp(_numpy().float32(1e4))


def _debug_nans(_: Moment) -> None:
    jax = importlib.import_module("jax")
    jax.config.update("jax_debug_nans", True)
    jax.jit(_jnp().log)(-1.0)


def _loss(moment: Moment) -> None:
    loss = math.inf - math.inf
    if not math.isfinite(loss):
        raise FloatingPointError(f"loss is {loss} at step {moment.step}")


def _stopped_by_loss(moment: Moment) -> None:
    print(f"Loss is {math.nan}, stopping training (step {moment.step})", flush=True)
    sys.exit(1)


# Memory.


def _out_of_memory(moment: Moment) -> None:
    """Let the kernel kill this process, for the memory of its own group."""
    group = Path("/sys/fs/cgroup/memory") / f"inplace-corpus-{os.getpid()}"
    group.mkdir()
    (group / "memory.limit_in_bytes").write_text(str(64 << 20))
    (group / "cgroup.procs").write_text(str(os.getpid()))
    (moment.folder / "oom").write_text(str(group))
    held = []
    while True:
        held.append(bytearray(os.urandom(1 << 20)))


def _bus(moment: Moment) -> None:
    """Touch a page for which a full file system in memory has no room, as /dev/shm has none."""
    fd = os.open(moment.full / f"{moment.framework}-shm-{os.getpid()}", os.O_RDWR | os.O_CREAT)
    os.ftruncate(fd, 64 << 20)
    mapped = mmap.mmap(fd, 64 << 20)
    mapped[: 64 << 20] = b"x" * (64 << 20)


def _little_memory(_: Moment) -> None:
    resource.setrlimit(resource.RLIMIT_AS, (1 << 20, resource.RLIM_INFINITY))
    bytearray(512 << 20)


def _shared_tensor(moment: Moment) -> None:
    """Ask for shared memory in a file system that is full, as in a container without a volume for it."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(0x00020000) or libc.mount(b"none", b"/", None, 1 << 14 | 1 << 18, None):
        raise AssertionError(f"no own mounts: {os.strerror(ctypes.get_errno())}")
    libc.mount(bytes(moment.full), b"/dev/shm", None, 4096, None)
    _torch().zeros(32 << 20).share_memory_()


# Storage.


def _save_full(moment: Moment) -> None:
    _torch().save({"weights": _torch().zeros(8 << 20)}, moment.full / f"{moment.framework}-step-{os.getpid()}.pt")


def _too_large(moment: Moment) -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 16, resource.RLIM_INFINITY))
    (moment.folder / "step-000100.ckpt").write_bytes(b"x" * (1 << 20))


def _no_right(moment: Moment) -> None:
    moment.read_only.parent.chmod(0o755)
    os.setuid(65534)
    Path("/root/checkpoints").mkdir()


def _many_files(moment: Moment) -> None:
    resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
    kept = [(moment.folder / f"shard-{number}").open("w") for number in range(100)]
    assert not kept


def _input_output_error(_: Moment) -> None:
    Path("/proc/self/mem").read_bytes()


def _truncated(moment: Moment) -> None:
    path = moment.folder / "step-000100.pt"
    _torch().save({"weights": _torch().zeros(4096)}, path)
    path.write_bytes(path.read_bytes()[:5000])
    _torch().load(path)


def _garbage(moment: Moment) -> None:
    pickle.loads(_file(moment, "step-000100.ckpt", b"\x0f" * 64).read_bytes())  # noqa: S301 - it is what fails


def _tensorstore(moment: Moment) -> None:
    checkpoint = importlib.import_module("orbax.checkpoint")
    checkpoint.StandardCheckpointer().restore(moment.folder / "100")


def _bucket(answer: bytes) -> Callable[[Moment], None]:
    """Return a read of a bucket whose server gives this answer; b"" for a server that is not there."""

    def read(_: Moment) -> None:
        server = socket.create_server(("127.0.0.1", 0))
        port = server.getsockname()[1]
        if not answer:
            server.close()
        elif os.fork() == 0:
            peer, _address = server.accept()
            peer.recv(4096)
            peer.sendall(answer)
            peer.close()
            os._exit(0)
        urllib.request.urlopen(f"http://127.0.0.1:{port}/bucket/step-100.ckpt", timeout=2.0).read()

    return read


# The launch.


def _broken_module(moment: Moment) -> None:
    _file(moment, "trainer_config.py", b"def lr(:\n    return 1\n")
    sys.path.insert(0, str(moment.folder))
    importlib.import_module("trainer_config")


def _arguments(*words: str) -> Callable[[Moment], None]:
    def parse(_: Moment) -> None:
        parser = argparse.ArgumentParser("train.py")
        parser.add_argument("--data", required=True)
        parser.add_argument("--lr", type=float)
        parser.parse_args(words)

    return parse


def _shell(*words: str) -> Callable[[Moment], None]:
    def run(_: Moment) -> None:
        os.execvp(words[0], words)  # noqa: S606 - nothing of it is anybody's input

    return run


def _taken_port(_: Moment) -> None:
    port = int(os.environ["MASTER_PORT"])
    socket.create_server(("", port)).detach()  # a run before this one, say
    store = importlib.import_module("torch.distributed").TCPStore
    store("127.0.0.1", port, 2, is_master=True)


def _no_variable(_: Moment) -> None:
    del os.environ["WORLD_SIZE"]
    importlib.import_module("torch.distributed").init_process_group("gloo")


def _other_backend(_: Moment) -> None:
    importlib.import_module("torch.distributed").init_process_group("nccl")


# The others, and the network.


def _shut(_: Moment) -> None:
    """Shut every connection of this process, as a network interface that is gone does in the end."""
    for link in Path("/proc/self/fd").iterdir():
        try:
            connection = socket.socket(fileno=os.dup(int(link.name)))
            connection.getpeername()  # not one that listens: gloo would abort
            connection.shutdown(socket.SHUT_RDWR)
        except OSError:
            continue


def _other_shape(_: Moment) -> None:
    importlib.import_module("torch.distributed").all_reduce(_torch().zeros(3))
    time.sleep(1.0)


def _kill(number: int) -> Callable[[Moment], None]:
    return lambda _: os.kill(os.getpid(), number)


def _handled(number: int, then: Callable[[], object]) -> Callable[[Moment], None]:
    """Return a signal that the script handles."""

    def send(_: Moment) -> None:
        signal.signal(number, lambda *_: then())
        os.kill(os.getpid(), number)
        time.sleep(1.0)

    return send


def _exit(code: int | str) -> Callable[[Moment], None]:
    return lambda _: sys.exit(code)


KINDS: Final[Mapping[str, Kind]] = MappingProxyType(
    {
        "value": Kind("code", lambda m: _raise(ValueError(f"expected 32 labels in batch {m.step}, saw 31"))),
        "runtime": Kind("code", lambda m: _raise(RuntimeError(f"optimizer state of group {m.rank} is missing"))),
        "shape": Kind("code", _shape),
        "index": Kind("code", lambda m: [0.1, 0.2][m.step + 7]),
        "embedding": Kind("code", lambda _: _torch().nn.Embedding(4, 2)(_torch().tensor([9])), of=TORCH),
        "label": Kind(
            "code", lambda _: _torch().nn.functional.cross_entropy(_torch().zeros(1, 3), _torch().tensor([5])), of=TORCH
        ),
        "key": Kind("code", lambda _: {"input_ids": 1}["labels"]),
        "attribute": Kind("code", lambda _: None.shape),  # type: ignore[attr-defined]
        "type": Kind("code", lambda m: len(m.step)),  # type: ignore[arg-type]
        "zero": Kind("code", lambda m: m.step / 0),
        "assert": Kind("code", lambda _: _raise(AssertionError())),
        "assert_words": Kind("code", lambda m: _raise(AssertionError(f"expected a step below {m.step}"))),
        "recursion": Kind("code", lambda _: _endless()),
        "name": Kind("code", lambda _: scheduler.step()),  # type: ignore[name-defined] # noqa: F821
        "not_written": Kind("code", lambda _: _raise(NotImplementedError())),
        "leaf": Kind("code", _leaf, of=TORCH),
        "backward_twice": Kind("code", _backward_twice, of=TORCH),
        "dtype": Kind("code", lambda _: _torch().nn.Linear(2, 2)(_torch().zeros(2, 2).double()), of=TORCH),
        "state_dict": Kind("code", lambda _: _torch().nn.Linear(2, 2).load_state_dict({"w": 1}), of=TORCH),
        "traced_bool": Kind("code", _traced_bool, of=JAX),
        "broadcast": Kind("code", lambda _: _jnp().zeros((3,)) + _jnp().zeros((4,)), of=JAX),
        "jax_index": Kind("code", lambda _: _jnp().zeros(3)[1.5], of=JAX),
        "segfault": Kind("code", _crash),
        "segfault_words": Kind("code", _crash_with_words),
        "abort": Kind("code", lambda _: os.abort()),
        "illegal": Kind("code", _kill(signal.SIGILL)),
        "floating_signal": Kind("code", _kill(signal.SIGFPE)),
        "exit_3": Kind("code", _exit(3)),
        "exit_words": Kind("code", _exit("trainer: cannot go on without an optimizer")),
        "other_shape": Kind("code", _other_shape, of=TORCH, alone=True),
        "completes": Kind("code", _exit(0), alone=True),
        "unicode": Kind("data", lambda _: b"tok\xff\xfe".decode()),
        "json": Kind("data", lambda _: json.loads('{"text": "abc')),
        "zlib": Kind("data", lambda _: zlib.decompress(b"x" * 64)),
        "gzip": Kind("data", _bad_gzip),
        "gzip_cut": Kind("data", _cut_gzip),
        "csv": Kind("data", _nul_csv),
        "tar": Kind("data", _bad_tar),
        "struct": Kind("data", lambda _: struct.unpack("<Q", b"1234")),
        "npy": Kind("data", _bad_npy),
        "number": Kind("data", lambda _: int("12a")),
        "zip": Kind("data", lambda m: zipfile.ZipFile(_file(m, "images.zip", b"PK" + os.urandom(99)))),
        "xml": Kind("data", lambda _: ElementTree.fromstring("<a><b></a>")),  # noqa: S314 - our own
        "wave": Kind("data", lambda m: wave.Wave_read(str(_file(m, "clip-19.wav", os.urandom(99))))),
        "database": Kind("data", _bad_database),
        "loader": Kind("data", lambda _: _loader(['{"tokens": [1]}', '{"tokens": '], 1), of=TORCH),
        "loader_sizes": Kind("data", lambda _: _loader(['{"tokens": [1]}', '{"tokens": [1, 2]}'], 0), of=TORCH),
        "loader_empty": Kind("data", lambda _: _loader([], 0), of=TORCH),
        "loader_field": Kind("data", lambda _: _loader(['{"tokens": [1]}', '{"toks": [1]}'], 1), of=TORCH),
        "loader_killed": Kind("memory", _killed_loader, of=TORCH),
        "loss": Kind("numerics", _loss),
        "loss_words": Kind("numerics", _stopped_by_loss),
        "clip": Kind("numerics", _clip, of=TORCH),
        "anomaly": Kind("numerics", _anomaly, of=TORCH),
        "normal": Kind("numerics", lambda _: _torch().distributions.Normal(_torch().tensor(math.nan), 1.0), of=TORCH),
        "multinomial": Kind("numerics", lambda _: _torch().multinomial(_torch().tensor([math.nan, 1.0]), 1), of=TORCH),
        "cholesky": Kind("numerics", lambda _: _torch().linalg.cholesky(-_torch().eye(2)), of=TORCH),
        "math_overflow": Kind("numerics", lambda _: math.exp(1e4)),
        "numpy_overflow": Kind("numerics", _numpy_overflow),
        "debug_nans": Kind("numerics", _debug_nans, of=JAX),
        "nan_to_int": Kind("numerics", lambda _: int(math.nan)),
        "bytes": Kind("memory", lambda _: bytearray(HUGE)),
        "tensor": Kind("memory", lambda _: _torch().empty(HUGE), of=TORCH),
        "array": Kind("memory", lambda _: _numpy().empty(HUGE)),
        "jax_array": Kind("memory", lambda _: _jnp().zeros(HUGE // 4, dtype="int8").block_until_ready(), of=JAX),
        "map": Kind("memory", lambda _: mmap.mmap(-1, 1 << 46)),
        "limit": Kind("memory", _little_memory),
        "out_of_memory": Kind("memory", _out_of_memory),
        "bus": Kind("memory", _bus),
        "shared_tensor": Kind("memory", _shared_tensor, of=TORCH),
        "disk_full": Kind(
            "storage", lambda m: (m.full / f"{m.framework}-step-{os.getpid()}.ckpt").write_bytes(b"x" * (8 << 20))
        ),
        "save_full": Kind("storage", _save_full, of=TORCH),
        "too_large": Kind("storage", _too_large),
        "no_right": Kind("storage", _no_right),
        "read_only": Kind("storage", lambda m: (m.read_only / "step-100").mkdir()),
        "no_checkpoint": Kind("storage", lambda m: (m.folder / "step-000100.ckpt").read_bytes()),
        "no_folder": Kind("storage", lambda _: list(Path("/mnt/checkpoints/run-7").iterdir())),
        "truncated": Kind("storage", _truncated, of=TORCH),
        "empty_checkpoint": Kind("storage", lambda m: _torch().load(_file(m, "step-000100.pt", b"")), of=TORCH),
        "garbage": Kind("storage", _garbage),
        "many_files": Kind("storage", _many_files),
        "input_output": Kind("storage", _input_output_error),
        "no_restore": Kind("storage", _tensorstore, of=JAX),
        "bucket_gone": Kind("storage", _bucket(b"")),
        "bucket_busy": Kind("storage", _bucket(b"HTTP/1.0 503 Slow Down\r\nContent-Length: 0\r\n\r\n")),
        "bucket_cut": Kind("storage", _bucket(b"HTTP/1.0 200 OK\r\nContent-Length: 999\r\n\r\nabc")),
        "no_module": Kind("launch", lambda _: importlib.import_module("flash_attn"), "start"),
        "no_name": Kind("launch", lambda _: exec("from json import fast_loads", {}), "start"),  # noqa: S102
        "syntax": Kind("launch", _broken_module, "start"),
        "unknown_argument": Kind("launch", _arguments("--data", "d", "--bogus"), "start"),
        "missing_argument": Kind("launch", _arguments("--lr", "0.1"), "start"),
        "bad_argument": Kind("launch", _arguments("--data", "d", "--lr", "fast"), "start"),
        "variable": Kind("launch", lambda _: os.environ["DATA_ROOT"], "start"),
        "rank_variable": Kind("launch", _no_variable, "start", TORCH),
        "no_program": Kind("launch", _shell("sh", "-c", "exec train-llm --lr 0.1"), "start"),
        "not_executable": Kind("launch", _shell("sh", "-c", "/etc/hostname --lr 0.1"), "start"),
        "no_script": Kind("launch", _shell(sys.executable, "/opt/train/main.py"), "start"),
        "no_python_module": Kind("launch", _shell(sys.executable, "-m", "trainer.main"), "start"),
        "unset_in_shell": Kind("launch", _shell("sh", "-uc", 'echo "$MODEL_NAME"'), "start"),
        "library": Kind("launch", lambda _: ctypes.CDLL("libcudart.so.12"), "start"),
        "port": Kind("launch", _taken_port, "start", TORCH, rank=0, alone=True),
        "no_nccl": Kind("launch", _other_backend, "start", TORCH),
        "hang": Kind("collective", lambda _: time.sleep(FOR_EVER_S), hangs=True, alone=True),
        "stopped": Kind("collective", _kill(signal.SIGSTOP), hangs=True, alone=True),
        "absent": Kind("collective", lambda _: time.sleep(FOR_EVER_S), "start", TORCH, hangs=True, alone=True),
        "child_hangs": Kind(
            "collective", lambda _: subprocess.run(["sleep", "60"], check=True), hangs=True, alone=True
        ),
        "shut": Kind("collective", _shut, of=TORCH, alone=True),
        "killed": Kind("outside", _kill(signal.SIGKILL)),
        "terminated": Kind("outside", _kill(signal.SIGTERM)),
        "interrupted": Kind("outside", _kill(signal.SIGINT)),
        "hung_up": Kind("outside", _kill(signal.SIGHUP)),
        "term_exits": Kind("outside", _handled(signal.SIGTERM, lambda: sys.exit(143))),
        "term_raises": Kind("outside", _handled(signal.SIGTERM, lambda: _raise(RuntimeError("received SIGTERM")))),
        "term_exits_1": Kind("outside", _handled(signal.SIGTERM, lambda: sys.exit("terminated by signal 15"))),
    }
)
