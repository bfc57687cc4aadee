"""What contracts name as shown is there to be run."""

import ast
from pathlib import Path

import pytest

from remit.tools.catalogue import credit_catalogue

ROOT = Path(__file__).parents[2]


def named() -> dict[str, str]:
    """By tool and part of its contract, the test that it names."""
    found = {}
    for tool in credit_catalogue().writes():
        contract = tool.contract
        if contract.undo is not None:
            found[f"{contract.name} undo"] = contract.undo.test
        if contract.key_probe is not None:
            found[f"{contract.name} key"] = contract.key_probe.shown_by
    return found


@pytest.mark.parametrize("test", named().values(), ids=named())
def test_what_a_contract_names_as_shown_exists(test: str) -> None:
    """`path::name` is a test function of this repository."""
    path, _, name = test.partition("::")
    functions = [
        node.name
        for node in ast.walk(ast.parse((ROOT / path).read_text()))
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
    ]
    assert name in functions
    assert name.startswith("test_")


def test_undo_tests_are_named_for_every_tool_that_can_be_taken_back() -> None:
    """Nothing is compared with an empty list."""
    assert {"issue_credit undo", "annotate_account undo", "send_email undo"} <= set(named())
