"""One contract suite for every port, run over every implementation: a port without one is found here."""

import ast

from .test_packaging import ROOT
from .test_sources import MODULES, parsed

SUITES = {
    "Ledger": "tests/checkpoints/test_ledger_port.py",
    "DoorKeeper": "tests/checkpoints/test_ledger_port.py",
    "PolicyEngine": "tests/policies/test_engine_port.py",
    "Model": "tests/graph/test_model_port.py",
    "BaseCheckpointSaver": "tests/checkpoints/test_saver_port.py",
}
"""By port. The last one is LangGraph's, and ours is one of its implementations."""

NO_PORTS = {"Node"}
"""Protocols that only name a shape for the type checker: nobody outside implements them."""


def test_every_port_has_a_contract_suite() -> None:
    """Every Protocol of the sources is a port with a suite, or is named as none."""
    protocols = {
        node.name
        for name in MODULES
        for node in ast.walk(parsed(name))
        if isinstance(node, ast.ClassDef) and any(ast.unparse(base) == "Protocol" for base in node.bases)
    }
    assert protocols == (set(SUITES) - {"BaseCheckpointSaver"}) | NO_PORTS


def test_every_contract_suite_runs_over_more_than_one_implementation() -> None:
    """One fixture with a parameter for each."""
    for port, name in SUITES.items():
        counts = [
            len(keyword.value.elts)
            for node in ast.walk(ast.parse((ROOT / name).read_text()))
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "pytest.fixture"
            for keyword in node.keywords
            if keyword.arg == "params" and isinstance(keyword.value, ast.List)
        ]
        assert max(counts, default=0) >= 2, port
