"""Tokens, mandates and decisions: what people say enters through the database, which checks the token itself (I3)."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest

from remit.tools.errors import Refused
from remit.tools.mandates import AskAbove
from remit.tools.ports import Lease
from tests.fixtures import AGENT, ASK_FINANCE, HOUR, Bench, Tokens, mandate_over, mint_tokens

TWO = ["customer:c-104", "customer:c-205"]


async def test_the_first_token_is_an_administrators_and_there_is_one_first(bench: Bench) -> None:
    """Of five bootstraps at once one succeeds, another role never does, and the others say what is missing."""
    with pytest.raises(Refused, match="administrator"):
        await bench.people.mint(None, "finance-lead", "finance_lead", HOUR)
    tries = await asyncio.gather(
        *(bench.people.mint(None, "administrator", "administrator", HOUR) for _ in range(5)),
        return_exceptions=True,
    )
    refused = [error for error in tries if isinstance(error, Refused)]
    assert len(refused) == 4
    assert {error.code for error in refused} == {"token"}


async def test_only_an_administrator_mints(bench: Bench, tokens: Tokens) -> None:
    """A manager cannot give a token, and so no role, to anybody."""
    with pytest.raises(Refused) as refused:
        await bench.people.mint(tokens.support_manager, "helper", "finance_lead", HOUR)
    assert refused.value.code == "authority"


async def asked(bench: Bench, tokens: Tokens, **changes: object) -> tuple[Lease, str, str, list[int]]:
    """A run of two credits that need the finance lead: lease, approval, set hash, operations."""
    lease = await bench.run_over(tokens, TWO)
    obligations = {**ASK_FINANCE, **changes}
    ids = await bench.propose(lease, "credit", TWO, verdict="needs_approval", obligations=obligations)
    (row,) = await bench.database.rows(
        "ask_approvals", run=lease.run_id, token=lease.token, new_id="ap-abcdef"
    )
    (approval,) = await bench.database.rows("approvals", which=row["id"])
    return lease, row["id"], approval["set_hash"], ids


async def refusal(bench: Bench, secret: str, approval: str, set_hash: str, **changes: object) -> str:
    """The code with which a decision is refused."""
    with pytest.raises(Refused) as refused:
        await bench.people.decide(secret, approval, set_hash, grant=True, rationale="fine", **changes)  # type: ignore[arg-type]
    return refused.value.code


async def test_the_last_administrator_stays_until_there_is_another(bench: Bench, tokens: Tokens) -> None:
    """Without an administrator nobody could mint a token any more, so the last one's is not revoked."""
    own = (await bench.people.whoami(tokens.administrator))["token_id"]
    with pytest.raises(Refused, match="last administrator"):
        await bench.people.revoke_token(tokens.administrator, own)
    await bench.people.mint(tokens.administrator, "second-administrator", "administrator", HOUR)
    await bench.people.revoke_token(tokens.administrator, own)
    with pytest.raises(Refused, match="revoked"):
        await bench.people.whoami(tokens.administrator)


async def kept(bench: Bench) -> Counter[str]:
    return Counter(row["code"] for row in await bench.sql("SELECT code FROM remit.refused_decisions"))


async def test_unknown_expired_and_revoked_tokens_decide_nothing_and_the_tries_are_kept(
    bench: Bench, tokens: Tokens
) -> None:
    """Each says why; who tried is kept where the token tells it."""
    _, approval, set_hash, ids = await asked(bench, tokens)
    id_, revoked, _ = await bench.people.mint(tokens.administrator, "second-lead", "finance_lead", HOUR)
    await bench.people.revoke_token(tokens.administrator, id_)
    _, expired, _ = await bench.people.mint(tokens.administrator, "third-lead", "finance_lead", -1.0)
    assert await refusal(bench, "rmt_unknown", approval, set_hash) == "token_unknown"
    assert await refusal(bench, revoked, approval, set_hash) == "token_revoked"
    assert await refusal(bench, expired, approval, set_hash) == "token_expired"
    rows = await bench.sql("SELECT person, token_id, run_id FROM remit.refused_decisions ORDER BY id")
    assert [row["person"] for row in rows] == [None, "second-lead", "third-lead"]
    assert rows[1]["token_id"] == id_
    assert await bench.obstacles(ids) == ["approval", "approval"]


async def test_tokens_that_speak_for_nobody_do_nothing_else_either(bench: Bench, tokens: Tokens) -> None:
    """A revoked token grants, stops and starts nothing."""
    id_, secret, _ = await bench.people.mint(tokens.administrator, "second-lead", "finance_lead", HOUR)
    await bench.people.revoke_token(tokens.administrator, id_)
    mandate = mandate_over()
    for attempt in (
        bench.people.grant(secret, mandate.hash, mandate.document(), TWO),
        bench.people.stop(secret, "all", "", "no"),
        bench.people.whoami(secret),
    ):
        with pytest.raises(Refused, match="revoked"):
            await attempt


async def test_nobody_in_the_chain_decides_at_any_amount(bench: Bench, tokens: Tokens) -> None:
    """Grantor and owner, the agent's name, who minted a token for one of them, and whom one of them gave a token."""
    _, approval, set_hash, _ = await asked(bench, tokens)
    for person in ("support-manager", AGENT, "administrator"):
        _, secret, _ = await bench.people.mint(tokens.administrator, person, "finance_lead", HOUR)
        assert await refusal(bench, secret, approval, set_hash) == "in_the_chain", person
    assert await kept(bench) == {"in_the_chain": 3}


async def test_a_person_whose_token_the_grantor_minted_is_in_the_chain(bench: Bench) -> None:
    """A grantor who is an administrator cannot make up the person who approves."""
    tokens = await mint_tokens(bench.people)
    grantor = Tokens(tokens.administrator, tokens.administrator, tokens.finance_lead)
    _, approval, set_hash, _ = await asked(bench, grantor)
    assert await refusal(bench, tokens.finance_lead, approval, set_hash) == "in_the_chain"


async def test_role_set_and_name_of_an_approval_have_to_be_right(bench: Bench, tokens: Tokens) -> None:
    """Another role, another set of actions, no set at all, an unknown approval and a foreign operation are refused."""
    _, approval, set_hash, ids = await asked(bench, tokens)
    _, auditor, _ = await bench.people.mint(tokens.administrator, "auditor", "auditor", HOUR)
    lead = tokens.finance_lead
    assert await refusal(bench, auditor, approval, set_hash) == "wrong_role"
    assert await refusal(bench, lead, approval, "v1:" + "0" * 64) == "other_set"
    assert await refusal(bench, lead, approval, None) == "other_set"  # type: ignore[arg-type]
    assert await refusal(bench, lead, "ap-unknown", set_hash) == "no_such_approval"
    assert await refusal(bench, lead, approval, set_hash, only=[ids[0], 999_999]) == "not_in_this_set"
    assert sum((await kept(bench)).values()) == 5
    assert await bench.obstacles(ids) == ["approval", "approval"]


async def test_a_decision_after_its_time_approves_nothing(bench: Bench, tokens: Tokens) -> None:
    """F14: no answer in time is never a yes; the operations are closed as expired."""
    lease, approval, set_hash, ids = await asked(bench, tokens)
    await bench.database.rows("advance_clock", seconds=HOUR + 1)
    assert await refusal(bench, tokens.finance_lead, approval, set_hash) == "too_late"
    await bench.sweep()
    rows = [await bench.operation(id_) for id_ in ids]
    assert {(row["state"], row["closed"], row["attempts"]) for row in rows} == {("CLOSED", "expired", 0)}
    assert await refusal(bench, tokens.finance_lead, approval, set_hash) == "too_late"
    assert (await bench.send(lease)).attempted == []


async def test_what_is_approved_in_time_is_executed_only_before_its_own_deadline(
    bench: Bench, tokens: Tokens
) -> None:
    """F15: the claim looks at the clock again; what was approved and not begun in time is closed unsent."""
    lease, approval, set_hash, ids = await asked(bench, tokens, execute_within=60)
    await bench.people.decide(tokens.finance_lead, approval, set_hash, grant=True, rationale="fine")
    operations = await bench.ledger.sendable(lease.run_id, 0, 100)
    assert [operation.id for operation in operations] == ids
    await bench.database.rows("advance_clock", seconds=61)
    sent = await bench.runner.send(lease, operations)
    assert sent.refused == dict.fromkeys(ids, "approval")
    await bench.sweep()
    assert [(await bench.operation(id_))["closed"] for id_ in ids] == ["expired", "expired"]


async def test_a_send_may_not_begin_after_the_approvals_deadline(bench: Bench, tokens: Tokens) -> None:
    """The moment until which a send may begin lies before `execute_by`, however long the usual window is."""
    lease, approval, set_hash, ids = await asked(bench, tokens, execute_within=2)
    await bench.people.decide(tokens.finance_lead, approval, set_hash, grant=True, rationale="fine")
    await bench.send(lease)
    attempts = [row for id_ in ids for row in await bench.database.rows("attempts", id=id_)]
    (granted,) = await bench.sql("SELECT max(execute_by) AS moment FROM remit.approval_items")
    assert len(attempts) == 2
    assert all(attempt["send_by"] <= granted["moment"] for attempt in attempts)


async def test_approving_some_releases_only_those(bench: Bench, tokens: Tokens) -> None:
    """F03: of two actions one is approved and becomes claimable, once; the other goes on waiting, then is decided."""
    lease, approval, set_hash, ids = await asked(bench, tokens)
    lead = tokens.finance_lead
    said = await bench.people.decide(lead, approval, set_hash, grant=True, rationale="one", only=ids[:1])
    assert (said["outcome"], said["decided"], said["undecided"]) == ("granted", 1, 1)
    assert await bench.obstacles(ids) == ["ready", "approval"]
    assert (await bench.send(lease)).attempted == ids[:1]
    assert await refusal(bench, lead, approval, set_hash, only=ids[:1]) == "already_decided"
    said = await bench.people.decide(lead, approval, set_hash, grant=False, rationale="not this one")
    assert (said["outcome"], said["decided"], said["undecided"]) == ("rejected", 1, 0)
    (row,) = await bench.database.rows("approvals", which=approval)
    assert row["status"] == "DECIDED"


async def test_a_rejection_closes_and_nothing_is_sent(bench: Bench, tokens: Tokens) -> None:
    """F09: what a person rejected is closed as rejected, and no call reaches the receiver."""
    lease, approval, set_hash, ids = await asked(bench, tokens)
    await bench.people.decide(tokens.finance_lead, approval, set_hash, grant=False, rationale="no")
    calls = bench.transport.calls
    assert (await bench.send(lease)).attempted == []
    assert bench.transport.calls == calls
    assert [(await bench.operation(id_))["closed"] for id_ in ids] == ["rejected", "rejected"]


async def test_of_two_decisions_at_once_one_wins_and_the_other_hears_the_truth(
    bench: Bench, tokens: Tokens
) -> None:
    """F13: a grant and a rejection at the same moment: one counts, the other is told that it was decided already."""
    _, approval, set_hash, ids = await asked(bench, tokens)
    _, second, _ = await bench.people.mint(tokens.administrator, "second-lead", "finance_lead", HOUR)
    tries = await asyncio.gather(
        bench.people.decide(tokens.finance_lead, approval, set_hash, grant=True, rationale="yes"),
        bench.people.decide(second, approval, set_hash, grant=False, rationale="no"),
        return_exceptions=True,
    )
    (lost,) = [one for one in tries if isinstance(one, Refused)]
    (won,) = [one for one in tries if isinstance(one, dict)]
    assert (lost.code, won["decided"]) == ("already_decided", 2)
    votes = await bench.sql("SELECT DISTINCT decision FROM remit.votes")
    assert [vote["decision"] for vote in votes] == [won["outcome"]]
    expected = {"granted": "ready", "rejected": None}[won["outcome"]]
    assert await bench.obstacles(ids) == [expected, expected]


async def test_a_quorum_of_two_needs_two_people(bench: Bench, tokens: Tokens) -> None:
    """One person's vote is noted and counts once, however often it is given; the second person's decides."""
    _, approval, set_hash, ids = await asked(bench, tokens, quorum=2)
    lead = tokens.finance_lead
    said = await bench.people.decide(lead, approval, set_hash, grant=True, rationale="yes")
    assert (said["outcome"], said["decided"]) == ("noted", 0)
    assert await refusal(bench, lead, approval, set_hash) == "already_voted"
    assert await bench.obstacles(ids) == ["approval", "approval"]
    _, second, _ = await bench.people.mint(tokens.administrator, "second-lead", "finance_lead", HOUR)
    said = await bench.people.decide(second, approval, set_hash, grant=True, rationale="yes")
    assert (said["outcome"], said["undecided"]) == ("granted", 0)


async def test_an_approval_of_one_action_is_none_of_its_next_revision(bench: Bench, tokens: Tokens) -> None:
    """I3: what was approved is bound to its hash; another revision of the same key asks again."""
    lease, approval, set_hash, ids = await asked(bench, tokens)
    await bench.people.decide(tokens.finance_lead, approval, set_hash, grant=True, rationale="fine")
    await bench.database.rows(
        "close_pending", run=lease.run_id, token=lease.token, ids=ids, closed="stale", detail=""
    )
    again = await bench.propose(lease, "credit", TWO, verdict="needs_approval")
    assert await bench.obstacles(again) == ["approval", "approval"]


async def test_nobody_is_asked_about_what_is_closed(bench: Bench, tokens: Tokens) -> None:
    """When everything that an approval was about is closed, it is cancelled and says so to whoever still decides."""
    lease, approval, set_hash, ids = await asked(bench, tokens)
    await bench.database.rows(
        "close_pending", run=lease.run_id, token=lease.token, ids=ids, closed="cancelled", detail=""
    )
    assert await refusal(bench, tokens.finance_lead, approval, set_hash) == "cancelled"


async def test_a_corrected_mandate_supersedes_and_closes_what_waits(bench: Bench, tokens: Tokens) -> None:
    """One live mandate per purpose: the corrected one closes what the earlier had not sent, and starts no old run."""
    lease = await bench.run_over(tokens, TWO)
    ids = await bench.propose(lease, "credit", TWO)
    corrected = mandate_over(ask_above=AskAbove(count=5))
    row = await bench.people.grant(tokens.support_manager, corrected.hash, corrected.document(), TWO)
    assert (row["outcome"], row["superseded"]) == ("granted", mandate_over().hash)
    assert [(await bench.operation(id_))["closed"] for id_ in ids] == ["superseded", "superseded"]
    with pytest.raises(Refused, match="not in force"):
        await bench.started(tokens, mandate_over())
    again = await bench.people.grant(
        tokens.support_manager, mandate_over().hash, mandate_over().document(), TWO
    )
    assert again["outcome"] == "superseded"


async def test_only_grantor_lead_or_administrator_revokes_a_mandate(bench: Bench, tokens: Tokens) -> None:
    """Revocation is monotonic, and not open to everybody; a stop is."""
    mandate = await bench.granted(tokens, TWO)
    _, auditor, _ = await bench.people.mint(tokens.administrator, "auditor", "auditor", HOUR)
    with pytest.raises(Refused, match="Only its grantor"):
        await bench.people.revoke_mandate(auditor, mandate.hash)
    moment = await bench.people.revoke_mandate(tokens.support_manager, mandate.hash)
    assert await bench.people.revoke_mandate(tokens.finance_lead, mandate.hash) == moment
