"""The modelled herd: the claims of docs/adr/0010 that need no cluster."""

from __future__ import annotations

import pytest

from agent.herd import GROUP_FREE
from benchmarks.herd_model import REQUESTS_PER_START, ModelServer, simulate


@pytest.mark.parametrize("server_per_s", [300.0, 1000.0, 10_000.0])
def test_a_group_without_a_window_is_not_rejected(server_per_s: float) -> None:
    """GROUP_FREE Pods that start in one instant fit into the default queues of any server."""
    assert simulate(GROUP_FREE, server_per_s, started_within_s=0.0).rejected == 0.0


WINDOW_OF_ONE_SERVER_S = 12.0  # START_WINDOW_S for 5,000 Pods on one API server: a quarter of it, 3 s


def test_slots_keep_five_thousand_out_of_one_large_servers_way() -> None:
    """A server of 10,000 requests per second rejects none of 5,000 with slots, and many without; the cost is 3 s."""
    slots = simulate(5000, 10_000.0, window_s_max=WINDOW_OF_ONE_SERVER_S)
    none = simulate(5000, 10_000.0, window_s_max=0.0)
    assert slots.rejected == 0.0
    assert none.rejected > 0.1
    assert slots.done_s < 1.0 + 3.0 + 0.1


def test_slots_make_a_restart_of_5000_supervisors_faster() -> None:
    """5,000 patches in one instant are mostly rejected by a large server, and late; spread over 0.75 s none is."""
    slots = simulate(5000, 10_000.0, restart=True, started_within_s=0.1)
    none = simulate(5000, 10_000.0, restart=True, started_within_s=0.1, window_s_max=0.0)
    assert slots.rejected == 0.0
    assert none.rejected > 0.5
    assert slots.done_s < 1.0 < none.done_s


@pytest.mark.parametrize("server_per_s", [300.0, 1000.0, 3000.0])
def test_slots_spare_a_small_server(server_per_s: float) -> None:
    """Where rejections cannot be avoided, slots take a fifth of them away, and all are ready in bounded time."""
    ours = simulate(5000, server_per_s, window_s_max=WINDOW_OF_ONE_SERVER_S)
    plain = simulate(5000, server_per_s, window_s_max=0.0)
    assert ours.rejected < 0.8 * plain.rejected
    assert ours.done_s < 3 * 5000 * REQUESTS_PER_START / server_per_s


def test_the_model_rejects_what_has_no_room() -> None:
    """The room is filled in one instant and empties at the service rate."""
    server = ModelServer(rate_per_s=100.0, room=10)
    answers = [server.serve(0.0) for _ in range(12)]
    assert [answer is None for answer in answers] == [False] * 10 + [True] * 2
    assert answers[9] == pytest.approx(0.1)
    assert server.serve(0.05) is not None


def test_the_models_retry_after_doubles_and_falls() -> None:
    """Three rejections per second double it; a quiet second takes one off."""
    server = ModelServer(rate_per_s=0.001, room=0)
    seen = []
    for second in range(6):
        for _ in range(100):
            assert server.serve(second + 0.5) is None
        seen.append(server.retry_after_s)
    assert seen == [1, 2, 2, 4, 4, 4]
    server.serve(60.0)
    assert server.retry_after_s == 1
