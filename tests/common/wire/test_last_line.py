"""The last words of a worker: the line that a person would search for, without controls and secrets."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inplace.agent.report.log_line import log_line
from inplace.common.wire.last_line import (
    BYTES_MAX,
    READ_CHARACTERS_MAX,
    clean_line,
    is_peers_sign,
    last_line_of,
    last_line_text,
    told_line_of,
)

CUDA = (
    "Traceback (most recent call last):\n"
    '  File "/work/train.py", line 88, in step\n'
    "    loss.backward()\n"
    "RuntimeError: CUDA error: uncorrectable ECC error encountered\n"
    "CUDA kernel errors might be asynchronously reported at some other API call.\n"
    "Compile with `TORCH_USE_CUDA_DSA` to enable device-side assertions.\n\n"
)
ELASTIC = (
    "ValueError: expected 4 GPUs, saw 3\n"
    "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: \n"
    "============================================================\n"
)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (CUDA, "RuntimeError: CUDA error: uncorrectable ECC error encountered"),
        (ELASTIC, "ValueError: expected 4 GPUs, saw 3"),
        (
            "[rank0]: torch.OutOfMemoryError: CUDA out of memory\n",
            "[rank0]: torch.OutOfMemoryError: CUDA out of memory",
        ),
        ("step 1\nsegmentation fault (core dumped)\n\n======\n", "segmentation fault (core dumped)"),
        ("a\nKeyError: 1\n" + log_line(1.0, "info", "worker_exited", {"exit_code": 1}), "KeyError: 1"),
        ("", ""),
        ("\n \x00\n---\n", ""),
    ],
)
def test_the_line_to_search_for_is_found(text: str, line: str) -> None:
    """An exception's, or else the last with a word in it; no line of ours."""
    assert last_line_of(text) == line


SECRETS = [
    "OSError: cannot open https://user:hunter2@host/data",
    "s3://AKIA1234567890ABCD:hunter2@bucket failed",
    "password=hunter2 is wrong",
    "PGPASSWORD: hunter2",
    "db_passwd = 'hunter2 and more'",
    '{"password": "hunter2"}',
    "HF_TOKEN=hunter2",
    "token: hunter2, then",
    "WANDB_API_KEY=hunter2",
    "aws_secret_access_key = hunter2",
    "Authorization: Bearer hunter2hunter2",
    "Authorization: Basic hunter2hunter2",
    "https://bucket/file?X-Amz-Signature=hunter2&more=1",
    "login failed for hf_hunter2hunter2hunter2",
    "ghp_hunter2hunter2hunter2 is expired",
    "sk-hunter2hunter2hunter2",
    "eyJhunter2.hunter2hunter2.hunter2",
    "key hunter2AbcdefghijklmnopqrstuvwxyzABCDEFGHIJKL is revoked",
    "\x1b[31mpass\x1b[0mword=hunter2",
    "-----BEGIN PRIVATE KEY----- hunter2MIIEvAIBADANBgkqhkiG9w0BAQEFAASCBKYwggS",
]


@pytest.mark.parametrize("text", SECRETS)
def test_what_looks_like_a_secret_is_hidden(text: str) -> None:
    """Passwords, keys, tokens, and credentials in URLs."""
    line = last_line_of(text)
    assert "***" in line
    assert "hunter2" not in line


@pytest.mark.parametrize(
    "text",
    [
        "RuntimeError: CUDA error: uncorrectable ECC error encountered",
        "ValueError: max_tokens=4096 is more than the tokenizer has",
        "FileNotFoundError: [Errno 2] No such file or directory: '/data/shard-00017-of-02048.tar'",
        "KeyError: 'model.layers.0.self_attn.q_proj.weight'",
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 GiB",
        "undefined symbol: _ZN2at6native29vectorized_elementwise_kernelILi4ENS0_11FillFunctorIfEE",
    ],
)
def test_other_lines_stay_as_they_are(text: str) -> None:
    """A line that hides nothing is of use."""
    assert last_line_of(text) == text


@given(st.text(max_size=600))
def test_it_is_one_short_printable_line(text: str) -> None:
    """Whatever was written."""
    for line in (last_line_of(text), clean_line(text)):
        assert len(line.encode()) <= BYTES_MAX
        assert line.isprintable()


@pytest.mark.parametrize("unit", ["x", "token=", "://", "a1B", "'", "Error: ", "\x1b[", "\x1b]", "é", "0", " = "])
def test_a_long_line_takes_no_time(unit: str) -> None:
    """A gigabyte without a line break is cut before any pattern sees it, and patterns are linear in the rest."""
    began_s = time.process_time()
    last_line_of(unit * (READ_CHARACTERS_MAX * 4 // len(unit)))
    assert time.process_time() - began_s < 0.5


def test_what_is_cut_ends_with_dots() -> None:
    """And a character is never cut in two."""
    line = clean_line("é" * 300)
    assert line.endswith("é...")
    assert BYTES_MAX - 1 <= len(line.encode()) <= BYTES_MAX


@pytest.mark.parametrize(
    "line",
    [
        "ConnectionResetError: [Errno 104] Connection reset by peer",
        "BrokenPipeError: [Errno 32] Broken pipe",
        "RuntimeError: [/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:534] Connection closed by peer [::1]:1",
        "torch.distributed.DistBackendError: NCCL error in: x.cpp:1, remote process exited or a network error",
        "torch.distributed.DistStoreError: Timed out after 61 seconds waiting for clients. 1/2 clients joined.",
        "jax.errors.JaxRuntimeError: DEADLINE_EXCEEDED: Barrier timed out. Id: shutdown",
        "jaxlib.xla_extension.XlaRuntimeError: UNAVAILABLE: Some tasks are unhealthy (stopped sending heartbeats)",
        "torch.distributed.elastic.multiprocessing.api.SignalException: Process 77 got signal: 15",
        "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: ",
        "RuntimeError: Some NCCL operations have failed or timed out.",
    ],
)
def test_signs_of_a_peer_are_known(line: str) -> None:
    """As gloo, NCCL, JAX, torchrun and Python write them."""
    assert is_peers_sign(line)


@pytest.mark.parametrize(
    "line",
    [
        "",
        "ValueError: bad sample 4711",
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB",
        "RuntimeError: CUDA error: an illegal memory access was encountered",
        "FileNotFoundError: [Errno 2] No such file or directory: 'peers.json'",
        "TimeoutError: the data loader gave no batch for 30 s",
        "RuntimeError: DataLoader worker (pid 77) is killed by signal: Killed.",
        "KeyError: 'connection'",
        "AssertionError: expected rank 3 to have 8 shards, saw 7",
    ],
)
def test_a_ranks_own_words_are_no_sign_of_a_peer(line: str) -> None:
    """Neither are words that only look like it."""
    assert not is_peers_sign(line)


@given(epoch=st.integers(1, 2**31 - 1), at_s=st.floats(0, 9e9), line=st.text(max_size=300))
def test_a_told_line_is_read_as_it_was_written(epoch: int, at_s: float, line: str) -> None:
    """With its moment, and clean; of another epoch it says nothing. deploy/admission has the bound."""
    text = last_line_text(epoch, at_s, line)
    told = told_line_of(text, epoch)
    assert told is not None
    assert told.line == clean_line(line)
    assert told.at_s == pytest.approx(at_s, abs=0.001)
    assert told_line_of(text, epoch + 1) is None
    assert len(text.encode()) <= 256


@pytest.mark.parametrize(
    "text", ["", "v1,epoch=1,line=x", "v1,epoch=01,at=1790000000123,line=x", "v1,epoch=1,at=1,line="]
)
def test_another_spelling_tells_no_line(text: str) -> None:
    """Garbage costs the line."""
    assert told_line_of(text, 1) is None
