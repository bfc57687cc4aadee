"""The catalogue: tools that do not fit together do not start, and the model is told of what it may use."""

from __future__ import annotations

import ast
import json
from pathlib import Path
from typing import Any

import pytest

from remit.tools.accounts import ListAffectedAccounts, ReadAccount
from remit.tools.annotations import AnnotateAccount, RemoveNote
from remit.tools.catalogue import Catalogue, at_most_once, credit_catalogue
from remit.tools.contracts import ReadTool, WriteTool
from remit.tools.errors import Misconfigured, Refused
from remit.tools.mail import SendEmail
from remit.tools.payments import IssueCredit, IssueCreditLegacy
from remit.tools.reversals import ReverseCredit

ROOT = Path(__file__).parents[2]


def _altered(tool: WriteTool, **changes: Any) -> WriteTool:
    contract = tool.contract.model_copy(update=changes)
    made: WriteTool = type(type(tool).__name__, (type(tool),), {"contract": contract})()
    return made


def _reading(**changes: Any) -> ReadTool:
    contract = ReadAccount.contract.model_copy(update=changes)
    made: ReadTool = type("Reading", (ReadAccount,), {"contract": contract})()
    return made


def _undone_by(tool: str) -> Any:
    assert IssueCredit.contract.undo is not None
    return IssueCredit.contract.undo.model_copy(update={"tool": tool})


WHOLE = [IssueCredit(), ReverseCredit()]


@pytest.mark.parametrize(
    ("writes", "reads", "code", "named"),
    [
        ([*WHOLE, IssueCredit()], [], "duplicate_name", "issue_credit"),
        ([_altered(RemoveNote(), name="finish")], [], "duplicate_name", "finish"),
        (WHOLE, [_reading(name="issue_credit")], "duplicate_name", "issue_credit"),
        ([IssueCredit()], [], "undo_missing", "reverse_credit"),
        ([_altered(IssueCredit(), undo=_undone_by("issue_credit"))], [], "undo_effect", "credit.issue"),
        (
            [IssueCredit(), _altered(ReverseCredit(), effect="credit.issue")],
            [],
            "undo_effect",
            "reverse_credit",
        ),
        (
            [IssueCredit(), _altered(ReverseCredit(), for_agents=True)],
            [],
            "undo_for_agents",
            "reverse_credit",
        ),
        ([IssueCreditLegacy(), ReverseCredit()], [], "fallback_missing", "issue_credit"),
        (
            [_altered(IssueCredit(), fallback="issue_credit"), ReverseCredit()],
            [],
            "fallback_missing",
            "issue_credit",
        ),
        (
            [_altered(IssueCredit(), fallback="reverse_credit"), ReverseCredit()],
            [],
            "fallback_effect",
            "reverse_credit",
        ),
        ([IssueCredit(), _altered(ReverseCredit(), batch=5)], [], "batch_missing", "reverse_credit"),
        ([_altered(ReverseCredit(), reads_from=("ledger",))], [], "unknown_receiver", "ledger"),
        ([], [_reading(fields=("plan", "name"))], "pii_returned", "name"),
    ],
)
def test_tools_that_do_not_fit_together_do_not_start(
    writes: list[WriteTool], reads: list[ReadTool], code: str, named: str
) -> None:
    """The error names the tool or effect and ends with what to do."""
    with pytest.raises(Misconfigured, match=named) as caught:
        Catalogue(writes, reads)
    assert caught.value.code == code
    assert str(caught.value).endswith(".")


@pytest.mark.parametrize("receivers", [(), ("accounts",)])
def test_a_receiver_without_an_address_does_not_start(receivers: tuple[str, ...]) -> None:
    """Each tool's receiver must be one that the settings give an address to."""
    with pytest.raises(Misconfigured, match=r"issue_credit .* payments") as caught:
        Catalogue(WHOLE, [], receivers)
    assert caught.value.code == "unknown_receiver"


def test_the_credit_agents_tools_fit_together() -> None:
    """All tools of the agent are there, by effect and by name."""
    catalogue = credit_catalogue()
    paths = [tool.contract.name for tool in catalogue.tools_of("credit.issue")]
    assert paths == ["issue_credit", "issue_credit_legacy"]
    assert catalogue.tools_of("subscription.change") == []
    assert isinstance(catalogue.write("annotate_account"), AnnotateAccount)
    assert isinstance(catalogue.read("list_affected_accounts"), ListAffectedAccounts)
    assert {tool.contract.name for tool in catalogue.writes()} - {
        tool.contract.name for tool in catalogue.for_agents()
    } == {"reverse_credit", "remove_note", "send_correction"}


def test_an_unknown_name_is_refused_with_the_names_that_there_are() -> None:
    """A model that invents a tool learns what exists."""
    with pytest.raises(Refused, match="issue_credit"):
        credit_catalogue().write("delete_account")
    with pytest.raises(Refused, match="read_account"):
        credit_catalogue().read("issue_credit")


def test_the_model_is_told_of_reads_its_own_writes_and_finish() -> None:
    """Undo tools are not among them; every schema is closed and plain JSON."""
    told = credit_catalogue().openai_tools()
    assert [tool["function"]["name"] for tool in told] == [
        "list_affected_accounts",
        "read_account",
        "issue_credit",
        "issue_credit_legacy",
        "annotate_account",
        "send_email",
        "finish",
    ]
    for tool in told:
        assert (tool["type"], tool["function"]["parameters"]["additionalProperties"]) == ("function", False)
    assert '"title"' not in json.dumps(told)


def test_the_version_changes_with_whatever_a_tool_promises_or_takes() -> None:
    """Contracts and schemas are in it, the order of the tools is not."""
    version = Catalogue(WHOLE, []).version
    assert Catalogue(WHOLE[::-1], []).version == version
    altered = _altered(IssueCredit(), visible_within=2.001)
    assert Catalogue([altered, ReverseCredit()], []).version != version
    asking = type("Asking", (IssueCredit,), {"arguments": AnnotateAccount.arguments})()
    assert Catalogue([asking, ReverseCredit()], []).version != version
    assert len(version) == 12


def test_each_row_says_what_guarantees_at_most_one_effect() -> None:
    """A reader of the catalogue sees where the guarantee ends."""
    rows = {row["name"]: row for row in credit_catalogue().rows()}
    assert "enforces the key" in rows["issue_credit"]["at_most_once"]
    assert "proved dead" in rows["issue_credit_legacy"]["at_most_once"]
    assert "If-Match" in rows["annotate_account"]["at_most_once"]
    assert "at_most_once" not in rows["read_account"]
    blind = SendEmail.contract.model_copy(update={"visible_within": None})
    assert "a person decides" in at_most_once(blind)
    assert json.loads(json.dumps(rows)) == rows


def _named_tests() -> list[str]:
    contracts = [tool.contract for tool in credit_catalogue().writes()]
    undos = [contract.undo.test for contract in contracts if contract.undo is not None]
    return sorted({*undos, *(contract.key_probe.shown_by for contract in contracts if contract.key_probe)})


@pytest.mark.parametrize("named", _named_tests())
def test_every_test_that_a_contract_names_exists(named: str) -> None:
    """An undo or an enforced key is only claimed where a test shows it."""
    path, _, function = named.partition("::")
    tree = ast.parse((ROOT / path).read_text("utf-8"))
    defined = {node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}
    assert function in defined
