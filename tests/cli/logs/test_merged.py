"""`inplace logs --all`: the lines of all Pods in the order of time, within bounds, and what could not be read."""

from __future__ import annotations

import io
import json
import re
from random import Random

import pytest

from inplace.agent.report.log_line import log_line
from inplace.cli.group.read import read_pods
from inplace.cli.logs import reading
from inplace.cli.logs.container_log import SILENCE_S_MAX, instances_of
from inplace.cli.logs.lines import NS
from inplace.cli.logs.logs import parse_duration, parse_ranks
from inplace.cli.logs.reading import Reader, Wanted, merged
from inplace.cli.refusal import CliExit, RefusalError
from tests.cli.command import run_here
from tests.cli.logs.room import BARE, FORBIDDEN, GONE, START_S, UNREACHABLE, Room, at, room

pytestmark = pytest.mark.virtual_time


async def two() -> Room:
    """Return a group of two Pods that ran one epoch and run the second."""
    made = await room()
    await made.group(2)
    for index in (0, 1):
        pod = await made.pod(index, epoch=2)
        made.mark(pod, 1 + index / 10, "worker_starting", epoch=1)
        made.say(pod, 2 + index / 10, f"step 1 of {index}")
        made.mark(pod, 3, "worker_exited", epoch=1, exit_code=1)
        made.mark(pod, 4, "worker_starting", epoch=2)
        made.say(pod, 5 - index / 10, f"step 2 of {index}")
    return made


async def test_lines_come_in_the_order_of_time() -> None:
    """Each with its time, rank and Pod."""
    done = await (await two()).run(everything=True)
    assert done.code == 0
    steps = [line for line in done.out.splitlines() if "step" in line]
    assert steps == [
        "01-01 00:00:02.000 rank 0 train-big-job-0-0  step 1 of 0",
        "01-01 00:00:02.100 rank 1 train-big-job-0-1  step 1 of 1",
        "01-01 00:00:04.900 rank 1 train-big-job-0-1  step 2 of 1",
        "01-01 00:00:05.000 rank 0 train-big-job-0-0  step 2 of 0",
    ]


async def forging() -> Room:
    """Return a Pod of two epochs, whose first worker prints the marks of others."""
    made = await room()
    await made.group(1)
    pod = await made.pod(0, epoch=2, agent=True)
    for epoch, second in ((1, 1.0), (2, 30.0)):
        made.mark(f"{pod}/agent", second, "barrier_lifted", epoch=epoch)
        made.mark(pod, second, "worker_starting", epoch=epoch)
        made.say(pod, second + 1, f"step {epoch}")
        if epoch == 1:
            for forged in (99, 2):
                made.mark(pod, 5, "worker_starting", epoch=forged)
                made.say(pod, 6, f"forged {forged}")
    return made


@pytest.mark.attack
async def test_a_worker_cannot_file_its_lines_under_another_epoch() -> None:
    """The agent's log, where it cannot write, says when which epoch began."""
    first = (await (await forging()).run(epoch=1)).texts
    assert [text for text in first if "{" not in text] == ["step 1", "forged 99", "forged 2"]
    assert [text for text in (await (await forging()).run(epoch=2)).texts if "{" not in text] == ["step 2"]
    assert (await (await forging()).run(epoch=99)).texts == []
    lines = map(json.loads, (await (await forging()).run(as_json=True, everything=True)).out.splitlines())
    assert {line["line"]: line["epoch"] for line in lines if "{" not in line["line"]} == {
        "step 1": 1,
        "forged 99": 1,
        "forged 2": 1,
        "step 2": 2,
    }


async def test_an_agents_log_that_is_gone_leaves_the_marks() -> None:
    """As they stand in the worker's log; standard error says so."""
    made = await forging()
    made.logs.pop(("train-big-job-0-0/agent", False))
    done = await made.run(epoch=99)
    assert [text for text in done.texts if "{" not in text] == ["forged 99"]
    assert "not read: train-big-job-0-0/agent: " in done.err


async def test_an_epoch_is_cut_out_by_its_marks() -> None:
    """From its mark to that of the next epoch."""
    done = await (await two()).run(epoch=1)
    assert [text for text in done.texts if "step" in text] == ["step 1 of 0", "step 1 of 1"]
    assert "worker_exited" in done.texts[-1]
    assert (await (await two()).run(epoch=3)).texts == []


async def test_lines_are_chosen_by_rank_pattern_and_age() -> None:
    """By all of them together, as well."""
    made = await two()
    assert (await made.run(ranks=(range(1, 2),), pattern=re.compile("^step"))).texts == ["step 1 of 1", "step 2 of 1"]
    asked = await made.run(pattern=re.compile("^step"), since_s=-4.5)  # the clock stands at second 0
    assert asked.texts == ["step 2 of 1", "step 2 of 0"]


async def test_a_program_gets_an_object_for_each_line() -> None:
    """With the epoch, where a mark says it."""
    done = await (await two()).run(pattern=re.compile("^step 1"), as_json=True)
    assert json.loads(done.out.splitlines()[1]) == {
        "time": "2026-01-01T00:00:02.100000000Z",
        "rank": 1,
        "pod": "train-big-job-0-1",
        "container": "worker",
        "epoch": 1,
        "line": "step 1 of 1",
    }


async def test_an_epoch_whose_start_was_rotated_away() -> None:
    """Lines before the first mark are of the epoch before; without any mark they are of the Pod's."""
    made = await room()
    await made.group(2)
    older, newer = await made.pod(0, epoch=5), await made.pod(1, epoch=5)
    made.say(older, 1, "of 4")
    made.mark(older, 2, "worker_starting", epoch=5)
    made.say(newer, 3, "of 5")
    assert (await made.run(epoch=4)).texts == ["of 4"]
    assert (await made.run(epoch=5)).texts[1:] == ["of 5"]


async def test_the_mark_of_a_containers_first_worker_may_come_late() -> None:
    """The runtime copies two streams: the worker's first line overtook the mark, which says when it was written."""
    made = await room()
    await made.group(1)
    pod = await made.pod(0, epoch=2)
    made.say(pod, 4.1, "first of 2")
    made.say(pod, 4.2, log_line(START_S + 4, "info", "worker_starting", {"epoch": 2}))
    made.say(pod, 4.3, "second of 2")
    assert [text for text in (await made.run(epoch=2)).texts if "{" not in text] == ["first of 2", "second of 2"]


async def test_a_group_of_upstream_has_an_epoch_for_each_instance() -> None:
    """The present container has the epoch that its Pod announced, the one before it the epoch before."""
    made = await room()
    await made.group(1)
    pod = await made.pod(
        0, command=BARE, epoch=3, began=5, restarts=1, last={"exitCode": 1, "containerID": "c", "finishedAt": at(4)}
    )
    made.say(pod, 2, "of 2", previous=True)
    made.say(pod, 6, "of 3")
    assert (await made.run(epoch=2)).texts == ["of 2"]
    assert (await made.run(epoch=3)).texts == ["of 3"]
    assert (await made.run(everything=True)).texts == ["of 2", "of 3"]


async def test_logs_are_read_on_within_their_share() -> None:
    """Whatever the share, each line comes once and in order: also many of one second, and of one nanosecond."""
    made, random, expected = await room(), Random(1), []
    await made.group(5)
    for index in range(5):
        pod = await made.pod(index)
        moments = sorted(random.choice((1, 1.5, 2, 3)) + random.random() * random.randrange(2) for _ in range(60))
        for number, moment in enumerate(moments):
            made.say(pod, moment, f"{index} {number}")
            expected.append((moment, f"{index} {number}"))
    pods = (await read_pods(made.connection, "train")).pods
    for share in (1, 1_000, 10_000, 10**9):
        reader = Reader(made.connection, lambda _done, _of: None)
        logs = [reader.log(one) for one in instances_of(pods, lambda _: 0)]
        found = [line async for _, line in merged(logs, Wanted(), reader, buffer_bytes=5 * share)]
        assert sorted(line.decoded() for line in found) == sorted(text for _, text in expected)
        assert [line.at_ns for line in found] == sorted(line.at_ns for line in found)
        assert reader.notes.lines() == []


async def test_no_more_logs_are_open_than_the_help_says() -> None:
    """Of 100 Pods."""
    made = await room()
    await made.group(100)
    for index in range(100):
        made.say(await made.pod(index), index / 10, f"of {index}")
    done = await made.run(everything=True)
    assert done.texts == [f"of {index}" for index in range(100)]
    assert made.most_open == reading.STREAMS_MAX == 32
    assert made.requests == 100
    help_text = " ".join(run_here("logs", "--help").stdout.split())
    assert f"reads at most {reading.STREAMS_MAX} logs at once" in help_text
    assert f"at most {reading.BUFFER_BYTES >> 20} MiB of lines" in help_text


class Terminal(io.StringIO):
    """A terminal."""

    def isatty(self) -> bool:
        """Say so."""
        return True


async def test_a_terminal_sees_how_far_the_reading_is() -> None:
    """On standard error, and the last word of it is an empty line."""
    done = await (await two()).run(err=Terminal(), everything=True)
    assert done.err == "\r\x1b[Kread 1 of 2 logs\r\x1b[K"


async def test_what_cannot_be_read_is_noted() -> None:
    """Pods that are gone, a node that hangs, a node that is not there; the others' lines come all the same."""
    made = await room()
    await made.group(8)
    for index in range(8):
        made.say(await made.pod(index), index, f"of {index}")
    made.refuses |= {f"train-big-job-0-{index}": GONE for index in range(5)}
    made.refuses["train-big-job-0-5"] = UNREACHABLE
    made.hangs.add("train-big-job-0-6")
    done = await made.run(everything=True)
    assert (done.code, done.texts) == (0, ["of 7"])
    assert done.err.splitlines() == [
        f"inplace logs: not read: train-big-job-0-0, train-big-job-0-1, train-big-job-0-2 and 2 more: {reading.GONE}",
        "inplace logs: not read: train-big-job-0-5: no",
        f"inplace logs: not read: train-big-job-0-6: its kubelet sent nothing for {SILENCE_S_MAX:g} s",
    ]


async def test_a_jobset_that_failed_has_no_logs() -> None:
    """Its Jobs are deleted, and their Pods: the command says where the rest of the evidence is."""
    made = await room()
    now = {"lastTransitionTime": at(1), "reason": "ReachedMaxRestarts", "message": "m"}
    await made.group(1, {"conditions": [{"type": "Failed", "status": "True"} | now]})
    with pytest.raises(
        RefusalError, match=r"JobSet train has ended, its Pods are gone.*: inplace history train"
    ) as refused:
        await made.run(everything=True)
    assert refused.value.code == CliExit.NOT_DONE


async def test_nothing_but_notes_is_a_failure() -> None:
    """The exit code says that there is no answer."""
    made = await room()
    await made.group(1)
    made.refuses[await made.pod(0)] = GONE
    assert (await made.run(everything=True)).code == CliExit.NOT_DONE


async def test_a_log_that_kubelet_has_lost_is_noted() -> None:
    """With kubelet's words, which it sends in the place of lines."""
    made = await room()
    await made.group(1)
    await made.pod(0)
    done = await made.run(everything=True)
    assert "train-big-job-0-0: unable to retrieve container logs for containerd://0" in done.err


async def test_a_missing_right_is_named() -> None:
    """The command ends at once with the exit code of that."""
    made = await room()
    await made.group(50)
    for index in range(50):
        made.refuses[await made.pod(index)] = FORBIDDEN
    with pytest.raises(RefusalError, match="ask for the right `get` on `pods/log`") as refused:
        await made.run(everything=True)
    assert refused.value.code == CliExit.NOT_ALLOWED


async def test_a_group_without_a_container_that_ran() -> None:
    """There is no log to read, and the command says so."""
    made = await room()
    await made.group(1)
    with pytest.raises(RefusalError, match="no container of the chosen Pods in namespace default has started"):
        await made.run(everything=True)


async def test_too_many_logs_are_refused() -> None:
    """Their shares of the memory would be too small."""
    made = await two()
    one, *_ = instances_of((await read_pods(made.connection, "train")).pods, lambda _: 0)
    assert len(reading.bounded([one] * reading.LOGS_MAX)) == reading.LOGS_MAX
    with pytest.raises(RefusalError, match="expected at most 16,384 logs, saw 16,385 logs: choose some with --rank"):
        reading.bounded([one] * (reading.LOGS_MAX + 1))


async def test_control_characters_are_printed_as_text() -> None:
    """No worker clears a terminal; what is no UTF-8 shows as such, and a cut line says what is missing."""
    made = await room()
    await made.group(1)
    pod = await made.pod(0)
    made.say(pod, 1, "\x1b[2Jred\x07", b"\xff\xfe\x00", b"x" * 20_000, " 10%\r 20%")
    done = await made.run(everything=True)
    shown = ["\\u001b[2Jred\\u0007", "\ufffd\ufffd\\u0000", "x" * 16_384 + " [3,616 bytes left out]", " 10%\\u000d 20%"]
    assert done.texts == shown
    data = [json.loads(line) for line in (await made.run(everything=True, as_json=True)).out.splitlines()]
    assert data[0]["line"] == "\x1b[2Jred\x07"
    assert data[2]["bytesLeftOut"] == 3_616


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--grep", "("], "expected a regular expression, saw '('"),
        (["--since", "10"], "expected a duration such as 30s, 10m or 1h30m, saw '10'"),
        (["--rank", "3-1"], "expected ranks such as 3, 0-7 or 0-7,12, saw '3-1'"),
        (["--rank", ""], "expected ranks"),
        (["--first-failed", "--all"], "expected it alone"),
        (["--follow", "--epoch", "1"], "expected one of --epoch and --follow, saw both"),
        (["--epoch", "0"], "0 is not in the range 1<=x"),
    ],
)
def test_a_bad_option_is_refused(arguments: list[str], words: str) -> None:
    """With the option and what was expected."""
    done = run_here("logs", "train", *arguments)
    assert done.returncode == CliExit.USAGE
    assert words in " ".join(done.stderr.split())


def test_ranks_and_durations_are_read() -> None:
    """As kubectl writes durations."""
    assert parse_ranks(["0-7,12", " 3"]) == (range(8), range(12, 13), range(3, 4))
    assert [parse_duration(text) for text in ("30s", "1h30m", "2d")] == [30, 5_400, 172_800]
    assert NS == 10**9
