"""A Pod tells each thing once, and nothing that the group knows; a busy rank of another Pod excuses its worker."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from random import Random
from typing import Any

import pytest

from inplace.agent.announce.notice_sender import AGAIN_S, PATIENCE, NoticeSender
from inplace.agent.announce.report_delay import report_delay_s
from inplace.agent.deps import AgentDeps
from inplace.agent.report.metrics import AgentMetrics
from inplace.agent.settings.config import AgentConfig
from inplace.common.bare.record import replace
from inplace.common.kube.clock import LoopClock
from inplace.common.kube.http.request import Request, Response, TransportError
from inplace.common.protocol.learned_limit import STEPS_MIN, LearnedLimits
from inplace.common.protocol.rank import FIRST_STEPS, RankLook, RankNumbers, RankState, StallSettings
from inplace.common.protocol.stall import Silence, StallPhase, StallState
from inplace.common.wire.names import NOTICE
from inplace.common.wire.notice import BUSY, LISTED_MAX, LOSS, PAUSE, SLOW, STALL, STEPS, Notice, parse_notice
from inplace.simulator.campaign.containers import QUIET
from inplace.simulator.cluster.model_agent import ModelBarrier

ENV = {"NAMESPACE": "ns", "POD_NAME": "p-3", "JOBSET_NAME": "train"}
BAD = RankNumbers(bad=20, bad_since=1200)
SLOWER = RankNumbers(recent_s=3.1, before_s=1.0, waits=True)
STALL_S = 60.0
pytestmark = pytest.mark.virtual_time


class Excused:
    """The watchdog's end."""

    def __init__(self) -> None:
        self.for_s: list[float] = []

    def excuse(self, for_s: float) -> None:
        """Note it."""
        self.for_s.append(for_s)


class Server:
    """Answers each PATCH with the next code; None is a lost connection."""

    def __init__(self, *codes: int | None) -> None:
        self.codes = list(codes)
        self.told: list[tuple[float, Notice]] = []

    async def request(self, request: Request, *, timeout_s: float) -> Response:
        """Take a PATCH of this Pod's annotation."""
        annotations = json.loads(request.body)["metadata"]["annotations"]
        assert request.path.startswith("/api/v1/namespaces/ns/pods/p-3?")
        assert list(annotations) == [NOTICE]
        self.told.append((asyncio.get_running_loop().time(), parse_notice(annotations[NOTICE])))
        code = self.codes.pop(0) if self.codes else 200
        if code is None:
            raise TransportError("no route", sent=True)
        return Response(code, {"retry-after": "5"} if code == 429 else {}, b"{}")


class Scene:
    """One agent's sender in epoch 3."""

    def __init__(self, server: Server, scope: str = "") -> None:
        self.server, self.stalls, self.metrics, self.epoch = server, Excused(), AgentMetrics(), 3
        config = replace(AgentConfig.from_env(ENV), restart_scope=scope)
        deps = AgentDeps(
            transport=server,  # type: ignore[arg-type]
            clock=LoopClock(),
            rng=Random(1),
            barrier=ModelBarrier(),
            log=QUIET,
            metrics=self.metrics,
            stalls=self.stalls,  # type: ignore[arg-type]
        )
        self.patches = deps.patches
        deps.tasks = asyncio.get_running_loop()  # type: ignore[assignment]
        self.sender = NoticeSender(config, deps, epoch=lambda: self.epoch)

    def look(self, numbers: RankNumbers | None = None, *, busy_for_s: float = 0.0) -> None:
        """Take a look at one rank."""
        seen = RankLook("rank-17", changed=True, step=1300, numbers=numbers)
        if busy_for_s:
            seen = replace(seen, busy="checkpoint", busy_s_max=600)
        state = StallState(
            StallSettings(STALL_S), StallPhase.WATCHING, epoch=3, watched_s=busy_for_s, ranks=(RankState(seen, 0.0),)
        )
        self.sender.take_look(state)

    def silence(self, last_step: int, silent_s: float, *, is_over: bool = False) -> None:
        """Take a look at a rank that makes no step, or made one again."""
        changed_s = 5_000.0 if is_over else 5_000.0 - silent_s
        rank = RankState(RankLook("rank-17", changed=True, step=last_step + is_over), changed_s, FIRST_STEPS)
        state = StallState(
            StallSettings(),
            StallPhase.WATCHING,
            epoch=3,
            watched_s=5_000.0,
            was_heard=True,
            ranks=(rank,),
            learned=LearnedLimits(step_s=10.0, steps=STEPS_MIN),
            pause=Silence("rank-17", last_step, silent_s, 300.0) if is_over else None,
        )
        self.sender.take_look(state)

    async def after(self, seconds: float) -> Sequence[Notice]:
        """Return what was told so far, some time later."""
        await asyncio.sleep(seconds)
        return [notice for _, notice in self.server.told]


def entry(kind: str, pod: str = "p-9", value: object = 60, **fields: Any) -> dict[str, Any]:
    """Return an entry of status.notices."""
    return {
        "kind": kind,
        "epoch": 3,
        "pod": pod,
        "value": value,
        "rank": "rank-0",
        "at": "2026-01-01T00:00:00Z",
    } | fields


async def test_each_kind_is_told_once_in_an_epoch() -> None:
    """However often it is seen; with the rank and the step."""
    scene = Scene(Server())
    for _ in range(3):
        scene.look(replace(BAD, recent_s=3.1, before_s=1.0, waits=True))
        await scene.after(1.0)
    told = await scene.after(1.0)
    assert [(notice.kind, notice.value, notice.rank, notice.step) for notice in told] == [
        (LOSS, 20, "rank-17", 1200),
        (SLOW, 310, "rank-17", 1300),
    ]
    assert scene.metrics.ranks_work_s == {"rank-17": 3.1}
    assert scene.metrics.requests["patch", "ok"] == 2


async def test_a_silence_is_told_and_taken_back() -> None:
    """Once while it lasts, then its end, if the status says that this Pod is silent; and the same with the next one."""
    scene = Scene(Server())
    listed: list[dict[str, Any]] = []
    for last_step, silent_s in ((1300, 310), (2000, 1_250)):
        for _ in range(3):
            scene.silence(last_step, silent_s)
            await scene.after(1.0)
        assert [(one.kind, one.step, one.value) for one in await scene.after(1.0)][-1:] == [
            (STALL, last_step, silent_s)
        ]
        scene.silence(last_step, silent_s + 40, is_over=True)
        assert (await scene.after(1.0))[-1].kind == STALL, "the status has not said it yet"
        listed = [entry(STALL, "p-3", silent_s, step=last_step)]
        scene.sender.take_listed(listed)
        scene.silence(last_step, silent_s + 40, is_over=True)
        assert (await scene.after(1.0))[-1].kind == PAUSE
        scene.sender.take_listed([entry(PAUSE, "p-3", silent_s + 40, step=last_step)])
        scene.silence(last_step, silent_s + 40, is_over=True)
        await scene.after(2_000.0)
    assert [one.kind for one in await scene.after(0.0)] == [STALL, PAUSE, STALL, PAUSE]


@pytest.mark.parametrize(("step", "is_told"), [(1299, True), (1300, False), (1301, False)])
async def test_of_a_hung_collective_those_tell_who_are_furthest_behind(step: int, is_told: bool) -> None:
    """All ranks are silent, and one of them is to blame."""
    scene = Scene(Server())
    scene.sender.take_listed([entry(STALL, "p-9", 310, step=1300)])
    scene.silence(step, 320)
    assert bool(await scene.after(1.0)) is is_told


@pytest.mark.parametrize(
    ("listed", "numbers", "is_told"),
    [
        ([], BAD, True),
        ([entry(LOSS, step=1200)], BAD, False),
        ([entry(LOSS, step=1201)], BAD, True),  # the rank that had it first
        ([entry(LOSS)], BAD, True),
        ([entry(LOSS)], replace(BAD, bad_since=None), False),
        ([entry(LOSS, step=1, epoch=2), entry(SLOW), "garbage", entry(LOSS, step=1, scope="b")], BAD, True),
        ([entry(STEPS)], SLOWER, True),
        ([entry(STEPS)], replace(SLOWER, waits=False), False),
        ([entry(SLOW, f"p-{number}") for number in range(10, 9 + LISTED_MAX)], SLOWER, True),
        ([entry(SLOW, f"p-{number}") for number in range(10, 10 + LISTED_MAX)], SLOWER, False),
        ([entry(SLOW, "p-3")], SLOWER, False),
    ],
)
async def test_what_the_status_says_is_not_told(listed: list[Any], numbers: RankNumbers, is_told: bool) -> None:
    """When a loss stops being a number, it does so in every Pod of the group."""
    scene = Scene(Server())
    scene.sender.take_listed(listed)
    scene.look(numbers)
    assert len(await scene.after(1.0)) == is_told


async def test_what_became_known_during_the_wait_is_not_told() -> None:
    """The news of another Pod comes before this Pod's moment; and so may the end of the epoch."""
    scene = Scene(Server())
    scene.sender._config = replace(scene.sender._config, herd=replace(scene.sender._config.herd, size=5_000))
    scene.look(BAD)
    scene.sender.take_listed([entry(LOSS, step=1)])
    assert await scene.after(10.0) == []
    scene.sender.take_listed([])
    scene.look(BAD)
    scene.epoch = 4
    assert await scene.after(10.0) == []


@pytest.mark.parametrize(("code", "again"), [(None, True), (503, True), (403, False), (422, False)])
async def test_a_notice_that_was_lost_is_told_again(code: int | None, again: bool) -> None:
    """Not at once, and never where the cluster's admission policy does not know it."""
    scene = Scene(Server(code))
    for _ in range(3):
        scene.look(BAD)
        await scene.after(1.0)
    assert len(scene.server.told) == 1
    await scene.after(AGAIN_S)
    for _ in range(3):
        scene.look(BAD)
        await scene.after(1.0)
    assert len(scene.server.told) == 1 + again


async def test_a_busy_rank_is_told_of_again_while_it_is_busy() -> None:
    """Each time at half of what the last notice excused; what another Pod's notice excuses need not be told."""
    scene = Scene(Server())
    for second in range(30, 150):
        scene.look(busy_for_s=float(second))
        await scene.after(1.0)
    told_s = [at_s for at_s, _ in scene.server.told]
    assert len(told_s) == 4
    assert all(later_s - told_s[number] <= STALL_S / 2 + 2.0 for number, later_s in enumerate(told_s[1:]))
    assert {notice.kind for _, notice in scene.server.told} == {BUSY}
    quiet = Scene(Server())
    for second in range(30, 150):
        if second % 20 == 10:
            quiet.sender.take_listed([entry(BUSY, at=f"{second}")])
        quiet.look(busy_for_s=float(second))
        await quiet.after(1.0)
    assert quiet.server.told == []


async def test_a_busy_rank_of_another_pod_excuses_this_one_once() -> None:
    """A status is seen again and again; only a newer notice is news. Another scope and epoch are not meant."""
    scene = Scene(Server(), scope="a")
    for entries in (
        [entry(BUSY, scope="a", at="1")],
        [entry(BUSY, scope="a", at="1"), entry(LOSS, scope="a")],
        [entry(BUSY, scope="a", at="1"), entry(BUSY, "p-8", scope="a", at="1", value=20)],
        [entry(BUSY, scope="a", at="1"), entry(BUSY, "p-8", scope="a", at="1", value=20), entry(LOSS, scope="a")],
        [entry(BUSY, scope="b", at="2")],
        [entry(BUSY, scope="a", at="3", epoch=2)],
        [entry(BUSY, scope="a", at="4", value="60")],
        [entry(BUSY, scope="a", at="5", value=-1)],
        [],
        [entry(BUSY, scope="a", at="6", value=30)],
    ):
        scene.sender.take_listed(entries)
    assert scene.stalls.for_s == [60.0, 20.0, 30.0]
    scene.sender.drop()


async def test_the_server_s_wish_for_no_patch_is_obeyed() -> None:
    """Whichever PATCH of this Pod was refused with it; then the notice is due."""
    scene = Scene(Server())
    scene.patches.hold_back(10.0)
    scene.look(BAD)
    assert await scene.after(9.0) == []
    await scene.after(2.0)
    scene.look(BAD)
    assert len(await scene.after(1.0)) == 1


async def test_a_refused_notice_holds_the_other_patches_back() -> None:
    """429 and Retry-After are for the Pod's next announcement as well."""
    scene = Scene(Server(429))
    scene.look(BAD)
    await scene.after(0.1)
    assert 4.0 < scene.patches.left_s <= 5.0


@pytest.mark.parametrize("seed", range(10))
async def test_a_large_group_in_which_all_see_the_same_sends_few_requests(seed: int) -> None:
    """Of 5,000 Pods those tell whose moment comes before the first one's news: at most 0.3 s later."""
    rng = Random(seed)
    moments_s = sorted(PATIENCE * report_delay_s(5_000, rng.random()) for _ in range(5_000))
    assert moments_s[-1] < 6.0
    assert sum(moment_s <= moments_s[0] + 0.3 for moment_s in moments_s) < 20


async def test_a_busy_notice_that_was_lost_is_told_again_in_time() -> None:
    """Before the limit of those that wait is over."""
    scene = Scene(Server(503))
    for second in range(30, 60):
        scene.look(busy_for_s=float(second))
        await scene.after(1.0)
    first_s, second_s, *_ = (at_s for at_s, _ in scene.server.told)
    assert second_s - first_s <= STALL_S / 4 + 1.0
