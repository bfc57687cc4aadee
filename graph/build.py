"""The state machine: plan, intake, authorize, execute, pause, assess, report. Built from its parts, never at import."""

from typing import Any

from langgraph.graph import END, START, StateGraph
from langgraph.graph.state import CompiledStateGraph

from remit.checkpoints.saver import saver
from remit.graph import nodes
from remit.graph.deps import Deps
from remit.graph.state import STATE_VERSION, State
from remit.tools.actions import canonical_hash

Graph = CompiledStateGraph[State, Any, State, State]


def build_graph(deps: Deps) -> Graph:
    """The agent as a compiled LangGraph graph over the saver of `deps.database`.

    Run it through `Driver`, which holds the lease that its nodes act under and every checkpoint names.
    """
    graph = StateGraph(State)
    graph.add_node("plan", nodes.plan_node(deps.database, deps.model, deps.catalogue.openai_tools()))
    graph.add_node("intake", nodes.intake_node(deps))
    graph.add_node("authorize", nodes.authorize_node(deps))
    graph.add_node("execute", nodes.execute_node(deps))
    graph.add_node("pause", nodes.pause)
    graph.add_node("assess", nodes.assess_node(deps))
    graph.add_node("report", nodes.report_node(deps))
    graph.add_conditional_edges(START, _enter, ["plan", "intake"])
    graph.add_edge("plan", "intake")
    graph.add_edge("intake", "authorize")
    graph.add_edge("authorize", "execute")
    graph.add_conditional_edges("execute", nodes.after_execute, ["pause", "assess"])
    graph.add_edge("pause", "intake")
    graph.add_conditional_edges("assess", nodes.after_assess, ["plan", "report"])
    graph.add_edge("report", END)
    return graph.compile(checkpointer=saver(deps.database.pool, deps.database.reach))


def fingerprint(graph: Graph) -> str:
    """Twelve hex digits over nodes, edges and the state's version: another one means another graph."""
    drawn = graph.get_graph()
    shape = {
        "state": STATE_VERSION,
        "nodes": sorted(drawn.nodes),
        "edges": sorted([edge.source, edge.target] for edge in drawn.edges),
    }
    return canonical_hash(shape).removeprefix("v1:")[:12]


def _enter(state: State) -> str:
    """A fresh thread of a run that has planned before takes its last plan up again; each step of it is idempotent."""
    return "intake" if state["plan"] else "plan"
