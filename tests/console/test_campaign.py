"""A campaign from the command line: what each command says, its JSON, and its exit code."""

from typing import Any

import pytest

from remit.sandbox import dump

from .conftest import CORRECTED, Remit

APPROVAL = {
    *(
        "id",
        "status",
        "late",
        "run",
        "purpose",
        "mandate",
        "agent",
        "owner",
        "grantor",
        "roles",
        "quorum",
        "quorum_of",
        "escalated_from",
        "on_expiry",
        "asked_at",
    ),
    *("decide_by", "actions", "undecided", "set_hash", "groups", "not_included", "asked_again", "changes"),
}
GROUP = {
    *(
        "step",
        "effect",
        "tool",
        "count",
        "each_minor",
        "total_minor",
        "currency",
        "reversibility",
        "consequence",
    ),
    *("first", "last", "reasons"),
}
ACTION = {
    *(
        "operation",
        "key",
        "revision",
        "subject",
        "tool",
        "intent",
        "request",
        "relied_on",
        "action_hash",
        "state",
    ),
    *("closed", "decision", "version", "step", "effect", "tool_version", "mandate"),
    *("edited_by", "asked_again", "changes"),
}
RUN = {
    *("id", "purpose", "mandate_hash", "owner", "agent", "agent_version", "status", "reason", "waits"),
    *("created_at", "ended_at", "worker", "held", "order_id", "limits"),
}
END = {"run", "purpose", "status", "reason", "waits", "cases", "met", "followed", "exit"}


def issued(remit: Remit) -> list[dict[str, Any]]:
    """The provider's own record."""
    found: list[dict[str, Any]] = dump(remit.home)["credits"]
    return found


def approve(remit: Remit, *words: str, token: str = "finance-lead") -> str:  # noqa: S107 - a file's name
    return remit.done("approve", remit.open_approval()["id"], "--token", token, *words)


def test_a_run_that_needs_a_person_is_exit_3_and_says_who(asked: Remit) -> None:
    """Nothing was sent, nobody holds the run, and the next step is on the screen."""
    (row,) = asked.json("runs")["runs"]
    assert set(row) == RUN
    assert (row["status"], row["waits"], row["held"]) == (
        "PAUSED_AWAITING_APPROVAL",
        {"approval": 24, "requirement": 24},
        False,
    )
    said = asked("resume", row["id"])
    assert said.code == 3
    assert "`remit inbox`" in said.out
    assert issued(asked) == []


def test_a_run_in_json_is_one_document(granted: Remit) -> None:
    """For scripts: no line of progress beside it."""
    end = granted.json("run", "outage-0611", "--token", "support-manager")
    assert set(end) == END
    assert (end["status"], end["exit"], end["cases"]) == ("PAUSED_AWAITING_APPROVAL", 3, 0)


def test_the_inbox_says_what_how_much_who_asks_who_decides_and_why(asked: Remit) -> None:
    """On the screen and in JSON, with a word about the missing worker."""
    found = asked.json("inbox")
    assert set(found) == {"closed", "orders", "warning", "approvals"}
    assert "remit work" in found["warning"]
    (approval,) = found["approvals"]
    (group,) = approval["groups"]
    assert (set(approval), set(group)) == (APPROVAL, GROUP)
    assert (group["count"], group["each_minor"], group["total_minor"], group["currency"]) == (
        24,
        1000,
        24_000,
        "USD",
    )
    out = asked.done("inbox")
    for passage in (
        "24 x 10.00 USD = 240.00 USD",
        "ask_above_amount (240.00 USD of credit.issue)",
        "asked by credit-agent",
        "finance_lead",
        "left)",
    ):
        assert passage in out


def test_an_approval_in_full_shows_exactly_what_would_be_sent(asked: Remit) -> None:
    """Each request, what it relied on, and the set's hash."""
    approval = asked.open_approval()
    (full,) = asked.json("inbox", approval["id"])["approvals"]
    assert len(full["actions_in_full"]) == 24
    assert all(set(action) == ACTION for action in full["actions_in_full"])
    out = asked.done("inbox", approval["id"])
    assert approval["set_hash"] in out
    assert "POST /credits" in out
    assert "customer:c-104" in out


@pytest.mark.parametrize(
    ("token", "more", "why"),
    [
        ("support-manager", (), "stands in the chain"),
        ("administrator", (), "in the chain"),
        ("finance-lead", ("--set", "v1:" + "0" * 64), "not the one that was shown"),
        ("finance-lead", ("--only", "c-999"), "no action for"),
    ],
)
def test_who_may_not_decide_changes_nothing(
    asked: Remit, token: str, more: tuple[str, ...], why: str
) -> None:
    """Each refusal says why, and every action is still undecided."""
    approval = asked.open_approval()
    said = asked("approve", approval["id"], "--token", token, *more)
    assert said.code == 1
    assert why in said.errors
    assert asked.open_approval()["undecided"] == 24


def test_an_unknown_approval_is_refused(asked: Remit) -> None:
    """With the command that lists those that there are."""
    for words in (("approve", "ap-000000", "--token", "finance-lead"), ("inbox", "ap-000000")):
        said = asked(*words)
        assert said.code == 1
        assert "`remit inbox`" in said.errors


def test_a_part_can_be_granted_and_the_rest_rejected(asked: Remit) -> None:
    """Each action is decided by itself; what is rejected is never sent."""
    assert "granted 2 actions; 22 undecided" in approve(asked, "--only", "104", "--only", "customer:c-205")
    id_ = asked.open_approval()["id"]
    assert "rejected 22 actions" in asked.done(
        "reject", id_, "--token", "finance-lead", "--because", "too many"
    )
    assert asked.json("inbox")["approvals"] == []
    asked("resume")
    assert sorted(credit["customer"] for credit in issued(asked)) == ["c-104", "c-205"]
    said = asked("approve", id_, "--token", "finance-lead")
    assert said.code == 1
    assert "decided already" in said.errors


@pytest.mark.slow
def test_an_approved_campaign_runs_to_its_end_and_only_once(asked: Remit) -> None:
    """`resume --wait` exits 0, the records hold, and neither a second run nor a corrected mandate sends more."""
    approve(asked)
    said = asked("resume", "--wait", "--timeout", "60")
    assert said.code == 0, said
    for passage in ("credit 24 completed", "waiting for: hold", "COMPLETED"):
        assert passage in said.out
    assert asked("sandbox", "check", "outage-0611", "--final").code == 0
    before = dump(asked.home)
    first = asked.last_run()
    again = asked("run", "outage-0611", "--token", "support-manager")
    assert again.code == 0
    assert f"of its proposals: completed already, by {first}." in again.out
    asked.done("mandate", "grant", CORRECTED, "--token", "support-manager", "--yes")
    assert asked("run", "outage-0611", "--token", "support-manager").code == 0
    after = dump(asked.home)
    assert (after["credits"], after["messages"]) == (before["credits"], before["messages"])
    shown = asked.done("status", "104")
    assert "matches the evidence; the text was not checked" in shown
    assert f"completed already, by {first}." in shown
    told = asked.done("status", "104", "--tell")
    assert "credit (10.00 USD): done" in told


def test_status_tells_each_fact_with_its_source(asked: Remit) -> None:
    """Of a purpose, of a run, of one customer: the same document."""
    approve(asked, "--only", "104")
    asked("resume", asked.last_run())
    found = asked.json("status", "104")
    assert set(found) == {"closed", "met", "orders", "stuck", "warning", "reports", "told", "verdicts"}
    (report,) = found["reports"]
    cell = next(cell for cell in report["cells"] if cell["step"] == "credit")
    assert (cell["subject"], cell["amount_minor"], cell["source"]) == (
        "customer:c-104",
        1000,
        "payments: credits by reference",
    )
    assert cell["fact"] in {"IN_PROGRESS", "COMPLETED"}
    assert found["told"]["outage-0611"]
    for which in ("outage-0611", asked.last_run()):
        (report,) = asked.json("status", which)["reports"]
        assert len(report["cells"]) == 24 * 3
    assert "customer:c-205" in asked.done("status")


def test_status_needs_neither_policy_nor_model(asked: Remit, monkeypatch: pytest.MonkeyPatch) -> None:
    """After an incident either may be away; the facts are asked of the systems of record."""
    monkeypatch.setenv("REMIT_POLICY_ENGINE", "server")
    monkeypatch.setenv("REMIT_MODEL_URL", "http://127.0.0.1:9/v1")
    assert "customer:c-104" in asked.done("status", "104")


def test_status_of_nothing_says_how_to_begin(remit: Remit, company: Remit) -> None:
    """An empty ledger is no error; an unknown name is one."""
    assert "remit mandate grant" in company.done("status")
    said = company("status", "c-999")
    assert said.code == 1
    assert "customer:c-104, c-104 or 104" in said.errors
    assert company("status", "--tell").code == 2


def test_a_held_message_can_be_kept_back(asked: Remit) -> None:
    """`holds` says what leaves when; what is kept back is closed, and asking again tells how late it is."""
    approve(asked)
    asked.control(settle_seconds=0)
    asked("resume")
    rows = asked.json("holds")["holds"]
    assert len(rows) == 24
    assert {
        "id",
        "key",
        "step",
        "subject",
        "effect",
        "run_id",
        "hold_until",
        "hold_seconds",
        "obstacle",
        "not_before",
        "release_by",
    } == set(rows[0])
    assert "outage-0611/notify/customer:c-104/1" in asked.done("holds")
    words = ("holds", "cancel", "outage-0611/notify/customer:c-104/1", "205", "--token", "support-manager")
    assert asked.done(*words).count("kept back") == 2
    assert len(asked.json("holds")["holds"]) == 22
    late = asked("holds", "cancel", "outage-0611/notify/customer:c-104/1", "--token", "support-manager")
    assert (late.code, "cancelled: kept back by support-manager" in late.out) == (1, True)
    unknown = asked("holds", "cancel", "c-999", "--token", "support-manager")
    assert (unknown.code, "`remit holds`" in unknown.errors) == (1, True)


def test_a_stop_is_in_force_and_its_summary_says_what_stands_where(asked: Remit) -> None:
    """The order stands over every listing, the run ends STOPPED with exit 4, and lifting starts nothing by itself."""
    out = asked.done("stop", "all", "--because", "wrong incident", "--token", "support-manager")
    for passage in (
        "STOP in force over all",
        '"wrong incident"',
        "24 x credit (240.00 USD): not sent",
        "remit work",
    ):
        assert passage in out
    for words in (("runs",), ("inbox",), ("holds",), ("token", "list"), ("mandate", "list"), ("status",)):
        assert "STOP in force over all" in asked.done(*words)
    (order,) = asked.json("runs")["orders"]
    assert set(order) == {"id", "kind", "scope", "value", "reason", "issued_by", "issued_at"}
    said = asked("resume")
    assert said.code == 4
    for passage in ("STOPPED", "`remit lift 1`", "`remit run outage-0611`"):
        assert passage in said.out
    assert asked.json("inbox")["approvals"] == []
    assert "lifted" in asked.done("lift", "1", "--token", "support-manager")
    assert asked.json("runs")["orders"] == []
    assert "No run can carry on" in asked.done("resume", "--wait")
    assert issued(asked) == []
    assert asked("run", "outage-0611", "--token", "support-manager").code == 3


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        (("stop", "everything"), 2, "remit stop all"),
        (("stop", "all", "outage-0611"), 2, "remit stop all"),
        (("stop", "run"), 2, "remit stop run RUN"),
        (("stop", "run", "run-000000"), 1, "nothing was stopped"),
        (("stop", "mandate", "outage-9999"), 1, "nothing was stopped"),
        (("stop", "tool", "issue_credt"), 2, "nothing was stopped. It has: "),
        (("stop", "effect", "credit"), 2, "credit.issue"),
        (("stop", "subject", "c-999"), 1, "nothing was stopped"),
        (("freeze", "all"), 1, "only a finance lead or an administrator freezes"),
        (("freeze", "everything"), 2, "remit freeze all"),
        (("lift", "99"), 1, "no order 99"),
        (("lift", "9" * 21), 2, "ORDER is the number of no order"),
    ],
)
def test_an_order_that_cannot_be_is_refused(
    staffed: Remit, words: tuple[str, ...], code: int, told: str
) -> None:
    """Whoever presses Stop must not believe that it worked when it did not."""
    said = staffed(*words, "--token", "support-manager")
    assert (said.code, told in said.errors) == (code, True), said
    assert staffed.json("runs")["orders"] == []


def test_a_stop_can_be_about_one_mandate_or_one_run(asked: Remit) -> None:
    """Its purpose or its id is enough, and pressing twice is one order."""
    for _ in range(2):
        asked.done("stop", "mandate", "outage-0611", "--because", "\udcff", "--token", "finance-lead")
    asked.done("stop", "run", asked.last_run(), "--token", "finance-lead")
    orders = asked.json("runs")["orders"]
    assert [(order["scope"], order["value"]) for order in orders] == [
        ("mandate", "outage-0611"),
        ("run", asked.last_run()),
    ]


def test_a_freeze_keeps_what_waits_and_lets_it_go_on_when_it_is_lifted(asked: Remit) -> None:
    """Nothing is sent and nothing is closed; the freeze stands over the listings and says who lifts it."""
    approve(asked, "--because", "looked at each")
    out = asked.done("freeze", "effect", "credit.issue", "--because", "month end", "--token", "finance-lead")
    assert "FREEZE in force over effect credit.issue" in out
    assert "24 x credit (240.00 USD): not sent; it waits until the freeze is lifted." in out
    said = asked("resume")
    assert (said.code, "A freeze is in force" in said.out) == (3, True), said
    assert issued(asked) == []
    asked.done("lift", "1", "--token", "finance-lead")
    asked.done("resume", "--wait")
    assert len(issued(asked)) == 24


def test_show_leads_from_the_plan_to_the_effect(asked: Remit) -> None:
    """A run, an operation by its number, and a key: what was said, judged, decided, tried and seen."""
    approve(asked, "--because", "looked at each")
    asked("resume")
    (run,) = asked.json("show", asked.last_run())["traces"]
    parts = {"run", "counts", "verdicts", "threads", "plans", "statements", "cases", "gates", "journal"}
    assert parts == set(run)
    out = asked.done("show", asked.last_run())
    assert "field_not_delegated" in out
    (trace,) = asked.json("show", "outage-0611/credit/customer:c-104/1")["traces"]
    assert {
        *("operation", "gates", "closed", "approvals", "attempts", "evidence"),
        *("hold_changes", "conflicts", "journal"),
    } == set(trace)
    assert trace["approvals"][0]["rationale"] == "looked at each"
    assert len(trace["attempts"]) == 1
    assert asked.json("show", str(trace["operation"]["id"]))["traces"][0]["operation"] == trace["operation"]
    out = asked.done("show", "outage-0611/credit/customer:c-104/1")
    for passage in ("attempt 1", "granted by finance-lead", "evidence for attempt 1", "operation.proposed"):
        assert passage in out


@pytest.mark.parametrize(
    "words", [("show", "run-000000"), ("show", "nothing/at/all/1"), ("resume", "run-000000")]
)
def test_an_unknown_thing_is_refused(staffed: Remit, words: tuple[str, ...]) -> None:
    """With where to look."""
    said = staffed(*words)
    assert said.code == 1
    assert "`remit runs`" in said.errors


def test_waiting_for_a_receiver_that_is_down_does_not_spin(asked: Remit) -> None:
    """Nothing is sent, the time limit holds, and the run was taken a few times only."""
    approve(asked)
    asked.done("sandbox", "fault", "add", "payments", "refuse")
    said = asked("resume", "--wait", "--timeout", "3")
    assert said.code == 3
    assert issued(asked) == []
    (trace,) = asked.json("show", asked.last_run())["traces"]
    assert sum(row["kind"] == "run.taken" for row in trace["journal"]) < 12


def test_without_an_answer_of_policy_nothing_is_sent(granted: Remit, monkeypatch: pytest.MonkeyPatch) -> None:
    """`policy check` is exit 1, the run pauses with that reason, and it goes on when policy answers again."""
    assert "known deny" in granted.done("policy", "check")
    monkeypatch.setenv("REMIT_POLICY_ENGINE", "server")
    assert "REMIT_OPA_URL" in granted("policy", "check").errors
    monkeypatch.setenv("REMIT_OPA_URL", "http://127.0.0.1:9")
    assert granted("policy", "check").code == 1
    said = granted("run", "outage-0611", "--token", "support-manager")
    assert said.code == 3
    assert "`remit policy check`" in said.out
    said = granted("resume", "--wait", "--timeout", "0.5")
    assert said.code == 3
    assert "`remit policy check`" in said.out
    assert granted.json("resume", "--wait", "--timeout", "0.5")["runs"][0]["waits"].get("policy")
    monkeypatch.delenv("REMIT_POLICY_ENGINE")
    assert granted("resume").code == 3
    assert granted.open_approval()["actions"] == 24


def test_the_catalogue_is_shown_and_checked(bare: Remit) -> None:
    """Without database or company: contracts, and what they guarantee."""
    found = bare.json("catalogue")
    assert set(found) == {"version", "tools"}
    assert "issue_credit" in bare.done("catalogue")
    assert "It is complete" in bare.done("catalogue", "--check")
