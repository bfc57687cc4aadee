"""Delegation: read back in words, frozen over a cohort, granted by a person whose role may."""

from pathlib import Path

import pytest

from .conftest import CORRECTED, MANDATE, Remit

KEYS = {
    *("hash", "purpose", "agent", "grantor", "grantor_role", "granted_at", "valid_from", "valid_until"),
    *("superseded_at", "superseded_by", "revoked_at", "revoked_by", "state"),
}


def grant(remit: Remit, file: str = MANDATE) -> str:
    return remit.done("mandate", "grant", file, "--token", "support-manager", "--yes")


@pytest.fixture
def standing(reading: Remit) -> Remit:
    """The campaign's mandate is granted."""
    grant(reading)
    return reading


def changed(tmp_path: Path, old: str, new: str) -> str:
    """A mandate's file with one passage changed."""
    text = Path(MANDATE).read_text()
    assert old in text
    file = tmp_path / "changed.yaml"
    file.write_text(text.replace(old, new))
    return str(file)


def test_what_is_granted_is_read_back_in_words_first(reading: Remit) -> None:
    """From the compiled form, with the number of people and who says it."""
    out = grant(reading)
    for passage in (
        "exactly 10.00 USD",
        "Never: subscription.change",
        "24 subjects",
        "Granted by support-manager",
    ):
        assert passage in out
    assert out.index("exactly 10.00 USD") < out.index("Granted by")
    (row,) = reading.json("mandate", "list")["mandates"]
    assert set(row) == {*KEYS, "subjects"}
    assert (row["purpose"], row["subjects"], row["state"]) == ("outage-0611", 24, "live")


def test_without_a_terminal_nothing_is_granted_unsaid(reading: Remit) -> None:
    """Exit 2, and the ledger has no mandate."""
    assert reading("mandate", "grant", MANDATE, "--token", "support-manager").code == 2
    assert reading.json("mandate", "list")["mandates"] == []


def test_granting_again_changes_nothing(standing: Remit) -> None:
    """It is said plainly, and there is still one."""
    assert "already granted" in grant(standing)
    assert len(standing.json("mandate", "list")["mandates"]) == 1


def test_a_corrected_mandate_supersedes(standing: Remit) -> None:
    """Under the same purpose there is one live mandate, and the old one does not come back."""
    assert "supersedes" in grant(standing, CORRECTED)
    rows = standing.json("mandate", "list")["mandates"]
    assert sorted(row["state"] for row in rows) == ["live", "superseded"]
    said = standing("mandate", "grant", MANDATE, "--token", "support-manager", "--yes")
    assert said.code == 1
    assert "does not come back" in said.errors


def test_a_cohort_larger_than_delegated_is_refused(reading: Remit, tmp_path: Path) -> None:
    """The number in the mandate is a bound, not a wish."""
    file = changed(tmp_path, "at_most: 30", "at_most: 23")
    said = reading("mandate", "grant", file, "--token", "support-manager", "--yes")
    assert said.code == 1
    assert "24 customers" in said.errors
    assert "at most 23" in said.errors
    assert reading.json("mandate", "list")["mandates"] == []


def test_an_incident_that_nobody_knows_is_refused(reading: Remit, tmp_path: Path) -> None:
    """Its list would be empty, and an empty campaign looks like a finished one."""
    file = changed(tmp_path, "affected_by: outage-0611", "affected_by: outage-9999")
    said = reading("mandate", "grant", file, "--token", "support-manager", "--yes")
    assert said.code == 1
    assert reading.json("mandate", "list")["mandates"] == []


def test_a_role_cannot_delegate_what_it_does_not_hold(reading: Remit) -> None:
    """An administrator mints tokens and moves no money; the message says whose role may."""
    said = reading("mandate", "grant", MANDATE, "--token", "administrator", "--yes")
    assert said.code == 1
    assert "finance_lead, support_manager may" in said.errors


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("mandate: 1", "mandate: 2", "changed.yaml:"),
        ('exactly: "10.00 USD"', "exactly: 10.00", "Put it in quotes"),
        ("effect: email.send", "effect: email.shout", "email.shout"),
    ],
)
def test_a_wrong_mandate_is_refused_with_its_line(
    reading: Remit, tmp_path: Path, old: str, new: str, told: str
) -> None:
    """Nothing is guessed."""
    said = reading("mandate", "grant", changed(tmp_path, old, new), "--token", "support-manager", "--yes")
    assert said.code == 1
    assert told in said.errors


def test_a_file_that_is_not_there_is_refused(reading: Remit) -> None:
    """As any other mistake: a sentence."""
    said = reading("mandate", "grant", "nowhere.yaml", "--token", "support-manager", "--yes")
    assert said.code == 1
    assert "nowhere.yaml" in said.errors


def test_a_company_that_does_not_answer_freezes_no_cohort(
    reading: Remit, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is granted over a list that could not be read."""
    monkeypatch.setenv("REMIT_ACCOUNTS_URL", "http://127.0.0.1:9")
    said = reading("mandate", "grant", MANDATE, "--token", "support-manager", "--yes")
    assert said.code == 1
    assert "accounts" in said.errors
    assert reading.json("mandate", "list")["mandates"] == []


@pytest.mark.parametrize("by", ["purpose", "hash", "beginning", "file"])
def test_a_mandate_is_shown_by_any_of_its_names(standing: Remit, by: str) -> None:
    """In words, with its subjects and its standing."""
    (row,) = standing.json("mandate", "list")["mandates"]
    which = {"purpose": "outage-0611", "hash": row["hash"], "beginning": row["hash"][3:11], "file": MANDATE}[
        by
    ]
    shown = standing.json("mandate", "show", which)
    assert set(shown) == {*KEYS, "words", "document", "subjects"}
    assert len(shown["subjects"]) == 24
    assert "live" in standing.done("mandate", "show", which)


def test_an_unknown_mandate_is_refused(remit: Remit) -> None:
    """And the message says how one comes into being."""
    said = remit("mandate", "show", "outage-9999")
    assert said.code == 1
    assert "`remit mandate grant FILE`" in said.errors


def test_revoking_is_for_good(standing: Remit, monkeypatch: pytest.MonkeyPatch) -> None:
    """No run begins any more, and the very same mandate is not granted again."""
    assert standing("mandate", "revoke", "outage-0611", "--token", "support-manager").code == 2
    standing.done("mandate", "revoke", "outage-0611", "--token", "support-manager", "--yes")
    assert "revoked by support-manager" in standing.done("mandate", "show", "outage-0611").lower()
    monkeypatch.setenv("REMIT_MODEL_URL", "http://127.0.0.1:9/v1")
    monkeypatch.setenv("REMIT_MODEL_KEY", "unused")
    monkeypatch.setenv("REMIT_MODEL_NAME", "unused")
    said = standing("run", "outage-0611", "--token", "support-manager")
    assert said.code == 1
    assert "not in force" in said.errors
    assert standing("mandate", "grant", MANDATE, "--token", "support-manager", "--yes").code == 1
