"""`remit catalogue`, and the start that a misconfigured gate keeps from happening."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from remit.console import startup
from remit.policies.revision import load_policy
from remit.tools import catalogue as tools
from remit.tools.catalogue import Catalogue
from remit.tools.contracts import Contract, WriteTool
from tests.policies.cases import copied, policy_data, with_data

from .conftest import MANDATE, Remit

Settings = dict[str, Any]

ACTING = [
    ("run", "outage-0611", "--token", "support-manager"),
    ("resume",),
    ("work", "--once"),
    ("serve",),
    ("mandate", "grant", MANDATE, "--token", "support-manager", "--yes"),
]

USUAL = tools.credit_catalogue


@pytest.fixture
def away(bare: Remit, monkeypatch: pytest.MonkeyPatch) -> Remit:
    """An installation whose database nobody answers at: what fails earlier than that began nothing."""
    monkeypatch.setenv("REMIT_DATABASE_URL", "postgresql://user@127.0.0.1:9/none")
    return bare


def with_policy(patch: pytest.MonkeyPatch, folder: Path, change: Callable[[Settings], object]) -> None:
    """From now on the policy data is changed like this."""
    data = policy_data()
    change(data["remit"]["settings"])
    changed = with_data(copied(folder), data)
    patch.setattr(startup, "load_policy", lambda: load_policy(changed))


def with_contract(patch: pytest.MonkeyPatch, name: str, **changes: object) -> None:
    """From now on the contract of one tool says something else, or leaves out what is None here."""

    def altered(tool: WriteTool) -> WriteTool:
        if tool.contract.name != name:
            return tool
        said = {
            key: value
            for key, value in ({**tool.contract.__dict__, **changes}).items()
            if value != "left out"
        }
        made: WriteTool = type("Altered", (type(tool),), {"contract": Contract.model_validate(said)})()
        return made

    def made() -> Catalogue:
        usual = USUAL()
        return Catalogue([altered(tool) for tool in usual.writes()], usual.reads())

    patch.setattr(tools, "credit_catalogue", made)


def renamed(effects: dict[str, Any], old: str, new: str) -> None:
    effects[new] = effects.pop(old)


def misspelled(settings: Settings) -> None:
    renamed(settings["effects"], "account.annotate", "account.anotate")
    for role in settings["roles"].values():
        if "account.annotate" in role:
            renamed(role, "account.annotate", "account.anotate")


def with_another(settings: Settings) -> None:
    settings["effects"]["credit.isue"] = settings["effects"]["credit.issue"]


WRONG_DATA: dict[str, tuple[Callable[[Settings], object], str]] = {
    "misspelled": (misspelled, "Did you mean account.anotate?"),
    "spelled twice": (with_another, "credit.isue is reached by agents"),
    "unclassified undo": (
        lambda s: s["effects"].pop("email.correct"),
        "send_correction has the effect email.correct",
    ),
    "undo open to agents": (
        lambda s: s["effects"]["credit.reverse"].update(reached_by="agents"),
        "Correct its reached_by",
    ),
    "unknown approver": (
        lambda s: s["effects"]["credit.issue"].update(approvers=["finance_leed"]),
        "approvers that are no role: ['finance_leed']",
    ),
    "field of data missing": (lambda s: s["effects"]["email.send"].pop("approvers"), "Field required"),
}

WRONG_CONTRACTS: dict[str, tuple[str, dict[str, object], str]] = {
    "misspelled effect": ("send_email", {"effect": "email.sned"}, "Did you mean email.send?"),
    "unclassified tool": ("annotate_account", {"effect": "account.rewrite"}, "does not classify"),
    "missing field": ("issue_credit", {"visible_within": "left out"}, "visible_within: Field required"),
    "unknown role": (
        "issue_credit",
        {"undo": {"tool": "reverse_credit", "owner": "finance_leed", "approval": "per record", "test": "t"}},
        "Did you mean finance_lead?",
    ),
    "unknown decision": ("issue_credit", {"consequence": "middling"}, "consequence"),
}


@pytest.mark.parametrize("words", ACTING, ids=lambda words: words[0])
def test_nothing_that_acts_begins_while_a_gate_is_misconfigured(
    away: Remit, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]
) -> None:
    """(F12) Each command that could act ends before it asks for a database, with the tool and what to do."""
    with_contract(monkeypatch, "annotate_account", effect="account.rewrite")
    said = away(*words)
    assert (said.code, said.out) == (1, "")
    assert said.errors.startswith("annotate_account has the effect account.rewrite")


@pytest.mark.parametrize(("change", "told"), WRONG_DATA.values(), ids=WRONG_DATA)
def test_policy_data_that_does_not_fit_the_tools_does_not_start(
    away: Remit,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    change: Callable[[Settings], object],
    told: str,
) -> None:
    """(F12) A slip in the data is an error of its own, and never an effect that no rule finds."""
    with_policy(monkeypatch, tmp_path, change)
    said = away("resume")
    assert (said.code, said.out) == (1, "")
    assert told in " ".join(said.errors.split())


@pytest.mark.parametrize(("tool", "changes", "told"), WRONG_CONTRACTS.values(), ids=WRONG_CONTRACTS)
def test_contracts_that_do_not_fit_the_policy_do_not_start(
    away: Remit, monkeypatch: pytest.MonkeyPatch, tool: str, changes: dict[str, object], told: str
) -> None:
    """(F12) A slip in a contract is an error of its own, and never a tool that no gate is for."""
    with_contract(monkeypatch, tool, **changes)
    said = away("resume")
    assert (said.code, said.out) == (1, "")
    assert told in " ".join(said.errors.split())


def test_a_stop_needs_no_configuration_that_fits(staffed: Remit, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever else is wrong, it can be stopped and looked at."""
    with_contract(monkeypatch, "annotate_account", effect="account.rewrite")
    assert staffed("stop", "all", "--token", "support-manager", "--because", "misconfigured").code == 0
    assert staffed("runs").code == 0


def test_the_check_answers_for_every_writing_tool(bare: Remit) -> None:
    """Retry-safe, undo with owner, approver and test, what an irreversible effect is behind, and its records."""
    found = {row["tool"]: row for row in bare.json("catalogue", "--check")["tools"]}
    assert set(found) == {tool.contract.name for tool in USUAL().writes()}
    assert found["issue_credit"]["retry_safe"] is True
    assert found["issue_credit"]["undo"] == {
        "tool": "reverse_credit",
        "owner": "finance_lead",
        "approval": "finance-lead decides per record",
        "approved_by": ["finance_lead"],
        "test": "tests/tools/test_undo.py::test_a_settled_credit_is_reversed",
    }
    assert (found["send_email"]["irreversible"], found["send_email"]["retry_safe"]) == (True, False)
    assert "a hold of 5 s" in found["send_email"]["behind"]
    assert found["reverse_credit"]["behind"][0] == "approval by 1 of finance_lead"
    assert all("reference" in row["records"] and row["missing"] == [] for row in found.values())
    assert "It is complete" in bare.done("catalogue", "--check")


def test_the_check_names_the_tool_and_the_remedy_where_an_answer_is_missing(
    bare: Remit, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """An irreversible effect behind nothing is found, in words and as JSON, with exit 1."""
    with_policy(monkeypatch, tmp_path, lambda s: s["effects"]["email.send"].update(hold_seconds=0))
    said = bare("catalogue", "--check")
    assert said.code == 1
    assert "send_email cannot be taken back" in " ".join(said.errors.split())
    assert "It is complete" not in said.out
    rows = {row["tool"]: row for row in bare.json("catalogue", "--check")["tools"]}
    assert [name for name, row in rows.items() if row["missing"]] == ["send_email"]
    assert bare("catalogue", "--check", "--json").code == 1


def test_no_agent_s_mandate_reaches_what_takes_something_back(reading: Remit, tmp_path: Path) -> None:
    """The reader says so with the line; undo effects are for recovery."""
    text = Path(MANDATE).read_text().replace("effect: account.annotate", "effect: account.unannotate", 1)
    file = tmp_path / "mandate.yaml"
    file.write_text(text)
    said = reading("mandate", "grant", str(file), "--token", "support-manager", "--yes")
    assert said.code == 1
    assert "takes back what was done" in " ".join(said.errors.split())
