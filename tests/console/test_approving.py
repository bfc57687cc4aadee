"""Deciding from the command line: what the screen shows, part by part, taken back, edited, and who is told."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from remit.console import exact
from remit.console.render import exact as literal
from remit.console.screen import say
from remit.sandbox import dump
from tests.fixtures import Bench, Tokens

from .conftest import Remit

TWO = ["customer:c-104", "customer:c-205"]
HOSTILE = "pay \u202e\x1b[31m <b>&amp; [bold]\u200b \\u202e \ufeff"
"""Reversed, coloured, marked up, invisible, and a text that looks like the number of a sign."""


def credited(remit: Remit) -> list[str]:
    """The provider's own record."""
    return sorted(credit["customer"] for credit in dump(remit.home)["credits"])


def test_the_screen_is_short_and_says_what_it_leaves_out(asked: Remit) -> None:
    """24 alike are one line; the whole request fits a glance, and names what waits for it and why."""
    out = asked.done("inbox")
    about = out[out.index("ap-") :].splitlines()
    assert len(about) <= 12
    assert "24 x 10.00 USD = 240.00 USD" in about[1]
    assert "  not included: 24 of step notify wait for another step" in about
    assert (
        "  not included: 1 of step annotate are closed: denied (field_not_delegated, never_listed)" in about
    )


def test_some_are_approved_and_the_rest_rejected_in_one_breath(asked: Remit) -> None:
    """Named by subject, hash or key, never by a place in the list; the reason is kept with both."""
    approval = asked.open_approval()
    (full,) = asked.json("inbox", approval["id"])["approvals"]
    by_name = {one["subject"]: one for one in full["actions_in_full"]}
    out = asked.done(
        *("approve", approval["id"], "--token", "finance-lead", "--reject-rest", "--because", "only these"),
        *("--only", "104", "--only", by_name["customer:c-205"]["action_hash"]),
    )
    assert "granted 2 actions; 22 undecided" in out
    assert "rejected 22 actions; 0 undecided" in out
    asked("resume")
    assert credited(asked) == ["c-104", "c-205"]
    key = by_name["customer:c-104"]["key"]
    assert "only these" in asked.done("show", key)


def test_a_rest_without_a_choice_is_refused(asked: Remit) -> None:
    """`--reject-rest` alone would be an approval of everything."""
    id_ = asked.open_approval()["id"]
    said = asked("approve", id_, "--token", "finance-lead", "--reject-rest")
    assert said.code == 2
    assert "--only" in said.errors
    assert asked.open_approval()["undecided"] == 24


def test_a_grant_is_taken_back_and_asked_about_anew(asked: Remit) -> None:
    """Before anything was claimed; the new request says why it is asked again."""
    id_ = asked.open_approval()["id"]
    asked.done("approve", id_, "--token", "finance-lead")
    out = asked.done("unapprove", id_, "--only", "104", "--because", "wrong list", "--token", "finance-lead")
    assert "1 action taken back, 0 actions too late." in out
    asked("resume")
    assert "c-104" not in credited(asked)
    again = asked.open_approval()
    assert (again["actions"], len(again["asked_again"])) == (1, 1)
    assert "taken back by finance-lead: wrong list" in asked.done("inbox")
    said = asked("unapprove", id_, "--only", "205", "--token", "finance-lead")
    assert "0 actions taken back, 1 action too late." in said.out


def test_a_revoked_tokens_grants_are_void(asked: Remit) -> None:
    """The command says how many, and nothing of them is sent."""
    asked.done("approve", asked.open_approval()["id"], "--token", "finance-lead")
    rows = asked.json("token", "list")["tokens"]
    token = next(row["id"] for row in rows if row["person"] == "finance-lead")
    assert "24 actions" in asked.done("token", "revoke", token, "--token", "administrator")
    assert asked("resume").code == 3
    assert credited(asked) == []
    assert asked.open_approval()["actions"] == 24


def test_a_second_identity_is_listed_with_whom_it_is_and_decides_nothing_in_the_chain(asked: Remit) -> None:
    """One human being is one voice, under whatever name."""
    asked.done(
        *("token", "new", "night-desk", "--role", "finance_lead", "--natural", "support-manager"),
        *("--token", "administrator"),
    )
    assert "night-desk (is support-manager)" in asked.done("token", "list")
    said = asked("approve", asked.open_approval()["id"], "--token", "night-desk")
    assert said.code == 1
    assert "chain" in said.errors


def test_what_the_mandate_fixes_cannot_be_edited(asked: Remit) -> None:
    """Said with what to do instead, and nothing is changed by it."""
    approval = asked.open_approval()
    (full,) = asked.json("inbox", approval["id"])["approvals"]
    number = str(full["actions_in_full"][0]["operation"])
    for words, code in (
        ((number, "amount_minor=1"), 1),
        ((number, "nothing"), 2),
        (("999999", "notes=x"), 1),
    ):
        said = asked("edit", *words, "--token", "finance-lead")
        assert said.code == code
        assert said.errors.rstrip().endswith(".")
    assert asked.open_approval()["undecided"] == 24


def test_people_are_told_by_a_command_and_what_failed_stands_over_the_inbox(
    asked: Remit, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`remit work` tells; until somebody takes it, listings say so."""
    said = asked.json("notices")["notices"]
    assert {row["kind"] for row in said} == {"approval.wanted", "run.paused"}
    assert "REMIT_NOTIFY_URL" in asked.done("notices")
    monkeypatch.setenv("REMIT_NOTIFY_COMMAND", f"{sys.executable} -c 'raise SystemExit(4)'")
    asked.done("work", "--once")
    assert "ended with code 4" in asked.json("inbox")["warning"]
    assert "not told: " in asked.done("notices")
    file = tmp_path / "told"
    script = "import sys; open(sys.argv[1], 'a').write(sys.stdin.read() + chr(10))"
    monkeypatch.setenv("REMIT_NOTIFY_COMMAND", f'{sys.executable} -c "{script}" {file}')
    with asked.process("work") as worker:
        _until(lambda: asked.json("notices")["notices"] == [])
        worker.terminate()
        assert worker.wait(30) == 0
    told = [json.loads(line) for line in file.read_text().splitlines()]
    assert sorted(one["type"] for one in told) == ["approval.wanted", "run.paused"]
    assert {row["told_at"] is None for row in asked.json("notices", "--all")["notices"]} == {False}


def test_an_address_without_a_secret_does_not_start(bare: Remit, monkeypatch: pytest.MonkeyPatch) -> None:
    """Unsigned notices could be anybody's."""
    monkeypatch.setenv("REMIT_NOTIFY_URL", "https://127.0.0.1:9/told")
    said = bare("inbox")
    assert said.code == 1
    assert "REMIT_NOTIFY_SECRET" in said.errors


def _until(condition: Any, seconds: float = 30.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not come to that in time"


async def test_what_changed_is_asked_again_with_old_and_new_value_and_the_rest_goes_on(
    bench: Bench, tokens: Tokens, capsys: pytest.CaptureFixture[str]
) -> None:
    """A premise that moved on makes another action of it: the difference is shown, the unusual one first (F16)."""
    lease = await bench.run_over(tokens, TWO)
    ids = await bench.propose(lease, "credit", TWO, verdict="needs_approval")
    place = {"run": lease.run_id, "token": lease.token}
    await bench.database.rows("ask_approvals", **place, new_id="ap-abcdef")
    (asked,) = await bench.database.rows("approvals", which=None)
    await bench.people.decide(
        tokens.finance_lead, asked["id"], asked["set_hash"], grant=True, rationale="", only=ids[1:]
    )
    await bench.database.rows("close_pending", **place, ids=ids[:1], closed="stale", detail="")
    again = await bench.propose(
        lease, "credit", TWO[:1], verdict="needs_approval", premises={"exists": True, "others": 1}
    )
    await bench.database.rows("ask_approvals", **place, new_id="ap-again1")
    assert await bench.obstacles([*again, *ids[1:]]) == ["ready", "approval"]
    (action,) = await exact.actions(bench.database, "ap-again1")
    assert action["changes"] == [{"field": "relied_on.others", "old": 0, "new": 1}]
    exact.show([action])
    assert "changed: relied_on.others: 0 -> 1" in capsys.readouterr().out


async def test_unusual_actions_stand_first(bench: Bench, tokens: Tokens) -> None:
    """One of another amount is not lost among those that are alike."""
    many = [f"customer:c-{number}" for number in range(201, 221)]
    lease = await bench.run_over(tokens, many)
    await bench.propose(lease, "credit", many[:-1], verdict="needs_approval")
    said = {"amount_minor": 999, "currency": "USD"}
    await bench.propose(lease, "credit", many[-1:], verdict="needs_approval", said=said)
    await bench.database.rows("ask_approvals", run=lease.run_id, token=lease.token, new_id="ap-abcdef")
    found = await exact.actions(bench.database, "ap-abcdef")
    assert found[0]["subject"] == many[-1]
    assert len(found) == 20


def test_no_sign_of_a_value_hides_acts_or_is_mistaken_for_another(capsys: pytest.CaptureFixture[str]) -> None:
    """Every sign that shows nothing stands by its number; markup stays text; the value can be read back exactly."""
    shown = literal({"notes": HOSTILE, "other": ["\u2066", 1, None]})
    assert not [sign for sign in shown if not sign.isprintable()]
    for passage in (
        "\\u202e",
        "\\u001b[31m",
        "<b>&amp; [bold]",
        "\\u200b",
        "\\\\u202e",
        "\\ufeff",
        "\\u2066",
    ):
        assert passage in shown
    assert json.loads(shown)["notes"] == HOSTILE
    say(shown)
    assert capsys.readouterr().out == shown + "\n"
