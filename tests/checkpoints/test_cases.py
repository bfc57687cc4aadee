"""Cases: an outcome established by a person's evidence, who may, and what closes one (F40, F50).

Each end is compared with the company's own records.
"""

from __future__ import annotations

import asyncio
from typing import Any

import psycopg
import pytest

from remit.checkpoints.cases import BARRED, REFUSALS, Cases, case_of
from remit.checkpoints.embedded_access import Urls
from remit.sandbox import dump
from remit.sandbox.worlds import World
from remit.tools.errors import Refused
from remit.tools.ports import Lease
from tests.fixtures import HOUR, Bench, Tokens, eventually, limited

OWN = "customer:c-104"
CREDITS, SEARCH = "POST /credits", "POST /credits/search"
WHY = "looked into it"
TOLD = "the provider's letter of 12 June"


@pytest.fixture
def cases(bench: Bench) -> Cases:
    """The cases of this bench."""
    return Cases(bench.ledger, bench.runner)


def issued(bench: Bench) -> list[str]:
    """Whom the payments service's own records show a credit of."""
    return sorted(f"customer:{credit['customer']}" for credit in dump(bench.home)["credits"])


async def opened(urls: Urls, id_: int, code: str) -> int:
    """Opens a case of this code, as whatever finds it does, and keeps the sweep off its operation meanwhile."""
    async with await psycopg.AsyncConnection.connect(urls.owner_url, autocommit=True) as owner:
        await owner.execute(
            "SELECT remit.open_case(o, %s, 'said by the test') FROM remit.operations o WHERE id = %s",
            [code, id_],
        )
        await owner.execute("UPDATE remit.operations SET due_at = '9999-01-01Z' WHERE id = %s", [id_])
        cursor = await owner.execute("SELECT max(id) FROM remit.cases WHERE operation_id = %s", [id_])
        row = await cursor.fetchone()
    assert row is not None
    return int(row[0])


async def unanswered(
    bench: Bench, tokens: Tokens, world: World, fault: str = "reply_lost", **changes: Any
) -> tuple[Lease, int]:
    """One credit without a usable answer: UNKNOWN, whatever the payments service did."""
    lease = await bench.run_over(tokens, [OWN])
    (id_,) = await bench.propose(lease, "credit", [OWN], **changes)
    await world.control.add_fault("payments", fault, CREDITS)
    await bench.send(lease)
    assert await bench.states([id_]) == ["UNKNOWN"]
    return lease, id_


async def acts(bench: Bench, case: int) -> list[tuple[str, str]]:
    """What was tried on a case, and what came of it."""
    return [(row["verb"], row["outcome"]) for row in await bench.database.rows("case_acts", case=case)]


async def absence_counts(cases: Cases, case: int) -> None:
    """Waits until what is absent now is proved absent."""
    row = await case_of(cases._database, case)

    async def passed() -> bool:
        return bool((await cases.look(row) or {})["absence_counts"])

    await eventually(passed)


async def test_what_the_record_shows_outranks_a_persons_word(
    bench: Bench, tokens: Tokens, world: World, cases: Cases, ledger_database: Urls
) -> None:
    """F40: the money moved and the reply was lost; "no effect" is refused with what the record shows, and kept."""
    _, id_ = await unanswered(bench, tokens, world)
    case = await opened(ledger_database, id_, "unverifiable")
    with pytest.raises(Refused, match=r"says otherwise: (effective|pending) in payments") as refused:
        await cases.resolve(tokens.finance_lead, case, completed=False, evidence=TOLD, rationale=WHY)
    assert refused.value.code == "contradicted"
    await world.control.add_fault("payments", "html", SEARCH)
    with pytest.raises(Refused, match=r"says otherwise"):
        await cases.resolve(tokens.finance_lead, case, completed=False, evidence=TOLD, rationale=WHY)
    assert await bench.states([id_]) == ["UNKNOWN"]
    assert await acts(bench, case) == [("resolve", "contradicted")] * 2
    assert issued(bench) == [OWN]


async def test_no_effect_counts_after_the_bound_and_its_successor_bears_the_same_wire_key(
    bench: Bench, tokens: Tokens, world: World, cases: Cases, ledger_database: Urls
) -> None:
    """F40: by age alone nothing is a failure; established, its share comes back, and a successor repeats the key."""
    lease, id_ = await unanswered(bench, tokens, world, "error_before", obligations=limited(count=1))
    case = await opened(ledger_database, id_, "accepted_then_absent")
    with pytest.raises(Refused, match=r"may still arrive"):
        await cases.resolve(tokens.finance_lead, case, completed=False, evidence=TOLD, rationale=WHY)
    await absence_counts(cases, case)
    with pytest.raises(Refused, match=r"says otherwise: absent in payments"):
        await cases.resolve(tokens.finance_lead, case, completed=True, evidence=TOLD, rationale=WHY)
    done = await cases.resolve(tokens.finance_lead, case, completed=False, evidence=TOLD, rationale=WHY)
    assert (done["outcome"], done["person"], done["evidence"]) == ("resolved", "finance-lead", TOLD)
    row = await bench.operation(id_)
    assert (row["state"], row["closed"], row["fact"], row["doubt"]) == (
        "CLOSED",
        "by_person",
        "NOT_SENT",
        False,
    )
    assert await bench.sql("SELECT FROM remit.reservations WHERE operation_id = %s", id_) == []
    (again,) = await bench.propose(lease, "credit", [OWN], obligations=limited(count=1))
    await bench.settled(lease, [again])
    keys = await bench.sql("SELECT DISTINCT wire_key FROM remit.attempts")
    assert (len(keys), issued(bench)) == (1, [OWN])


async def test_an_unreadable_record_leaves_it_to_evidence_which_the_journal_keeps(
    bench: Bench, tokens: Tokens, world: World, cases: Cases, ledger_database: Urls
) -> None:
    """SETTLED by whom, when and on which evidence; the case stays open, and with it the gate before what follows."""
    lease, id_ = await unanswered(bench, tokens, world)
    (mail,) = await bench.propose(lease, "notify", [OWN], requires=None)
    case = await opened(ledger_database, id_, "unverifiable")
    await world.control.add_fault("payments", "html", SEARCH, times=None)
    await cases.resolve(tokens.finance_lead, case, completed=True, evidence=TOLD, rationale=WHY)
    row = await bench.operation(id_)
    assert (row["state"], row["fact"]) == ("SETTLED", "COMPLETED")
    evidence = (await bench.database.rows("evidence", id=id_))[-1]
    assert (evidence["source"], evidence["records"]) == (
        f"finance-lead (finance_lead), case {case}",
        [{"evidence": TOLD}],
    )
    journal = await bench.database.rows("journal", run=None, operation=id_, limit=100)
    said = [one["data"] for one in journal if one["kind"] == "case_acts.added"]
    assert [(one["person"], one["fact"], one["evidence"]) for one in said] == [
        ("finance-lead", "completed", TOLD)
    ]
    assert await bench.obstacles([mail]) == ["case"]
    await cases.close(tokens.finance_lead, case, rationale=WHY, eval_="lost-reply")
    assert await bench.obstacles([mail]) == ["ready"]


async def test_who_resolves_stands_outside_the_chain_in_a_role_that_approves(
    bench: Bench, tokens: Tokens, world: World, cases: Cases, ledger_database: Urls
) -> None:
    """The run's own people, other roles and whoever makes identities are refused by the database, and each is kept."""
    _, id_ = await unanswered(bench, tokens, world)
    case = await opened(ledger_database, id_, "unverifiable")
    await world.control.add_fault("payments", "html", SEARCH, times=None)
    _, other, _ = await bench.people.mint(tokens.administrator, "second-manager", "support_manager", HOUR)
    for secret, code in (
        (tokens.support_manager, "in_the_chain"),
        (tokens.administrator, "in_the_chain"),
        (other, "wrong_role"),
    ):
        with pytest.raises(Refused) as refused:
            await cases.resolve(secret, case, completed=True, evidence=TOLD, rationale=WHY)
        assert refused.value.code == code
    with pytest.raises(Refused) as refused:
        await cases.resolve("rmt_nobody", case, completed=True, evidence=TOLD, rationale=WHY)
    assert refused.value.code == "token"
    assert await bench.states([id_]) == ["UNKNOWN"]
    assert [outcome for _, outcome in await acts(bench, case)] == [
        "in_the_chain",
        "in_the_chain",
        "wrong_role",
    ]


async def test_an_outcome_without_evidence_or_reason_is_not_established(
    bench: Bench, tokens: Tokens, world: World, cases: Cases, ledger_database: Urls
) -> None:
    """Neither is left empty, and a dash is no evidence."""
    _, id_ = await unanswered(bench, tokens, world)
    case = await opened(ledger_database, id_, "unverifiable")
    for evidence, why in (("", WHY), (TOLD, " "), (" - ", WHY)):
        with pytest.raises(Refused, match=r"Say it in words"):
            await cases.resolve(tokens.finance_lead, case, completed=True, evidence=evidence, rationale=why)
    assert await bench.states([id_]) == ["UNKNOWN"]


async def test_of_two_opposite_words_at_once_one_decides_and_the_other_hears_it(
    bench: Bench, tokens: Tokens, world: World, cases: Cases, ledger_database: Urls
) -> None:
    """F50: one atomic step on the operation's row; whoever comes second is told that it moved."""
    _, id_ = await unanswered(bench, tokens, world, "error_before")
    case = await opened(ledger_database, id_, "unverifiable")
    await world.control.add_fault("payments", "html", SEARCH, times=None)
    row = await case_of(cases._database, case)

    async def over() -> bool:
        return bool((await cases.look(row) or {})["bound_over"])

    await eventually(over)
    ends = await asyncio.gather(
        *(
            cases.resolve(tokens.finance_lead, case, completed=completed, evidence=TOLD, rationale=WHY)
            for completed in (True, False)
        ),
        return_exceptions=True,
    )
    outcomes = sorted(end.code if isinstance(end, Refused) else end["outcome"] for end in ends)  # type: ignore[index]
    assert outcomes in (["changed_meanwhile", "resolved"], ["not_unknown", "resolved"])
    said = [act for act in await bench.database.rows("case_acts", case=case) if act["outcome"] == "resolved"]
    assert await bench.states([id_]) == [{"completed": "SETTLED", "no_effect": "CLOSED"}[said[0]["fact"]]]


async def test_a_case_closes_when_its_operation_is_final_and_an_eval_is_named(
    bench: Bench, tokens: Tokens, world: World, cases: Cases, ledger_database: Urls
) -> None:
    """Not before, not without an eval or why none is needed, not with both, and not twice."""
    lease, id_ = await unanswered(bench, tokens, world)
    case = await opened(ledger_database, id_, "key_reused")
    lead = tokens.finance_lead
    with pytest.raises(Refused, match=r"not final \(unknown\)"):
        await cases.close(lead, case, rationale=WHY, eval_="lost-reply")
    async with await psycopg.AsyncConnection.connect(ledger_database.owner_url, autocommit=True) as owner:
        await owner.execute("UPDATE remit.operations SET due_at = now() WHERE id = %s", [id_])
    await bench.settled(lease, [id_])
    for eval_, no_eval in ((None, None), ("lost-reply", "both"), ("No Such Name!", None)):
        with pytest.raises(Refused, match=r"--no-eval"):
            await cases.close(lead, case, rationale=WHY, eval_=eval_, no_eval=no_eval)
    assert await bench.cases() == ["key_reused"]
    done = await cases.close(lead, case, rationale=WHY, no_eval="a known weakness of the provider")
    assert (done["outcome"], done["no_eval"]) == ("closed", "a known weakness of the provider")
    row = await case_of(cases._database, case)
    assert (row["closed_by"], row["resolution"], await bench.cases()) == ("finance-lead", WHY, [])
    with pytest.raises(Refused, match=r"closed already"):
        await cases.close(lead, case, rationale=WHY, eval_="lost-reply")


@pytest.mark.parametrize("code", [*REFUSALS, *BARRED])
def test_every_refusal_says_what_to_do_next(code: str) -> None:
    """No sentence has a hole, and each ends."""
    for said in (REFUSALS.get(code), BARRED.get(code)):
        if said is not None:
            text = said.format(case=7, detail="what stands against it")
            assert text.endswith(".")
            assert "{" not in text
