"""A Pod's slot in a group with spares: what is read, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from inplace.agent.settings.config import AgentConfig, ConfigError
from inplace.agent.settings.slot import HOSTS_CHARACTERS_MAX, host_of
from inplace.common.protocol.members import SLOTS_MAX
from inplace.common.wire.names import MEMBERS, SETTINGS
from tests.agent.process import environment, finished, process
from tests.agent.scripted_server import ScriptedServer

ENV = {"NAMESPACE": "ns", "POD_NAME": "train-w-0-2", "JOBSET_NAME": "train"}
SPARES = ENV | {"MEMBERS": "train-w-0-*.train", "RESTART_SCOPE": "w", "JOB_COMPLETION_INDEX": "2"}


def test_the_slot_is_the_pod_s_number() -> None:
    """Without MEMBERS there is none, whatever else is set."""
    config = AgentConfig.from_env(SPARES)
    assert (config.slot, config.hosts, config.ran_epoch) == (2, "train-w-0-*.train", 0)
    config = AgentConfig.from_env(SPARES | {"MEMBERS": ""})
    assert (config.slot, config.hosts) == (None, "")
    assert SETTINGS["MEMBERS"] == MEMBERS


def test_a_pod_s_unit_may_be_its_job() -> None:
    """The annotation has the Job's index before the host names of first Pods."""
    config = AgentConfig.from_env(SPARES | {"MEMBERS": "3/train-w-*-0.train"})
    assert (config.slot, config.index, config.hosts) == (3, 2, "train-w-*-0.train")
    config = AgentConfig.from_env(SPARES | {"MEMBERS": "0/*"})
    assert (config.slot, config.index, config.hosts) == (0, 2, "*")
    assert AgentConfig.from_env(SPARES).index is None


def test_a_slot_has_a_host_where_pods_have_names() -> None:
    """One "*" stands for its number."""
    assert host_of("train-w-0-*.train", 12) == "train-w-0-12.train"
    assert host_of("*", 12) == ""


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"JOB_COMPLETION_INDEX": ""}, "JOB_COMPLETION_INDEX: expected the number of a Pod of an Indexed Job"),
        ({"JOB_COMPLETION_INDEX": "x"}, "0 to 5499, beside MEMBERS, saw 'x'"),
        ({"JOB_COMPLETION_INDEX": str(SLOTS_MAX)}, "saw '5500'"),
        ({"RESTART_SCOPE": ""}, "metadata.annotations['inplace.dev/restart-scope']"),
        ({"LINK_FILE": "/l", "GUARDS_AWAITED": "1"}, "GUARDS_AWAITED: expected none beside MEMBERS"),
        ({"MEMBERS": "max=8"}, "MEMBERS: expected host names with one '*' for a Pod's number, or '*'"),
        ({"MEMBERS": "a-*-*"}, "saw 'a-*-*'"),
        ({"MEMBERS": "/a-*"}, "behind 'INDEX/' where whole Jobs play ranks (annotation of the Pod), saw '/a-*'"),
        ({"MEMBERS": "5500/a-*"}, "saw '5500/a-*'"),
        ({"MEMBERS": "1/2/a-*"}, "saw '1/2/a-*'"),
        ({"MEMBERS": "A-*"}, "saw 'A-*'"),
        ({"MEMBERS": "a" * HOSTS_CHARACTERS_MAX + "*"}, "MEMBERS: expected"),
    ],
)
def test_what_cannot_work_is_refused_with_a_cure(change: dict[str, str], expected: str) -> None:
    """All at once, BEFORE anything is sent."""
    with pytest.raises(ConfigError) as refused:
        AgentConfig.from_env(SPARES | change)
    assert expected in str(refused.value)
    assert len(refused.value.problems) == 1


@pytest.mark.asyncio
async def test_a_worker_without_a_guard_learns_no_rank(tmp_path: Path) -> None:
    """Such a Pod is refused at its start: kubelet would start its worker with the number of the slot."""
    more = {name: SPARES[name] for name in ("MEMBERS", "RESTART_SCOPE", "JOB_COMPLETION_INDEX")}
    async with ScriptedServer() as server, process(environment(tmp_path, server, **more)) as child:
        code, lines = await finished(child)
        assert server.received == []
    assert code == 2
    assert [line["event"] for line in lines] == ["setting_refused"]
    assert "MEMBERS: expected LINK_FILE beside it, or a supervisor" in str(lines[0]["message"])
