"""A JobSet in the cache costs about its JSON, and reads as the whole object does."""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings

from inplace.common.jobset.jobset import JobSet, parse_jobset
from inplace.common.jobset.stored import JOBSET_CODEC
from inplace.common.kube.resources import KubeObject
from inplace.common.protocol.errors import RemoteProtocolError
from inplace.common.wire import names as wire
from inplace.controller.plan.jobs import build_claim, build_job
from inplace.controller.plan.problems.report import known_problems
from tests.controller.manifests import changed, jobset, replicated_job
from tests.controller.random_specs import manifests

BYTES = 1_000_000
META = {"uid": "u", "resourceVersion": "1", "managedFields": [{"manager": "kubectl"}], "labels": {"a": "b"}}


def heavy() -> bytes:
    """Return a JobSet of a megabyte of short strings, as a server sends it."""
    env = [{"name": f"N{number}", "value": str(number)} for number in range(BYTES // 36)]
    template = {"spec": {"containers": [{"name": "worker", "image": "worker:1", "env": env}]}}
    manifest = jobset(jobs=[replicated_job(template=template)], suspend=True)
    return msgspec.json.encode(changed(manifest, "metadata", manifest["metadata"] | META))


@pytest.mark.parametrize("way", ["list", "watch", "answer"])
def test_a_cached_jobset_costs_its_json(way: str) -> None:
    """A JobSet of a megabyte takes little more memory than that, also parsed and planned."""
    data = heavy()
    line = b'{"type":"ADDED","object":' + data + b"}"
    answer = msgspec.json.decode(data)
    tracemalloc.start()
    before, _ = tracemalloc.get_traced_memory()
    ways: dict[str, Callable[[], KubeObject]] = {
        "list": lambda: JOBSET_CODEC.decode(data),
        "watch": lambda: JOBSET_CODEC.decode_change(line).object,
        "answer": lambda: JOBSET_CODEC.convert(answer),
    }
    kept = ways[way]()
    read = parse_jobset(kept)
    assert list(known_problems(read)) == []
    gc.collect()
    after, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(data) <= after - before + 10_000 < 1.1 * len(data)


def as_told(read: JobSet) -> list[object]:
    """Return the Jobs, claims and problems of a JobSet."""
    jobs = [build_job(read, job, 0) for job in read.replicated_jobs]
    return [jobs, [build_claim(read, claim) for claim in read.claims], list(known_problems(read)), read.status]


@settings(max_examples=100)
@given(manifests())
def test_what_is_read_from_the_cache_is_what_the_object_says(manifest: KubeObject) -> None:
    """A JobSet kept as bytes gives the same Jobs, claims and problems as the whole object."""
    manifest = changed(manifest, "metadata", manifest["metadata"] | META)
    kept = JOBSET_CODEC.decode(msgspec.json.encode(manifest))
    assert as_told(parse_jobset(kept)) == as_told(parse_jobset(manifest))
    assert JOBSET_CODEC.convert(kept) == kept
    assert not {"managedFields", "labels"} & kept["metadata"].keys()


@pytest.mark.parametrize(
    ("path", "value", "words"),
    [
        ("spec", ["x"], "spec: expected a mapping, saw a list"),
        ("spec.replicatedJobs", {"name": "a"}, "spec.replicatedJobs: expected a list, saw a mapping"),
        ("spec.replicatedJobs.0", "a", "spec.replicatedJobs[0]: expected a mapping, saw a text"),
        ("spec.replicatedJobs.0.template", "t", "spec.replicatedJobs[0].template: expected a mapping, saw a text"),
        (
            "spec.replicatedJobs.0.template.spec.parallelism",
            "many",
            "[0].template.spec.parallelism: expected a whole number, saw a text",
        ),
        ("spec.replicatedJobs.0.replicas", -1, "spec.replicatedJobs[0].replicas: expected a whole number >= 0"),
        (
            "spec.replicatedJobs.0.template.spec.template.spec.containers.0.env",
            "A=1",
            "env: expected a list, saw a text",
        ),
        ("spec.volumeClaimPolicies", {}, "spec.volumeClaimPolicies: expected a list, saw a mapping"),
        (
            "spec.volumeClaimPolicies",
            [{"templates": [{}]}],
            "spec.volumeClaimPolicies[0].templates[0]: expected `metadata`, saw none",
        ),
        ("metadata.annotations", ["x"], "metadata.annotations: expected a mapping, saw a list"),
        ("status", "x", "status: expected a mapping, saw a text"),
    ],
)
def test_what_has_not_the_form_is_refused_with_its_path(path: str, value: Any, words: str) -> None:
    """A JobSet of a wrong form is kept, so that its owner gets a message with the path in the whole object."""
    manifest = changed(jobset(), path, value)
    manifest["metadata"] |= META
    kept = JOBSET_CODEC.decode(msgspec.json.encode(manifest))
    with pytest.raises(RemoteProtocolError) as refused:
        parse_jobset(kept)
    assert words in str(refused.value)


def test_a_template_is_nobodys_to_change() -> None:
    """Each Job is built from its own copy of the template."""
    read = parse_jobset(JOBSET_CODEC.decode(heavy()))
    (job,) = read.replicated_jobs
    build_job(read, job, 0)["spec"]["template"]["spec"]["containers"].clear()
    assert build_job(read, job, 0)["spec"]["template"]["spec"]["containers"]
    assert job.form.annotations == {}
    assert wire.DISABLE not in read.annotations
