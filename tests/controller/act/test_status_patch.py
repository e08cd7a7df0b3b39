"""A status patch removes the fields of an earlier restart."""

from __future__ import annotations

from typing import Any

import pytest

from inplace.controller.act.reconcile import status_patch
from tests.cli.scenes import all_work, status, training, until

pytestmark = pytest.mark.virtual_time


@pytest.mark.parametrize(
    ("stored", "wanted", "patch"),
    [
        ({}, {"a": 1}, {"a": 1}),
        ({"a": 1, "b": 2}, {"a": 3}, {"a": 3}),
        ({"a": {"x": 1, "y": 2}}, {"a": {"x": 3}}, {"a": {"x": 3, "y": None}}),
        ({"a": {"x": {"u": 1, "v": 2}}}, {"a": {"x": {"u": 1}}}, {"a": {"x": {"u": 1, "v": None}}}),
        ({"a": [1, 2]}, {"a": [3]}, {"a": [3]}),
        ({"a": 1}, {"a": {"x": 1}}, {"a": {"x": 1}}),
    ],
)
def test_a_field_is_replaced_whole(stored: dict[str, Any], wanted: dict[str, Any], patch: dict[str, Any]) -> None:
    """A patch removes an object's fields that the new value lacks; fields outside the patch stay."""
    assert status_patch(stored, wanted) == patch


async def test_a_restart_does_not_inherit_the_end_of_the_one_before() -> None:
    """During the second restart the status has no syncedAt of the first one, although the server merges."""
    async with training() as cluster:
        for epoch in (2, 3):
            cluster.kill_worker("default", cluster.pods()[0]["metadata"]["name"])
            await until(cluster, lambda epoch=epoch: status(cluster).get("deprecatedEpoch") == epoch - 1)  # type: ignore[misc]
            entry = status(cluster)["lastGroupRestart"]
            assert (entry["epoch"], "syncedAt" in entry) == (epoch, False)
            await until(cluster, lambda epoch=epoch: status(cluster).get("syncedEpoch") == epoch)  # type: ignore[misc]
            assert status(cluster)["lastGroupRestart"]["syncedAt"] > entry["startedAt"]
            await until(cluster, lambda: all_work(cluster, 4))
