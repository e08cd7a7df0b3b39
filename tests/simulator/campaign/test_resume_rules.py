"""The judge of groups that save steps, one start of two at a time."""

from __future__ import annotations

from random import Random

import pytest

from inplace.simulator.campaign.resume_rules import R1, R2, R3, ResumeRules
from inplace.simulator.campaign.scenario import draw_scenario
from inplace.simulator.campaign.steps import Copy

OWN, SHARED = "v1,epoch=2,all=2,seen=9,local=7", "v1,epoch=2,all=2,seen=9,shared=6"
MINE = Copy(1, ("", ""), None)


@pytest.mark.parametrize(
    ("text", "steps", "copies", "broken"),
    [
        (OWN, (7, 7), (MINE, MINE), ""),
        (OWN, (7, None), (MINE, MINE), R1),
        (OWN, (6, 6), (MINE, MINE), R1),
        ("", (7, 7), (MINE, MINE), R1),
        (OWN, (7, 7), (MINE, None), R2),
        (OWN, (7, 7), (MINE, MINE._replace(made=0)), R2),
        (OWN, (7, 7), (MINE, MINE._replace(rank=1)), R2),
        (OWN, (7, 7), (MINE, MINE._replace(size=3)), R2),
        (SHARED, (6, 6), (None, None), ""),
        (SHARED.replace("6", "5"), (5, 5), (MINE, MINE), R3),
    ],
)
def test_the_start_of_a_worker_is_judged(
    text: str, steps: tuple[int | None, ...], copies: tuple[Copy | None, ...], broken: str
) -> None:
    """Each worker must be told what the list says, and have it: its own part of one whole, or one on storage."""
    rules = list[str]()
    judge = ResumeRules(lambda rule, _: rules.append(rule))
    judge.observe({"metadata": {"uid": "js"}, "status": {"syncedEpoch": 2, "members": text}}, 2)
    for step, copy in zip(steps, copies, strict=True):
        judge.judge("js", "a pod", step, Copy(2, ("", ""), 2), {} if copy is None else {7: copy}, {6})
    assert rules[:1] == [broken][: bool(broken)]


def test_some_groups_of_the_campaign_save_steps() -> None:
    """Of ordinary seeds one in eight at least; some of them have spares."""
    drawn = [draw_scenario(Random(f"{seed}/scenario")) for seed in range(400)]
    saving = [scenario for scenario in drawn if scenario.share_every]
    assert len(saving) > 50
    assert any(scenario.members is not None for scenario in saving)
