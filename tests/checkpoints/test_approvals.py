"""What becomes of approvals: who may give one, how long it stands, and what takes it away again. I3."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import psycopg
import pytest

from remit.checkpoints.database import json
from remit.checkpoints.embedded_access import Urls
from remit.tools.errors import Refused
from remit.tools.ports import Lease
from tests.fixtures import AGENT, ASK_FINANCE, HOUR, Bench, Obligations, Tokens, mandate_over

TWO = ["customer:c-104", "customer:c-205"]
BOTH: Obligations = {
    **ASK_FINANCE,
    "approvers": ["finance_lead", "support_manager"],
    "quorum": 2,
    "quorum_of": {"finance_lead": 1, "support_manager": 1},
}


async def ask(bench: Bench, lease: Lease, new_id: str = "ap-abcdef") -> list[str]:
    """Asks about everything of the run that nobody was asked about: the ids of the new approvals."""
    rows = await bench.database.rows("ask_approvals", run=lease.run_id, token=lease.token, new_id=new_id)
    return [row["id"] for row in rows]


async def asked(
    bench: Bench, tokens: Tokens, obligations: Obligations = ASK_FINANCE, **row: Any
) -> tuple[Lease, dict[str, Any], list[int]]:
    """A run of two credits that need a person: its lease, the approval, the operations."""
    lease = await bench.run_over(tokens, TWO)
    ids = await bench.propose(lease, "credit", TWO, verdict="needs_approval", obligations=obligations, **row)
    (id_,) = await ask(bench, lease)
    return lease, await approval_of(bench, id_), ids


async def approval_of(bench: Bench, id_: str) -> dict[str, Any]:
    (row,) = await bench.database.rows("approvals", which=id_)
    return row


async def grant(bench: Bench, secret: str, approval: dict[str, Any], **more: Any) -> dict[str, Any]:
    return await bench.people.decide(
        secret, approval["id"], approval["set_hash"], grant=True, rationale="seen", **more
    )


async def refusal(bench: Bench, secret: str, approval: dict[str, Any], **more: Any) -> str:
    """The code with which a grant is refused."""
    with pytest.raises(Refused) as refused:
        await grant(bench, secret, approval, **more)
    return refused.value.code


async def minted(
    bench: Bench, tokens: Tokens, person: str, role: str = "finance_lead", natural: str | None = None
) -> str:
    """The secret of another token, minted by the administrator."""
    return (await bench.people.mint(tokens.administrator, person, role, HOUR, natural))[1]


async def judged_again(bench: Bench, lease: Lease, ids: list[int], **obligations: Any) -> None:
    """Another policy revision asks for a person again, with other obligations."""
    columns = {
        "verdict": "needs_approval",
        "reasons": [{"code": "supervised"}],
        "obligations": {**ASK_FINANCE, **obligations},
    }
    more = {"policy_engine": "test", "policy_revision": "next", "decision_id": "d", "closed_detail": None}
    rows = json([{"id": id_, **columns, **more} for id_ in ids])
    await bench.database.rows("judge", run=lease.run_id, token=lease.token, rows=rows)


# --- Who may decide


@pytest.mark.parametrize("amount", [1, 999, 1_000_000])
async def test_the_requester_does_not_approve_under_any_identity_at_any_amount(
    bench: Bench, tokens: Tokens, amount: int
) -> None:
    """A second identity of the same natural person, in the right role, is the same person (F17)."""
    _, approval, ids = await asked(bench, tokens, said={"amount_minor": amount, "currency": "USD"})
    other = await minted(bench, tokens, "night-desk", natural="support-manager")
    assert await refusal(bench, other, approval) == "in_the_chain"
    assert await refusal(bench, tokens.support_manager, approval) == "in_the_chain"
    assert await bench.obstacles(ids) == ["approval", "approval"]


async def test_who_has_a_token_from_the_chain_through_other_hands_is_in_it(bench: Bench) -> None:
    """A grantor who is an administrator cannot make an administrator who makes the person that approves."""
    _, root, _ = await bench.people.mint(None, "root", "administrator", HOUR)
    _, grantor, _ = await bench.people.mint(root, "support-manager", "administrator", HOUR)
    _, middle, _ = await bench.people.mint(grantor, "middle", "administrator", HOUR)
    _, made, _ = await bench.people.mint(middle, "made-up", "finance_lead", HOUR)
    _, outside, _ = await bench.people.mint(root, "finance-lead", "finance_lead", HOUR)
    _, second, _ = await bench.people.mint(root, "night-desk", "finance_lead", HOUR, "root")
    _, approval, _ = await asked(bench, Tokens(root, grantor, outside))
    assert await refusal(bench, made, approval) == "in_the_chain"
    assert await refusal(bench, second, approval) == "in_the_chain", "who made the grantor's token"
    assert (await grant(bench, outside, approval))["decided"] == 2


async def test_administrators_approve_nothing_even_where_an_approval_names_them(
    bench: Bench, tokens: Tokens
) -> None:
    """Whoever makes identities could otherwise be any of them."""
    obligations = {**ASK_FINANCE, "approvers": ["administrator", "finance_lead"]}
    _, root, _ = await bench.people.mint(tokens.administrator, "other-root", "administrator", HOUR)
    _, approval, _ = await asked(bench, tokens, obligations)
    assert await refusal(bench, root, approval) == "administrator"


async def test_an_identity_belongs_to_one_natural_person_for_good(bench: Bench, tokens: Tokens) -> None:
    """What an identity said cannot become another person's word; its next token is the same person's."""
    with pytest.raises(Refused, match="stays one"):
        await minted(bench, tokens, "finance-lead", natural="somebody-else")
    secret = await minted(bench, tokens, "night-desk", natural="finance-lead")
    again = await minted(bench, tokens, "night-desk")
    assert {(await bench.people.whoami(s))["natural_person"] for s in (secret, again)} == {"finance-lead"}


async def test_one_natural_person_is_one_voice_of_a_quorum(bench: Bench, tokens: Tokens) -> None:
    """Two tokens and two roles of one person are not two people."""
    _, approval, ids = await asked(bench, tokens, BOTH)
    both = await minted(bench, tokens, "night-desk", "support_manager", natural="finance-lead")
    assert (await grant(bench, tokens.finance_lead, approval))["outcome"] == "noted"
    assert await refusal(bench, both, approval) == "already_voted"
    assert await bench.obstacles(ids) == ["approval", "approval"]


async def test_a_quorum_of_roles_needs_each_role(bench: Bench, tokens: Tokens) -> None:
    """Two finance leads do not stand for one finance lead and one support manager."""
    _, approval, ids = await asked(bench, tokens, BOTH)
    second = await minted(bench, tokens, "second-lead")
    manager = await minted(bench, tokens, "second-manager", "support_manager")
    assert [(await grant(bench, s, approval))["outcome"] for s in (tokens.finance_lead, second)] == [
        "noted"
    ] * 2
    assert await bench.obstacles(ids) == ["approval", "approval"]
    assert (await grant(bench, manager, approval))["outcome"] == "granted"
    assert await bench.obstacles(ids) == ["ready", "ready"]


async def test_the_agents_role_cannot_write_a_decision(bench: Bench, tokens: Tokens) -> None:
    """Neither a request, nor a vote, nor a decision, nor an edit enters but through the functions (F11)."""
    _, _, ids = await asked(bench, tokens)
    tries = (
        "INSERT INTO remit.votes (approval_id, person, role, decision) VALUES ('ap-abcdef', 'x', 'x', 'granted')",
        "UPDATE remit.approval_items SET decision = 'granted', execute_by = now() + interval '1 day'",
        "UPDATE remit.approvals SET roles = '{support_manager}'",
        "INSERT INTO remit.approvals SELECT * FROM remit.approvals",
        "UPDATE remit.tokens SET natural_person = 'nobody'",
        "INSERT INTO remit.edits (operation_id) VALUES (1)",
        "SELECT remit.settle_votes(a, '{1}', 'granted') FROM remit.approvals a",
        "SELECT remit.void_votes('{1}', 'no')",
    )
    for statement in tries:
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            await bench.sql(statement)
    assert await bench.obstacles(ids) == ["approval", "approval"]


# --- Decisions that come early, late, twice, malformed or from nobody


async def test_a_decision_about_what_was_never_asked_is_refused_and_kept(
    bench: Bench, tokens: Tokens
) -> None:
    """An id that somebody made up, or guessed before it was asked, decides nothing then or later (F02, F11)."""
    early = {"id": "ap-abcdef", "set_hash": "v1:" + "0" * 64}
    assert await refusal(bench, tokens.finance_lead, early) == "no_such_approval"
    _, approval, ids = await asked(bench, tokens)
    assert approval["id"] == early["id"]
    assert approval["undecided"] == 2
    assert await bench.obstacles(ids) == ["approval", "approval"]
    assert [r["code"] for r in await bench.sql("SELECT code FROM remit.refused_decisions")] == [
        "no_such_approval"
    ]


@pytest.mark.parametrize("said", ["APPROVE", "true", "", "Granted", None, "false", "{}"])
async def test_a_decision_of_another_shape_is_none(bench: Bench, tokens: Tokens, said: str | None) -> None:
    """`granted` or `rejected`; any other form changes nothing, and the right one counts once after it (F07, F08)."""
    _, approval, ids = await asked(bench, tokens)
    names = {"approval": approval["id"], "set_hash": approval["set_hash"], "only": None, "rationale": ""}
    for _ in range(2):
        with pytest.raises(Refused, match="Nothing was decided"):
            await bench.database.rows("decide", secret=tokens.finance_lead, decision=said, **names)
    assert await bench.obstacles(ids) == ["approval", "approval"]
    assert await bench.sql("SELECT id FROM remit.votes") == []
    assert (await grant(bench, tokens.finance_lead, approval))["decided"] == 2


async def test_a_double_click_decides_once(bench: Bench, tokens: Tokens) -> None:
    """Two identical grants at the same moment: one counts, and the other hears that it was decided already (F13)."""
    lease, approval, ids = await asked(bench, tokens)
    tries = await asyncio.gather(
        *(grant(bench, tokens.finance_lead, approval) for _ in range(2)), return_exceptions=True
    )
    assert Counter(getattr(one, "code", "granted") for one in tries) == {"granted": 1, "already_decided": 1}
    assert len(await bench.sql("SELECT id FROM remit.votes")) == len(ids)
    await bench.settled(lease, ids)
    assert [(await bench.operation(id_))["attempts"] for id_ in ids] == [1, 1]


async def test_a_replayed_decision_is_refused_and_who_decides_is_the_tokens_person(
    bench: Bench, tokens: Tokens
) -> None:
    """No parameter names a person, and the same words ten minutes later decide nothing (F19)."""
    lease, approval, _ = await asked(bench, tokens)
    said = await bench.people.decide(
        tokens.finance_lead, approval["id"], approval["set_hash"], grant=True, rationale="by support-manager"
    )
    assert said["person"] == "finance-lead"
    await bench.database.rows("advance_clock", seconds=600)
    assert await refusal(bench, tokens.finance_lead, approval) == "already_decided"
    (again,) = await bench.sql("SELECT person, code, run_id FROM remit.refused_decisions")
    assert again == {"person": "finance-lead", "code": "already_decided", "run_id": lease.run_id}
    parameters = await bench.sql("SELECT proargnames FROM pg_proc WHERE proname = 'decide'")
    assert not {"p_person", "p_role", "p_natural_person"} & set(parameters[0]["proargnames"])


async def test_one_click_releases_the_waiting_action_and_not_its_twin(bench: Bench, tokens: Tokens) -> None:
    """A second run's request for the same change meets the first one's row, so one approval is one effect (F13)."""
    lease, approval, ids = await asked(bench, tokens)
    other = await bench.leased(await bench.started(tokens, mandate_over()))
    assert await bench.propose(other, "credit", TWO, verdict="needs_approval") == []
    assert await ask(bench, other, "ap-other1") == []
    await grant(bench, tokens.finance_lead, approval)
    await bench.settled(lease, ids)
    rows = await bench.sql("SELECT count(*) AS n FROM remit.attempts")
    assert rows == [{"n": 2}]


async def test_a_grant_without_a_time_counts_as_expired_and_the_run_can_be_read(
    bench: Bench, tokens: Tokens, ledger_database: Urls
) -> None:
    """Where no end is known, it is over: nothing is sent, and no screen breaks on it (F66)."""
    lease, approval, ids = await asked(bench, tokens)
    await grant(bench, tokens.finance_lead, approval)
    async with await psycopg.AsyncConnection.connect(ledger_database.owner_url, autocommit=True) as owner:
        await owner.execute("UPDATE remit.approval_items SET execute_by = NULL")
    assert await bench.obstacles(ids) == ["approval", "approval"]
    assert (await bench.send(lease)).attempted == []
    assert (await bench.database.row("run", run=lease.run_id)) is not None
    assert len(await bench.database.rows("approval_items", approval=approval["id"])) == 2


# --- Expiry


ESCALATE: Obligations = {
    **ASK_FINANCE,
    "decide_within": 60,
    "on_expiry": {"approvers": ["support_manager"], "quorum": 1, "decide_within": 120},
}


async def test_what_nobody_decided_in_time_goes_to_the_others_whom_policy_names(
    bench: Bench, tokens: Tokens
) -> None:
    """The first ones are told so, the second ones decide, and nothing was granted by the silence (F14)."""
    lease, approval, ids = await asked(bench, tokens, ESCALATE)
    await grant(bench, tokens.finance_lead, approval, only=ids[:1])
    await bench.database.rows("advance_clock", seconds=61)
    assert await refusal(bench, tokens.finance_lead, approval) == "too_late"
    await bench.sweep()
    assert await refusal(bench, tokens.finance_lead, approval) == "escalated"
    (second,) = await bench.database.rows("approvals", which=None)
    assert (second["escalated_from"], second["roles"], second["actions"]) == (
        approval["id"],
        ["support_manager"],
        1,
    )
    assert await bench.obstacles(ids) == ["ready", "approval"]
    assert await refusal(bench, tokens.finance_lead, second) == "wrong_role"
    assert await ask(bench, lease, "ap-again1") == []
    manager = await minted(bench, tokens, "second-manager", "support_manager")
    assert (await grant(bench, manager, second))["decided"] == 1
    await bench.settled(lease, ids)


async def test_an_escalation_ends_with_its_own_time(bench: Bench, tokens: Tokens) -> None:
    """Nobody answered twice: the actions are closed as expired, and never sent (F14)."""
    _, _, ids = await asked(bench, tokens, ESCALATE)
    for seconds in (61, 121):
        await bench.database.rows("advance_clock", seconds=seconds)
        await bench.sweep()
    rows = [await bench.operation(id_) for id_ in ids]
    assert {(row["closed"], row["closed_detail"], row["attempts"]) for row in rows} == {
        ("expired", "nobody decided in time", 0)
    }
    assert await bench.database.rows("approvals", which=None) == []


# --- What takes a grant away again


async def test_a_grant_is_taken_back_before_it_is_claimed_and_asked_anew(
    bench: Bench, tokens: Tokens
) -> None:
    """Only the own one; what was claimed first is told so; the action needs a person again."""
    lease, approval, ids = await asked(bench, tokens)
    await grant(bench, tokens.finance_lead, approval)
    with pytest.raises(Refused, match="no grant of"):
        await bench.people.unapprove(await minted(bench, tokens, "second-lead"), approval["id"], rationale="")
    first = await bench.ledger.sendable(lease.run_id, 0, 1)
    assert len((await bench.runner.send(lease, first)).attempted) == 1
    said = await bench.people.unapprove(tokens.finance_lead, approval["id"], rationale="wrong list")
    assert [row["outcome"].partition(":")[0] for row in said] == ["too late", "taken back"]
    assert await bench.obstacles(ids[1:]) == ["approval"]
    assert (await bench.send(lease)).attempted == []
    await bench.settled(lease, ids[:1])
    assert await bench.database.value("run_ready", run=lease.run_id), "nobody would ask again"
    (again,) = await ask(bench, lease, "ap-again1")
    assert (await approval_of(bench, again))["actions"] == 1
    (late,) = await bench.people.unapprove(tokens.finance_lead, approval["id"], rationale="")
    assert late == {"operation_id": ids[0], "outcome": "too late: settled"}


async def test_a_voice_that_was_taken_back_does_not_count_for_the_quorum(
    bench: Bench, tokens: Tokens
) -> None:
    """One of two is taken back before the second is given: the second is one, and the first may be given again."""
    _, approval, ids = await asked(bench, tokens, {**ASK_FINANCE, "quorum": 2})
    second = await minted(bench, tokens, "second-lead")
    await grant(bench, tokens.finance_lead, approval)
    await bench.people.unapprove(tokens.finance_lead, approval["id"], rationale="")
    assert (await grant(bench, second, approval))["outcome"] == "noted"
    assert await bench.obstacles(ids) == ["approval", "approval"]
    assert (await grant(bench, tokens.finance_lead, approval))["outcome"] == "granted"


async def test_taking_back_and_claiming_at_once_tell_one_truth(bench: Bench, tokens: Tokens) -> None:
    """Whoever is first has the action: it is taken back and not sent, or sent and reported as too late."""
    lease, approval, ids = await asked(bench, tokens)
    await grant(bench, tokens.finance_lead, approval)
    sent, said = await asyncio.gather(
        bench.send(lease), bench.people.unapprove(tokens.finance_lead, approval["id"], rationale="")
    )
    back = {row["operation_id"] for row in said if row["outcome"] == "taken back"}
    assert set(sent.attempted) == set(ids) - back
    assert Counter(row["outcome"].partition(":")[0] for row in said).total() == 2


async def test_revoking_a_token_voids_what_it_granted_and_nobody_used(bench: Bench, tokens: Tokens) -> None:
    """What was sent stays sent and used; the rest needs a person again, and the token's voice counts nowhere."""
    lease, approval, ids = await asked(bench, tokens)
    id_, secret, _ = await bench.people.mint(tokens.administrator, "second-lead", "finance_lead", HOUR)
    await grant(bench, secret, approval)
    await bench.runner.send(lease, await bench.ledger.sendable(lease.run_id, 0, 1))
    assert await bench.people.revoke_token(tokens.administrator, id_) == 1
    assert await bench.obstacles(ids[1:]) == ["approval"]
    assert (await bench.send(lease)).attempted == []
    items = await bench.database.rows("approval_items", approval=approval["id"])
    assert Counter(item["decision"] for item in items) == {"granted": 1, "voided": 1}
    assert len(await ask(bench, lease, "ap-again1")) == 1


async def test_a_decision_and_the_revocation_of_its_token_at_once_leave_no_live_grant(
    bench: Bench, tokens: Tokens
) -> None:
    """In whichever order they come, nothing is ready afterwards."""
    _, approval, ids = await asked(bench, tokens)
    id_, secret, _ = await bench.people.mint(tokens.administrator, "second-lead", "finance_lead", HOUR)
    await asyncio.gather(
        grant(bench, secret, approval),
        bench.people.revoke_token(tokens.administrator, id_),
        return_exceptions=True,
    )
    assert await bench.obstacles(ids) == ["approval", "approval"]


async def test_a_grant_that_policy_finds_too_little_by_now_is_void_and_asked_anew(
    bench: Bench, tokens: Tokens
) -> None:
    """The stricter of then and now: a second voice is needed under the next revision."""
    lease, approval, ids = await asked(bench, tokens)
    await grant(bench, tokens.finance_lead, approval)
    await judged_again(bench, lease, ids, quorum=2)
    assert await bench.obstacles(ids) == ["approval", "approval"]
    (again,) = await ask(bench, lease, "ap-again1")
    assert (await approval_of(bench, again))["quorum"] == 2


async def test_a_grant_that_is_enough_by_now_stands_but_for_no_longer_than_policy_says(
    bench: Bench, tokens: Tokens
) -> None:
    """More people may be asked, and less time be left; what was granted is not asked again for that."""
    lease, approval, ids = await asked(bench, tokens)
    await grant(bench, tokens.finance_lead, approval)
    more = ["finance_lead", "support_manager"]
    await judged_again(bench, lease, ids, approvers=more, execute_within=60)
    assert await bench.obstacles(ids) == ["ready", "ready"]
    await bench.database.rows("advance_clock", seconds=61)
    assert await bench.obstacles(ids) == ["approval", "approval"]


async def test_who_is_not_asked_by_policy_any_more_cannot_decide(bench: Bench, tokens: Tokens) -> None:
    """An open request goes to the right people under the next revision."""
    lease, approval, ids = await asked(bench, tokens)
    await judged_again(bench, lease, ids, approvers=["support_manager"])
    assert await refusal(bench, tokens.finance_lead, approval) == "cancelled"
    (again,) = await ask(bench, lease, "ap-again1")
    assert (await approval_of(bench, again))["roles"] == ["support_manager"]


# --- An agent that asks too much


async def test_a_key_that_a_person_rejected_is_closed_to_the_agent(bench: Bench, tokens: Tokens) -> None:
    """Whatever it proposes under it in this run, at whatever amount, is denied and asks nobody."""
    lease, approval, _ = await asked(bench, tokens)
    await bench.people.decide(
        tokens.finance_lead, approval["id"], approval["set_hash"], grant=False, rationale="no"
    )
    for amount in (1000, 10):
        said = {"amount_minor": amount, "currency": "USD"}
        for id_ in await bench.propose(lease, "credit", TWO, verdict="allow", said=said):
            row = await bench.operation(id_)
            assert (row["closed"], row["closed_detail"]) == ("denied", "rejected_by_a_person")
    assert await ask(bench, lease, "ap-again1") == []


async def test_open_approvals_of_a_mandate_are_capped_and_the_rest_is_asked_when_there_is_room(
    bench: Bench, tokens: Tokens
) -> None:
    """Ten wait at most; the eleventh is asked once one is decided, and the run is woken for it."""
    subjects = [f"customer:c-{number}" for number in range(201, 213)]
    lease = await bench.run_over(tokens, subjects)
    for subject in subjects:
        await bench.propose(lease, "credit", [subject], verdict="needs_approval")
        await ask(bench, lease, f"ap-{subject.removeprefix('customer:c-')}aaa")
    waiting = await bench.database.rows("approvals", which=None)
    assert [row["actions"] for row in waiting] == [1] * 10
    assert not await bench.database.value("run_ready", run=lease.run_id)
    await grant(bench, tokens.finance_lead, waiting[0])
    await bench.settled(
        lease, [(await bench.database.rows("approval_items", approval=waiting[0]["id"]))[0]["operation_id"]]
    )
    assert await bench.database.value("run_ready", run=lease.run_id)
    (new,) = await ask(bench, lease, "ap-later1")
    assert (await approval_of(bench, new))["actions"] == 2


async def test_an_agent_is_no_identity_that_decides(bench: Bench, tokens: Tokens) -> None:
    """A token in the agent's own name, or of a natural person of that name, stands in the chain."""
    _, approval, _ = await asked(bench, tokens)
    for person, natural in ((AGENT, None), ("night-desk", AGENT)):
        assert (
            await refusal(bench, await minted(bench, tokens, person, natural=natural), approval)
            == "in_the_chain"
        )
