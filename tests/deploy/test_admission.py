"""The admission policies on the embedded API server; tests/cluster/test_admission_real.py has them on a real one."""

from typing import TypeVar

import pytest

from inplace.common.kube.client import KubeClient
from inplace.common.kube.errors import ApiError
from inplace.common.kube.resources import JOBSETS
from inplace.simulator.cluster.virtual_time import run
from tests.controller.manifests import changed
from tests.deploy.admission import policies
from tests.deploy.crd_cases import CREATES, UPDATES, Create, Update, crd
from tests.deploy.policy_cases import POLICY_CREATES, POLICY_UPDATES
from tests.deploy.refusals import client_of, create_refusal, refusal, update_refusal, words_missing
from tests.deploy.spec_cases import SPEC_CREATES, SPEC_UPDATES
from tests.deploy.spelling_cases import CHANGED, SPELLED, Pair

pytestmark = pytest.mark.virtual_time

Case = TypeVar("Case", Create, Update)


def client() -> KubeClient:
    """Return a client of a new server that has the CRD and the policies."""
    return client_of(crd(), *policies("jobsets.yaml", "immutable.yaml"))


def accepted(cases: tuple[Case, ...]) -> tuple[Case, ...]:
    """Return the cases that the CRD accepts; the policies must accept them too."""
    return tuple(case for case in cases if not case.words)


@pytest.mark.slow
@pytest.mark.parametrize("case", POLICY_CREATES + accepted(CREATES + SPEC_CREATES), ids=lambda case: case.claim)
async def test_create(case: Create) -> None:
    """A manifest is accepted, or refused with the path, what was found and the way there."""
    assert words_missing(case.words, await create_refusal(client(), case)) == []


@pytest.mark.slow
@pytest.mark.parametrize("case", POLICY_UPDATES + accepted(UPDATES + SPEC_UPDATES), ids=lambda case: case.claim)
async def test_update(case: Update) -> None:
    """A suspended JobSet may change what Kueue changes, and nothing else."""
    assert words_missing(case.words, await update_refusal(client(), case)) == []


@pytest.mark.slow
@pytest.mark.parametrize("pair", SPELLED, ids=lambda pair: pair.claim)
def test_another_spelling_is_no_change(pair: Pair) -> None:
    """Either spelling may follow the other, whether the JobSet runs or is suspended."""
    assert run(refusals(pair)) == [None] * 4


@pytest.mark.slow
@pytest.mark.parametrize("pair", CHANGED, ids=lambda pair: pair.claim)
def test_a_change_is_refused(pair: Pair) -> None:
    """A real change of a value is refused with its path and the allowed changes, suspended or not."""
    said = run(refusals(pair))
    assert [words_missing(("field is immutable", "suspended", "create a new JobSet"), each) for each in said] == [
        []
    ] * 4


async def refusals(pair: Pair) -> list[ApiError | None]:
    """Return the API's refusal of each of the pair's updates; None for an accepted one."""
    api, said = client(), list[ApiError | None]()
    for manifest, value in pair.manifests():
        stored = await api.create(JOBSETS, "default", manifest)
        update = changed(stored, pair.path, value)
        said.append(await refusal(api.replace(JOBSETS, "default", stored["metadata"]["name"], update)))
    return said
