"""`remit policy`: the check, the counts of what got no answer, and a verdict in words."""

from typing import Any

import pytest

from remit.policies.silence import SILENCES

from .conftest import Remit

KEY = "outage-0611/credit/customer:c-104/1"
CHECK = {"engine", "revision", "answers", "code", "message", "silences"}
SILENCE = {"run_id", "code", "detail", "times", "actions", "first_at", "last_at"}
EXPLAINED = {"operation", "silence", "explained", "question", "again"}
PARTS = {
    *("verdict", "reasons", "cell", "declared", "at_least", "thresholds", "autonomy", "obligations"),
}


def at_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    """From now on policy is asked of a server that is not there."""
    monkeypatch.setenv("REMIT_POLICY_ENGINE", "server")
    monkeypatch.setenv("REMIT_OPA_URL", "http://127.0.0.1:9")


def test_the_check_says_what_answered_and_that_nothing_was_silent(remit: Remit) -> None:
    """The canary, the revision, and an empty count."""
    found = remit.json("policy", "check")
    assert set(found) == CHECK
    assert (found["engine"], found["answers"], found["code"], found["silences"]) == (
        "embedded",
        True,
        None,
        [],
    )


def test_a_check_without_an_answer_names_the_code_and_what_to_do(
    remit: Remit, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Exit 1, with the same code that is stored where something waits for policy; as a sentence and as JSON."""
    at_nobody(monkeypatch)
    said = remit("policy", "check")
    assert (said.code, said.out) == (1, "")
    assert said.errors.strip().endswith(SILENCES["policy_unreachable"].remedy)
    found = remit.json("policy", "check")
    assert (found["answers"], found["code"]) == (False, "policy_unreachable")
    assert remit("policy", "check", "--json").code == 1


def test_the_check_works_without_a_database_and_says_that_it_did_not_count(
    remit: Remit, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At three in the morning both may be away, and policy is what was asked about."""
    monkeypatch.setenv("REMIT_DATABASE_URL", "postgresql://user@127.0.0.1:9/none")
    said = remit("policy", "check")
    assert said.code == 0
    assert "known deny" in said.out
    assert said.errors.strip().endswith("Run `remit db up`.")
    assert remit.json("policy", "check")["silences"] is None


def test_a_silence_is_counted_apart_from_denials_wherever_it_is_shown(
    granted: Remit, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`policy check`, `show` and `status` name the code and say that it is no denial (F28)."""
    at_nobody(monkeypatch)
    assert granted("run", "outage-0611", "--token", "support-manager").code == 3
    (counted,) = granted.json("policy", "check")["silences"]
    assert set(counted) == SILENCE
    assert (counted["code"], counted["actions"]) == ("policy_unreachable", 0)
    monkeypatch.delenv("REMIT_POLICY_ENGINE")
    run = granted.last_run()
    line = "no answer from policy, which is no denial: policy_unreachable"
    for words in (("show", run), ("status", "outage-0611"), ("policy", "check")):
        assert line in " ".join(granted(*words).out.split()), words
    (trace,) = granted.json("show", run)["traces"]
    assert trace["verdicts"]["silences"] == [counted]
    assert granted.json("status", "outage-0611")["verdicts"][run]["silences"] == [counted]


def explained(remit: Remit) -> dict[str, Any]:
    found = remit.json("policy", "explain", KEY)
    assert set(found) == EXPLAINED
    return dict(found)


def test_a_request_for_approval_is_explained_in_words(asked: Remit) -> None:
    """Each reason, the matrix, which threshold of whom, who may approve, and that today's answer is the same."""
    said = asked.done("policy", "explain", KEY)
    flat = " ".join(said.split())
    for words in (
        "Verdict: needs approval, by policy r1-",
        "ask_above_count: The whole proposal",
        "240.00 USD of credit.issue",
        "The tool declares compensable, medium consequence",
        "A person is asked above 10 actions (mandate).",
        "1 approval of finance_lead, outside the chain of the mandate, within 24 hours",
        "Reserved at the claim: mandate:credit.issue/purpose/ever",
        "Without a person: ask_above:credit.issue/purpose/ever",
        "Asked again today with the same question, policy r1-",
        "says the same.",
    ):
        assert words in flat
    found = explained(asked)
    assert set(found["explained"]) == PARTS
    assert (found["again"]["same"], found["silence"]) == (True, None)
    assert found["question"]["evaluations"][0]["id"] == KEY
    assert found["question"]["context"]["proposal"]["credit"]["count"] == 24


def test_what_was_decided_is_explained_also_where_today_nobody_answers(
    asked: Remit, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The explanation is made from what was stored; that today nobody can be asked is said beside it."""
    at_nobody(monkeypatch)
    found = explained(asked)
    assert found["explained"]["verdict"] == "needs_approval"
    assert (found["again"]["same"], found["again"]["revision"]) == (None, None)
    assert "Asked again today: no answer." in asked.done("policy", "explain", KEY)


def test_an_operation_without_a_verdict_is_explained_as_a_silence(
    asked: Remit, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The engine's data changed, so everything is asked again, and the engine is silent: no verdict, and no denial."""
    run = asked.last_run()
    monkeypatch.setattr("remit.policies.revision.revision_of", lambda _: "r1-0000000000000000")
    at_nobody(monkeypatch)
    asked("resume", run)
    found = explained(asked)
    assert (found["explained"], found["silence"]["code"]) == (None, "policy_unreachable")
    said = asked.done("policy", "explain", KEY)
    assert "No verdict (policy_unreachable)" in said
    assert "nothing was denied" in " ".join(said.split())


def test_what_is_not_there_is_not_explained(remit: Remit) -> None:
    """A key that nobody proposed names the command that lists them."""
    said = remit("policy", "explain", KEY)
    assert said.code == 1
    assert said.errors.strip().endswith("See `remit show RUN`, or give its key.")
