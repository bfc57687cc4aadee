"""Token files: who speaks, and no secret anywhere but in them."""

import os
from pathlib import Path

import pytest

from remit.console import identity
from remit.console.settings import load
from remit.tools.errors import Refused

from .conftest import Remit

KEYS = {
    *("id", "person", "natural_person", "role", "minted_by", "created_at", "expires_at", "revoked_at"),
    "expired",
}


def test_without_a_token_the_message_lists_those_that_there_are(staffed: Remit) -> None:
    """A newcomer learns from the refusal how to go on."""
    said = staffed("token", "new", "someone", "--role", "finance_lead")
    assert said.code == 1
    assert "--token FILE" in said.errors
    assert "administrator, finance-lead, support-manager" in said.errors


def test_a_token_is_minted_by_an_administrator_and_kept_for_its_owner_alone(staffed: Remit) -> None:
    """The secret is in a file of mode 0600 and on no screen."""
    out = staffed.done(
        "token", "new", "night-lead", "--role", "finance_lead", "--days", "2", "--token", "administrator"
    )
    file = staffed.home / "tokens" / "night-lead"
    assert file.stat().st_mode & 0o777 == 0o600
    assert file.read_text().strip() not in out
    assert str(file) in out
    rows = staffed.json("token", "list")["tokens"]
    assert {"administrator", "support-manager", "finance-lead", "night-lead"} == {
        row["person"] for row in rows
    }
    assert all(set(row) == KEYS for row in rows)


def test_only_an_administrator_mints(staffed: Remit) -> None:
    """Refused by the database, and no file is left behind."""
    said = staffed("token", "new", "second-lead", "--role", "finance_lead", "--token", "support-manager")
    assert said.code == 1
    assert "only an administrator" in said.errors
    assert not (staffed.home / "tokens" / "second-lead").exists()


def test_a_role_that_policy_does_not_know_is_refused(staffed: Remit) -> None:
    """(F12) A typo would be a token that may nothing; the canary's role is for the engine's own check."""
    for role in ("finance", "canary"):
        said = staffed("token", "new", "someone", "--role", role, "--token", "administrator")
        assert said.code == 1
        assert "administrator, finance_lead, support_manager" in said.errors


def test_a_token_file_is_never_overwritten(staffed: Remit) -> None:
    """Its token may still be in use, and nobody knows its secret but the file."""
    said = staffed("token", "new", "finance-lead", "--role", "finance_lead", "--token", "administrator")
    assert said.code == 1
    assert "there already" in said.errors
    assert len(staffed.json("token", "list")["tokens"]) == 3


def test_a_revoked_token_speaks_for_nobody(staffed: Remit) -> None:
    """From that moment on, and the list says so."""
    rows = staffed.json("token", "list")["tokens"]
    id_ = next(row["id"] for row in rows if row["person"] == "support-manager")
    assert id_ in staffed.done("token", "revoke", id_, "--token", "administrator")
    said = staffed("stop", "all", "--token", "support-manager")
    assert said.code == 1
    assert "was revoked" in said.errors
    assert "revoked" in staffed.done("token", "list")


def test_an_unknown_token_is_named_as_such(staffed: Remit) -> None:
    """The text of another installation's file proves nothing here."""
    foreign = staffed.home / "tokens" / "foreign"
    foreign.write_text("rmt_not-from-here\n")
    foreign.chmod(0o600)
    said = staffed("token", "revoke", "tok-1", "--token", "foreign")
    assert said.code == 1
    assert "not known here" in said.errors


def test_a_file_that_others_can_read_is_refused(clean: Path) -> None:
    """Whoever can read it can speak for that person."""
    settings = load()
    file = identity.keep(settings, "lead", "rmt_x")
    assert identity.secret(settings, "lead") == "rmt_x"
    file.chmod(0o644)
    with pytest.raises(Refused, match="chmod 600"):
        identity.secret(settings, "lead")


@pytest.mark.parametrize("kind", ["nothing", "empty", "binary", "nul", "pipe", "folder"])
def test_what_holds_no_token_is_refused_at_once(clean: Path, tmp_path: Path, kind: str) -> None:
    """Whatever stands under that name; a pipe without a writer keeps nobody waiting."""
    file = tmp_path / "token"
    match kind:
        case "empty":
            file.touch(mode=0o600)
        case "binary":
            file.write_bytes(b"\xff\xfe")
            file.chmod(0o600)
        case "nul":
            file.write_text("rmt_\0")
            file.chmod(0o600)
        case "pipe":
            os.mkfifo(file, 0o600)
        case "folder":
            file.mkdir(mode=0o700)
    with pytest.raises(Refused, match="token"):
        identity.secret(load(), str(file))


def test_the_variable_names_a_token_file_too(staffed: Remit, monkeypatch: pytest.MonkeyPatch) -> None:
    """For a person who works with one token all day."""
    monkeypatch.setenv("REMIT_TOKEN_FILE", str(staffed.home / "tokens" / "administrator"))
    staffed.done("token", "new", "someone", "--role", "support_manager")


def test_a_secret_is_never_taken_from_the_command_line_or_a_variable(
    staffed: Remit, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Refused without being repeated, with what to do about the secret that others may have read by now."""
    text = (staffed.home / "tokens" / "administrator").read_text().strip()
    by_word = staffed("token", "new", "someone", "--role", "finance_lead", "--token", text)
    monkeypatch.setenv("REMIT_TOKEN_FILE", text)
    by_variable = staffed("token", "new", "someone", "--role", "finance_lead")
    for said in (by_word, by_variable):
        assert (said.code, said.out) == (1, "")
        assert "`remit token revoke ID`" in said.errors
        assert text not in said.errors


def test_a_token_can_be_typed_at_a_terminal_and_is_not_shown(
    staffed: Remit, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With `--token -`, through the terminal's own prompt; where there is none, nobody waits for it."""
    words = ("token", "new", "someone", "--role", "finance_lead", "--token", "-")
    refused = staffed(*words)
    assert (refused.code, "at a terminal only" in refused.errors) == (1, True)
    text = (staffed.home / "tokens" / "administrator").read_text()
    for typed, code in (("", 1), ("rmt_nobodys", 1), (text, 0)):
        monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
        monkeypatch.setattr("getpass.getpass", lambda _, typed=typed: typed)
        said = staffed(*words)
        assert said.code == code, typed
        assert text.strip() not in said.out + said.errors


@pytest.mark.parametrize("person", ["", " ", "a\nb", "x" * 61])
def test_a_person_has_a_name_that_can_be_shown(staffed: Remit, person: str) -> None:
    """It stands in listings and decisions, on one line."""
    said = staffed("token", "new", person, "--role", "finance_lead", "--token", "administrator")
    assert said.code == 2
    assert said.errors.startswith("PERSON ")
    assert len(said.errors.splitlines()) == 1


def test_a_name_cannot_leave_the_folder(staffed: Remit) -> None:
    """Token files are kept together, or nobody knows where they are."""
    said = staffed("token", "new", "../elsewhere", "--role", "finance_lead", "--token", "administrator")
    assert said.code == 1
    assert "no name for a token file" in said.errors
