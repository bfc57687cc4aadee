"""Reasoning: the LangGraph state machine, and nothing durable."""

from remit.graph.build import Graph, build_graph
from remit.graph.deps import Budget, Deps
from remit.graph.driver import Driver, RunEnd
from remit.graph.model import Model, ModelUnavailable, OpenAIModel
from remit.graph.report import Report, status_of, tell

__all__ = [
    "Budget",
    "Deps",
    "Driver",
    "Graph",
    "Model",
    "ModelUnavailable",
    "OpenAIModel",
    "Report",
    "RunEnd",
    "build_graph",
    "status_of",
    "tell",
]
