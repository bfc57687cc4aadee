"""Reasoning: the LangGraph state machine, and nothing durable.

Names are loaded when they are first asked for: a report needs no LangGraph, and LangGraph takes a second to import.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from remit.graph.build import Graph, build_graph
    from remit.graph.deps import Budget, Deps
    from remit.graph.driver import Driver, RunEnd
    from remit.graph.model import Model, ModelUnavailable, OpenAIModel
    from remit.graph.report import Report, status_of, tell
    from remit.graph.trial import Trial, try_mandate

_HOMES = {
    "Budget": "deps",
    "Deps": "deps",
    "Driver": "driver",
    "Graph": "build",
    "Model": "model",
    "ModelUnavailable": "model",
    "OpenAIModel": "model",
    "Report": "report",
    "RunEnd": "driver",
    "Trial": "trial",
    "build_graph": "build",
    "status_of": "report",
    "tell": "report",
    "try_mandate": "trial",
}

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
    "Trial",
    "build_graph",
    "status_of",
    "tell",
    "try_mandate",
]


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"remit.graph has no name {name!r}. It has: {', '.join(__all__)}.")
    return getattr(import_module(f"remit.graph.{_HOMES[name]}"), name)
