"""The pretended company's strings, pulled from the command line."""

import json
from datetime import datetime
from typing import Any

import pytest

from remit.sandbox import dump

from .conftest import Remit


def account(remit: Remit, customer: str) -> dict[str, Any]:
    return next(found for found in dump(remit.home)["accounts"] if found["id"] == customer)


def test_up_is_repeatable_and_makes_tokens_for_a_newcomer(company: Remit) -> None:
    """A second `up` finds everything there."""
    out = company.done("sandbox", "up")
    assert "The company runs" in out
    assert "A token for" not in out
    assert {file.name for file in (company.home / "tokens").iterdir()} == {
        "administrator",
        "finance-lead",
        "support-manager",
    }


def test_faults_are_added_listed_and_cleared(company: Remit) -> None:
    """By rule, with their hits."""
    words = ("payments", "reply_lost", "POST /credits", "--match", "customer=c-104", "--times", "2")
    company.done("sandbox", "fault", "add", *words)
    company.done("sandbox", "fault", "add", "mail", "delay", "--seconds", "0.1", "--times", "0")
    first, second = company.json("sandbox", "fault", "list")["faults"]
    assert (first["kind"], first["match"], first["times"], first["hits"]) == (
        "reply_lost",
        {"customer": "c-104"},
        2,
        0,
    )
    assert (second["route"], second["times"], second["seconds"]) == ("*", None, 0.1)
    company.done("sandbox", "fault", "clear", str(first["id"]))
    assert len(company.json("sandbox", "fault", "list")["faults"]) == 1
    company.done("sandbox", "fault", "clear")
    assert "no fault" in company.done("sandbox", "fault", "list")


def test_a_wrong_fault_is_refused_in_words(company: Remit) -> None:
    """The company's own message is shown."""
    for words, told in (
        (("payments", "nonsense"), "'kind' must be one of"),
        (("payments", "delay", "POST /nowhere", "--seconds", "1"), "has no route"),
        (("payments", "reply_lost", "*", "--match", "customer"), "FIELD=VALUE"),
    ):
        said = company("sandbox", "fault", "add", *words)
        assert said.code in {1, 2}
        assert told in said.errors
        assert "remit sandbox up" not in said.errors
    assert company.json("sandbox", "fault", "list")["faults"] == []


def test_an_employee_changes_an_account(company: Remit) -> None:
    """The change is in the history under the employee's name."""
    assert "version" in company.done("sandbox", "edit", "104", "plan=basic")
    assert account(company, "c-104")["plan"] == "basic"
    (change,) = json.loads(company.done("sandbox", "dump", "changes", "--customer", "104"))["changes"]
    assert (change["actor"], change["field"]) == ("employee", "plan")


def test_the_clock_moves_company_and_database_together(company: Remit) -> None:
    """A hold at one and a deadline at the other pass in the same step."""
    out = [company.done("sandbox", "clock", by) for by in ("2h", "+90s", "+0.5h")][-1]
    assert "2 hours ahead" in out
    database = company.json("db", "status")["company_time"]
    assert abs_seconds(dump(company.home)["as_of"], database) < 5


def test_a_fresh_company_takes_up_the_database_s_clock(company: Remit) -> None:
    """The ledger remembers its time; a world that begins earlier would be one where nothing has happened yet."""
    company.done("sandbox", "clock", "+1d")
    company.done("sandbox", "reset", "--yes")
    assert abs_seconds(dump(company.home)["as_of"], company.json("db", "status")["company_time"]) < 5


def abs_seconds(one: str, other: str) -> float:
    """How far two times are apart."""
    return abs((datetime.fromisoformat(one) - datetime.fromisoformat(other)).total_seconds())


@pytest.mark.parametrize("by", ["-2h", "+2", "soon", "+2h30m"])
def test_another_step_of_the_clock_is_wrong_usage(bare: Remit, by: str) -> None:
    """Time does not run backwards, and nothing is guessed."""
    assert bare("sandbox", "clock", "--", by).code == 2


def test_dump_prints_the_company_s_own_records(company: Remit) -> None:
    """All of them, one part, or one customer's."""
    everything = json.loads(company.done("sandbox", "dump"))
    assert {"accounts", "credits", "messages", "changes"} <= set(everything)
    assert len(everything["accounts"]) == 60
    mine = json.loads(company.done("sandbox", "dump", "--customer", "c-104"))
    assert [found["id"] for found in mine["accounts"]] == ["c-104"]
    assert set(json.loads(company.done("sandbox", "dump", "credits"))) == {"as_of", "credits"}


def test_dump_of_nothing_is_refused(company: Remit) -> None:
    """An empty document would look like an empty company."""
    assert company("sandbox", "dump", "nonsense").code == 2
    assert company("sandbox", "dump", "--customer", "999").code == 1


def test_check_judges_by_exit_code(company: Remit) -> None:
    """0 when nothing is breached, 1 with the findings."""
    assert "no invariant is breached" in company.done("sandbox", "check")
    said = company("sandbox", "check", "outage-0611", "--final")
    assert said.code == 1
    assert "customer:c-104" in said.out
    findings = company.json("sandbox", "check", "outage-0611", "--final")["findings"]
    assert {"invariant", "subject", "detail"} == set(findings[0])
    assert len(findings) == 24 * 3


def test_reset_asks_first(company: Remit) -> None:
    """Without a terminal it takes --yes."""
    company.done("sandbox", "edit", "104", "plan=basic")
    assert company("sandbox", "reset").code == 2
    assert account(company, "c-104")["plan"] == "basic"
    company.done("sandbox", "reset", "--yes")
    assert account(company, "c-104")["plan"] != "basic"


def test_reset_deletes_no_database_of_somebody_else(company: Remit) -> None:
    """REMIT_DATABASE_URL is not ours to drop."""
    said = company("sandbox", "reset", "--ledger", "--yes")
    assert said.code == 2
    assert "REMIT_DATABASE_URL" in said.errors


def test_down_keeps_what_the_company_knows(company: Remit) -> None:
    """Its records can be read while it is down, its strings cannot be pulled."""
    company.done("sandbox", "edit", "104", "plan=basic")
    assert "stopped" in company.done("sandbox", "down")
    assert account(company, "c-104")["plan"] == "basic"
    said = company("sandbox", "fault", "list")
    assert said.code == 1
    assert "`remit sandbox up`" in said.errors


def test_there_is_no_pretended_company_outside_the_sandbox(
    remit: Remit, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not even to look at."""
    monkeypatch.setenv("REMIT_ENVIRONMENT", "production")
    for words in (("up",), ("reset", "--yes"), ("dump",), ("fault", "list")):
        said = remit("sandbox", *words)
        assert said.code == 1
        assert "for the sandbox only" in said.errors or "REMIT_ENVIRONMENT" in said.errors
