"""The largest and the nastiest objects of a namespace do not stop the controller, on a real kube-apiserver."""

from __future__ import annotations

import asyncio
from dataclasses import replace

from benchmarks.hostile import TOGETHER, measure, parser
from testbed.binaries import Binaries

ARGUMENTS = ("--backend", "real", "--seconds", "2", "--jobsets", "100", "--pods", "1000", "--heavy-bytes", "50000")
"""Small enough that kube-apiserver keeps up: it works 0.7 s on each write of a JobSet with 200 kB of variables, whose
managed fields name each of them."""

OTHERS_BESIDE = 3  # allowed slowdown of restarts and new JobSets: other tests and their API servers share the cores


def test_no_object_of_one_namespace_holds_the_controller_up(binaries: Binaries) -> None:
    """The benchmark's bounds hold under each attack, and under all of them together.

    New JobSets of another namespace came beside nothing, and beside the 60 that make 1,200 Jobs.
    """
    del binaries  # they are there
    rows = asyncio.run(measure(parser().parse_args(ARGUMENTS)))
    assert [row.object for row in rows if row.new_jobs] == ["nothing", "number: 60 JobSets of 20 Jobs in one namespace"]
    assert rows[-1].object == TOGETHER
    alone = [
        replace(
            row,
            restart_beside_ms=row.restart_beside_ms / OTHERS_BESIDE,
            new_job_ms=None if row.new_job_ms is None else row.new_job_ms / OTHERS_BESIDE,
        )
        for row in rows
    ]
    assert [row for row in alone if not row.is_within] == []
    assert all(row.created or row.refused for row in rows[1:])
    assert {row.object for row in rows[1:] if not row.created} == {"slots: one Job of 2^31-1", "Jobs: 2^31-1 replicas"}
