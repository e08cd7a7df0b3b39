"""The walk behind docs/protocol.md comes everywhere in the machines."""

from inplace.common.protocol.agent import TRANSITIONS, AgentPhase, Verdict
from inplace.common.protocol.guard import RUNNING, STOPPING
from inplace.common.protocol.pod import WorkerLife
from tests.docs.machine_edges import GUARD_PHASES, Edge, agent_edges, guard_edges, pod_edges


def test_the_walk_takes_every_way_of_the_table() -> None:
    """The edges without an outcome are exactly the table's cells that lead to another phase."""
    phases = {phase.value for phase in TRANSITIONS}
    views = [edge for edge in agent_edges() if edge.verdict and not edge.event]
    walked = {(edge.source, edge.verdict, edge.target) for edge in views if edge.source in phases}
    table = {
        (phase.value, verdict.value, target.value)
        for phase, row in TRANSITIONS.items()
        for verdict, target in row.items()
        if target is not phase
    }
    assert walked == table


def test_the_walk_comes_everywhere() -> None:
    """Every phase, life, outcome with each verdict, and other event has an edge."""
    edges = agent_edges()
    assert {edge.source for edge in edges} | {edge.target for edge in edges} == {phase.value for phase in AgentPhase}
    for outcome in ("accepted", "refused or reply lost"):
        assert {edge.verdict for edge in edges if edge.event == outcome} == {
            verdict.value for verdict in Verdict if verdict not in (Verdict.BYPASS, Verdict.FENCED)
        }
    assert Edge("waiting", "announcing", "long at the barrier", "", "announce") in edges
    assert Edge("waiting", "lifted", "lease held", "", "lift barrier") in edges
    assert Edge("lifted", "restarting", "lease over", "", "restart in place") in edges
    lives = pod_edges()
    assert {edge.source for edge in lives} | {edge.target for edge in lives} == {life.value for life in WorkerLife}
    assert {edge.event.partition(",")[0] for edge in lives} >= {
        "told to end",
        "main process exits",
        "all processes gone",
    }


def test_the_walk_comes_everywhere_in_the_guard() -> None:
    """Every phase has an edge; only a lift starts a worker, and none runs on without its agent."""
    edges = guard_edges(stays=True)
    assert {edge.source for edge in edges} | {edge.target for edge in edges} == set(GUARD_PHASES)
    for depth in (edges, guard_edges(stays=False)):
        assert {edge.event for edge in depth if edge.target == RUNNING != edge.source} == {"barrier lifted"}
        assert {edge.target for edge in depth if edge.source == RUNNING and edge.event == "the agent left"} == {
            STOPPING
        }
