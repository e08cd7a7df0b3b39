"""Settings: both families of names, their defaults, and every refusal."""

from __future__ import annotations

from pathlib import Path

import pytest

from inplace.agent.settings.config import AgentConfig, ConfigError

SEED = {"NAMESPACE": "ns", "POD_NAME": "train-w-0-0", "JOBSET_NAME": "train"}


@pytest.fixture
def upstream(tmp_path: Path) -> dict[str, str]:
    """Return an upstream manifest's environment: two names, and the mounted service account."""
    (tmp_path / "namespace").write_text("from-file\n")
    return {"POD_NAME": "train-w-0-0", "JOBSET_NAME": "train", "INPLACE_SERVICE_ACCOUNT_DIR": str(tmp_path)}


def problems(env: dict[str, str]) -> tuple[str, ...]:
    """Return the problems of `env`."""
    with pytest.raises(ConfigError) as refused:
        AgentConfig.from_env(env)
    return refused.value.problems


def test_the_seeds_names_bring_our_defaults() -> None:
    """The seed's three required names are enough."""
    assert AgentConfig.from_env(SEED) == AgentConfig("ns", "train-w-0-0", "train")
    config = AgentConfig.from_env(SEED)
    assert (config.restart_exit_code, config.barrier_path, config.barrier_port) == (88, "/barrier-is-lifted", 8080)
    assert config.prefer_table


def test_upstreams_names_bring_upstreams_defaults(upstream: dict[str, str]) -> None:
    """Without the seed's names the agent has the defaults of upstream's agent."""
    config = AgentConfig.from_env(upstream)
    assert config.namespace == "from-file"
    assert (config.restart_exit_code, config.barrier_path, config.barrier_port) == (1, "/barrier-is-down", 8081)
    assert not config.prefer_table


def test_our_additions_do_not_change_the_family(upstream: dict[str, str]) -> None:
    """Variables that only we have can be added to an upstream manifest; its port and exit code stay."""
    added = {
        "PREVIOUS_EPOCH": "4",
        "POD_UID": "a-b",
        "JOBSET_UID": "c",
        "BARRIER_ADDRESS": "::1",
        "GROUP_SIZE": "2300",
        "GROUP_OFFSET": "1000",
        "JOB_COMPLETION_INDEX": "150",
        "START_RATE_PER_S": "1000",
    }
    config = AgentConfig.from_env(upstream | added)
    assert (config.restart_exit_code, config.barrier_port) == (1, 8081)
    assert (config.previous_epoch, config.pod_uid, config.jobset_uid) == (4, "a-b", "c")
    assert config.barrier_address == "::1"
    assert 0.75 <= config.start_slot_s < 0.751  # halfway through 1.5 s, and a part of one stratum


def test_upstreams_values_are_taken(upstream: dict[str, str]) -> None:
    """Upstream's three optional variables are read under either family."""
    values = {"IN_PLACE_RESTART_EXIT_CODE": "9", "STARTUP_PROBE_PATH": "/up", "STARTUP_PROBE_PORT": "9000"}
    for env in (upstream, SEED):
        config = AgentConfig.from_env(env | values)
        assert (config.restart_exit_code, config.barrier_path, config.barrier_port) == (9, "/up", 9000)


def test_both_families_may_agree() -> None:
    """The same value under both names is accepted."""
    env = SEED | {"RESTART_POD_IN_PLACE_EXIT_CODE": "9", "IN_PLACE_RESTART_EXIT_CODE": "9"}
    assert AgentConfig.from_env(env).restart_exit_code == 9


@pytest.mark.parametrize(
    ("ours", "theirs", "values"),
    [
        ("RESTART_POD_IN_PLACE_EXIT_CODE", "IN_PLACE_RESTART_EXIT_CODE", ("8", "9")),
        ("BARRIER_PATH", "STARTUP_PROBE_PATH", ("/a", "/b")),
        ("BARRIER_PORT", "STARTUP_PROBE_PORT", ("8000", "9000")),
    ],
)
def test_contradictions_are_refused(ours: str, theirs: str, values: tuple[str, str]) -> None:
    """Two names of one setting with different values are refused."""
    (problem,) = problems(SEED | {ours: values[0], theirs: values[1]})
    assert ours in problem
    assert theirs in problem
    assert values[1] in problem


def test_everything_wrong_is_said_at_once() -> None:
    """Five errors in a manifest are reported together."""
    found = problems({"NAMESPACE": "Not_A_Name", "JOBSET_NAME": "", "BARRIER_PORT": "x", "LOG_FORMAT": "xml"})
    assert [problem.split(":")[0] for problem in found] == [
        "NAMESPACE",
        "POD_NAME",
        "JOBSET_NAME",
        "BARRIER_PORT",
        "LOG_FORMAT",
    ]


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("RESTART_POD_IN_PLACE_EXIT_CODE", "0", "1 to 255"),
        ("RESTART_POD_IN_PLACE_EXIT_CODE", "256", "1 to 255"),
        ("RESTART_POD_IN_PLACE_EXIT_CODE", "-1", "1 to 255"),
        ("RESTART_POD_IN_PLACE_EXIT_CODE", "٣", "1 to 255"),
        ("BARRIER_PORT", "0", "1 to 65535"),
        ("BARRIER_PORT", "65536", "1 to 65535"),
        ("BARRIER_PATH", "barrier", "absolute path"),
        ("BARRIER_PATH", "/a b", "absolute path"),
        ("BARRIER_PATH", "/metrics", "/metrics"),
        ("BARRIER_ADDRESS", "localhost", "IPv4"),
        ("BARRIER_ADDRESS", "[::1]", "IPv4"),
        ("POD_NAME", "-x", "Kubernetes name"),
        ("POD_NAME", "a/b", "Kubernetes name"),
        ("POD_NAME", "a" * 254, "253"),
        ("POD_UID", "a b", "uid"),
        ("EPOCH_FILE", "epoch", "absolute path of a file"),
        ("EPOCH_FILE", "/var/run/", "absolute path of a file"),
        ("START_WINDOW_S", "-1", "0 to 300"),
        ("START_WINDOW_S", "nan", "0 to 300"),
        ("START_WINDOW_S", "soon", "0 to 300"),
        ("START_RATE_PER_S", "0", "1 to 100000"),
        ("LOG_LEVEL", "loud", "debug"),
    ],
)
def test_bad_values_are_refused(name: str, value: str, expected: str) -> None:
    """Each refusal names the variable, the expected value and the seen value."""
    (problem,) = problems(SEED | {name: value})
    assert problem.startswith(f"{name}: expected ")
    assert expected in problem
    assert value[:20] in problem


@pytest.mark.parametrize("garbage", ["x", "0", "-3", "1.0", "2147483648", "99999999999999999999", "٣"])
def test_a_garbled_previous_epoch_is_unknown_and_told(garbage: str) -> None:
    """With a garbled previous epoch the agent starts and logs it; an unknown epoch costs one consistent read."""
    config = AgentConfig.from_env(SEED | {"PREVIOUS_EPOCH": garbage})
    assert config.previous_epoch is None
    (warning,) = config.warnings
    assert "PREVIOUS_EPOCH" in warning


@pytest.mark.parametrize(
    ("given", "depth"),
    [
        ({}, "containers"),
        ({"LINK_FILE": "/x/link"}, "process"),
        ({"LINK_FILE": "/x/link", "RESTART_DEPTH": ""}, "process"),
        ({"LINK_FILE": "/x/link", "RESTART_DEPTH": "containers"}, "containers"),
    ],
)
def test_a_guard_makes_the_process_the_depth(given: dict[str, str], depth: str) -> None:
    """Beside one a restart is that of the worker's process, unless the variable says otherwise."""
    assert AgentConfig.from_env(SEED | given).restart_depth == depth


def test_a_process_without_a_guard_is_refused() -> None:
    """Nobody could restart it."""
    (problem,) = problems(SEED | {"RESTART_DEPTH": "process"})
    assert problem.startswith("LINK_FILE: expected the path of the link to the worker's guard")


@pytest.mark.parametrize("name", ["FENCE_AFTER_S", "CHECKS_BEFORE_ANNOUNCE"])
def test_what_needs_a_guard_awaits_none(name: str) -> None:
    """A lease and a check are promises that only a guard keeps, and this one may not come."""
    given = SEED | {"LINK_FILE": "/x/link", "GUARDS_AWAITED": "1"}
    assert AgentConfig.from_env(given).guards_awaited == 1
    (problem,) = problems(given | {name: "15"})
    assert problem == f"{name}: expected none beside GUARDS_AWAITED: a worker may run without a guard, saw '15'"


@pytest.mark.parametrize("given", [{"GUARDS_AWAITED": "1"}, {"GUARDS_AWAITED": "17", "LINK_FILE": "/x/link"}])
def test_guards_need_a_link_and_are_bounded(given: dict[str, str]) -> None:
    """A link serves sixteen."""
    assert problems(SEED | given)


def test_an_empty_variable_is_unset() -> None:
    """The downward API makes an empty text of an annotation that is not there yet."""
    empty = dict.fromkeys(("PREVIOUS_EPOCH", "POD_UID", "BARRIER_PORT", "BARRIER_ADDRESS"), "")
    assert AgentConfig.from_env(SEED | empty) == AgentConfig.from_env(SEED)


def test_a_missing_namespace_says_where_it_was_looked_for(tmp_path: Path) -> None:
    """Without variable and file the message names both."""
    env = {"POD_NAME": "p", "JOBSET_NAME": "j", "INPLACE_SERVICE_ACCOUNT_DIR": str(tmp_path)}
    (problem,) = problems(env)
    assert "NAMESPACE" in problem
    assert f"{tmp_path}/namespace" in problem


LARGE = SEED | {"GROUP_SIZE": "5000", "GROUP_OFFSET": "4000", "JOB_COMPLETION_INDEX": "999"}


def test_a_pod_of_a_large_group_gets_its_slot() -> None:
    """The last of 5,000 Pods starts at the end of the window; its patch after a group restart comes in half of it."""
    config = AgentConfig.from_env(LARGE)
    assert 1.499 < config.start_slot_s < 1.5
    assert 0.749 < config.herd.restart_slot_s < 0.75
    assert config.herd.spread_s == 3.0
    assert config.warnings == ()


def test_the_window_can_be_switched_off() -> None:
    """With START_WINDOW_S=0 every agent of a group of any size starts at once; for clusters with deploy/apf."""
    config = AgentConfig.from_env(LARGE | {"START_WINDOW_S": "0"})
    assert (config.start_slot_s, config.herd.restart_slot_s) == (0.0, 0.0)
    assert config.herd.spread_s == 3.0


@pytest.mark.parametrize("garbage", ["x", "0", "-3", "2147483648"])
def test_a_garbled_group_size_is_told_and_costs_no_start(garbage: str) -> None:
    """The agent starts without a slot."""
    config = AgentConfig.from_env(LARGE | {"GROUP_SIZE": garbage})
    assert config.start_slot_s == 0.0
    (warning,) = config.warnings
    assert "GROUP_SIZE" in warning
    assert repr(garbage) in warning


@pytest.mark.parametrize("missing", ["GROUP_OFFSET", "JOB_COMPLETION_INDEX"])
def test_a_pod_without_a_number_takes_a_slot_of_its_name(missing: str) -> None:
    """The slots of 5,000 Pods without an index fill the window evenly enough, and each Pod keeps its slot."""
    env = {name: value for name, value in LARGE.items() if name != missing}
    slots_s = [AgentConfig.from_env(env | {"POD_NAME": f"train-w-0-{i}"}).start_slot_s for i in range(5000)]
    tenths = [sum(1 for slot_s in slots_s if int(slot_s / 0.15) == tenth) for tenth in range(10)]
    assert all(400 < count < 600 for count in tenths)
    assert slots_s[7] == AgentConfig.from_env(env | {"POD_NAME": "train-w-0-7"}).start_slot_s
