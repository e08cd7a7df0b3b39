"""What a definition without our schema may store: a value of any type at any place of a JobSet's spec."""

from __future__ import annotations

import json
from random import Random

import msgspec
import pytest

from inplace.common.jobset.jobset import parse_jobset
from inplace.common.jobset.stored import JOBSET_CODEC
from inplace.common.kube.resources import KubeObject
from inplace.common.protocol.errors import RemoteProtocolError
from inplace.controller.plan.actions import CreateJob
from inplace.controller.plan.problems.report import known_problems
from tests.cli.injecting import example, jobset_of
from tests.cli.mutations import mutated
from tests.controller.act.test_job_settings import ADDS
from tests.controller.objects import with_identity

CASES = 200  # of each example
EXAMPLES = ("plain.yaml", "train.yaml", "volume-claims.yaml", "partial-restart-group.yaml")


def is_refused(stored: KubeObject) -> bool:
    """Return whether a JobSet has not its form; of one that has it the Jobs are made, and the problems found."""
    try:
        jobset = parse_jobset(stored)
        _ = jobset.scopes
    except RemoteProtocolError:
        return True
    known_problems(jobset)
    for job in jobset.replicated_jobs:
        ADDS.manifest_of(CreateJob(jobset, job, 0))
    return False


@pytest.mark.attack
@pytest.mark.parametrize("name", EXAMPLES)
def test_a_jobset_is_refused_by_its_form_or_its_jobs_can_be_made(name: str) -> None:
    """Nothing fails in the middle of a pass, and both happen often."""
    rng, refused = Random(48), list[bool]()
    whole = with_identity(jobset_of(example(name)))
    for _ in range(CASES):
        body = json.dumps(whole | {"spec": mutated(rng, whole["spec"])}).encode()
        try:
            stored = JOBSET_CODEC.decode(body)
        except (msgspec.DecodeError, ValueError):
            continue  # NaN, or half a character: no server sends them, and the informer passes them over
        refused.append(is_refused(stored))
    assert CASES // 10 < sum(refused) < len(refused) - CASES // 10
