"""Replays of cases: the ledger says what would happen, and no replay makes a second effect (F40, F50).

Each end is compared with the company's own records.
"""

from __future__ import annotations

import psycopg
import pytest

from remit.checkpoints.cases import BARRED, WAYS, Cases, case_of
from remit.checkpoints.database import json
from remit.checkpoints.embedded_access import Urls
from remit.sandbox.worlds import World
from remit.tools.catalogue import Catalogue
from remit.tools.contracts import Budget
from remit.tools.errors import Refused
from remit.tools.ports import Lease
from tests.checkpoints.test_cases import (
    CREDITS,
    OWN,
    SEARCH,
    TOLD,
    WHY,
    absence_counts,
    acts,
    issued,
    opened,
    unanswered,
)
from tests.fixtures import Bench, Tokens, eventually, quick_catalogue


@pytest.fixture
def catalogue() -> Catalogue:
    """One try for each operation, so that a second one needs a person."""
    return quick_catalogue(budget=Budget(attempts=1, seconds=600.0))


@pytest.fixture
def cases(bench: Bench) -> Cases:
    """The cases of this bench."""
    return Cases(bench.ledger, bench.runner)


async def way(cases: Cases, case: int) -> tuple[str, str]:
    """What a replay would do now, and why."""
    row = await case_of(cases._database, case)
    found = await cases.foresee(row, await cases.look(row))
    assert "{" not in found.words
    return found.way, found.why


async def out_of_budget(
    bench: Bench, tokens: Tokens, world: World, fault: str = "error_before", seconds: float | None = None
) -> tuple[int, int]:
    """A credit whose one try brought no answer, and whose record could not be read then: operation and its case."""
    lease = await bench.run_over(tokens, [OWN])
    (id_,) = await bench.propose(lease, "credit", [OWN])
    await world.control.add_fault("payments", fault, CREDITS, seconds=seconds)
    await bench.send(lease)
    await world.control.add_fault("payments", "html", SEARCH)

    async def looked() -> bool:
        await bench.sweep()
        return bool((await bench.operation(id_))["resend"])

    await eventually(looked)

    async def told() -> bool:
        await bench.send(lease)
        return await bench.cases() == ["budget"]

    await eventually(told)
    (case,) = await bench.database.rows("case_list", all=False, case=None, limit=10)
    return id_, case["id"]


async def leased(bench: Bench) -> Lease:
    """The lease that this bench's one run is under."""
    (run,) = await bench.sql("SELECT run_id, token FROM remit.leases")
    return Lease(run["run_id"], run["token"], bench.worker.id)


async def resent(bench: Bench, calls: int) -> None:
    """Sends, without any look, until so many credits were asked for in all."""
    lease = await leased(bench)

    async def sent() -> bool:
        await bench.send(lease)
        return bench.transport.called.count(CREDITS) == calls

    await eventually(sent)


async def wire_keys(bench: Bench) -> int:
    """Under how many keys anything was ever sent."""
    return len(await bench.sql("SELECT DISTINCT wire_key FROM remit.attempts"))


async def test_a_replay_resends_under_the_same_wire_key_and_has_no_second_effect(
    bench: Bench, tokens: Tokens, world: World, cases: Cases
) -> None:
    """F40: the money moved and nobody can read it; the receiver answers the same key with what it did. One credit."""
    id_, case = await out_of_budget(bench, tokens, world, "reply_lost")
    await world.control.add_fault("payments", "html", SEARCH, times=2)
    before = await bench.operation(id_)
    assert await way(cases, case) == ("resend", "key_enforced")
    assert await bench.operation(id_) == before, "a dry replay changes nothing"
    assert await acts(bench, case) == []
    done = await cases.replay(tokens.finance_lead, case, rationale=WHY)
    assert (done["outcome"], done["detail"]) == ("released", "resend")
    assert bench.transport.called.count(CREDITS) == 1, "a replay sends nothing itself"
    await resent(bench, 2)
    await bench.settled(await leased(bench), [id_])
    assert (await wire_keys(bench), issued(bench)) == (1, [OWN])


async def test_a_replay_while_the_receiver_still_holds_the_first_request_has_no_second_effect(
    bench: Bench, tokens: Tokens, world: World, cases: Cases
) -> None:
    """It lands beyond the contract's bound, after a replay met it in progress and it was given up: one credit."""
    id_, case = await out_of_budget(bench, tokens, world, "delay", 4.0)
    assert await way(cases, case) in (("resend", "key_enforced"), ("send", "proved_absent"))
    await cases.replay(tokens.finance_lead, case, rationale=WHY)
    await resent(bench, 2)

    async def landed() -> bool:
        await bench.sweep()
        return issued(bench) == [OWN]

    await eventually(landed)
    if await bench.states([id_]) == ["PENDING"]:
        await bench.send(await leased(bench))
        assert await way(cases, case) == ("resend", "key_enforced")
        await cases.replay(tokens.finance_lead, case, rationale=WHY)
    await bench.settled(await leased(bench), [id_])
    assert (await wire_keys(bench), issued(bench)) == (1, [OWN])


async def test_a_replay_that_comes_to_nothing_is_a_gate_again(
    bench: Bench, tokens: Tokens, world: World, cases: Cases
) -> None:
    """One replay gives the budget once more, no further: the case that comes back keeps the operation back."""
    id_, case = await out_of_budget(bench, tokens, world)
    await world.control.add_fault("payments", "error_before", CREDITS, times=None)
    await cases.replay(tokens.finance_lead, case, rationale=WHY)
    assert (await bench.operation(id_))["obstacle"] != "case"

    async def again() -> bool:
        return await bench.obstacles([id_]) == ["case"]

    await bench.carry_on(await leased(bench), again)
    assert bench.transport.called.count(CREDITS) == 2
    assert await bench.cases() == ["budget"]


async def test_what_is_proved_absent_is_sent_once_more(
    bench: Bench, tokens: Tokens, world: World, cases: Cases
) -> None:
    """The record can be read again and shows nothing after the bound: another send of the same wire key, one effect."""
    id_, case = await out_of_budget(bench, tokens, world)
    await absence_counts(cases, case)
    assert await way(cases, case) == ("send", "proved_absent")
    await cases.replay(tokens.finance_lead, case, rationale=WHY)
    await bench.settled(await leased(bench), [id_])
    assert issued(bench) == [OWN]


async def test_nobody_replays_what_the_record_shows_or_the_receiver_once_accepted(
    bench: Bench, tokens: Tokens, world: World, cases: Cases, ledger_database: Urls
) -> None:
    """Barred and why, without a change; and the refusal is kept. Completed is barred as well."""
    lease, id_ = await unanswered(bench, tokens, world)
    case = await opened(ledger_database, id_, "unverifiable")
    assert await way(cases, case) == ("barred", "seen")
    with pytest.raises(Refused, match=r"Not replayed: the system of record shows an effect"):
        await cases.replay(tokens.finance_lead, case, rationale=WHY)
    await world.control.add_fault("payments", "html", SEARCH)
    assert await way(cases, case) == ("barred", "accepted_once"), (
        "what was seen counts when it cannot be seen"
    )
    assert await acts(bench, case) == [("replay", "seen")]
    async with await psycopg.AsyncConnection.connect(ledger_database.owner_url, autocommit=True) as owner:
        await owner.execute("UPDATE remit.operations SET due_at = now() WHERE id = %s", [id_])
    await world.control.clear_faults()
    await bench.settled(lease, [id_])
    other = await opened(ledger_database, id_, "key_reused")
    assert await way(cases, other) == ("barred", "settled")


async def test_a_replay_is_barred_by_another_case_an_order_and_a_key_with_other_content(
    bench: Bench, tokens: Tokens, world: World, cases: Cases, ledger_database: Urls
) -> None:
    """Each by its name, whatever the recovery table would allow; a stop bars it as it bars every send (I4)."""
    id_, case = await out_of_budget(bench, tokens, world)
    other = await opened(ledger_database, id_, "key_reused")
    with pytest.raises(Refused, match=f"another case .* case {other}"):
        await cases.replay(tokens.finance_lead, case, rationale=WHY)
    async with await psycopg.AsyncConnection.connect(ledger_database.owner_url, autocommit=True) as owner:
        await owner.execute("UPDATE remit.cases SET closed_at = now() WHERE id = %s", [case])
    assert await way(cases, other) == ("barred", "key_reused")
    order = await bench.people.stop(tokens.finance_lead, "all", "", WHY)
    assert await way(cases, other) == ("barred", "order")
    await bench.people.lift(tokens.finance_lead, order["id"])
    assert (await bench.operation(id_))["obstacle"] == "case"


async def test_of_a_run_that_has_ended_nothing_is_sent_any_more(
    bench: Bench, tokens: Tokens, world: World, cases: Cases
) -> None:
    """Nobody claims for it; once a person established that there was no effect, another run may propose it."""
    id_, case = await out_of_budget(bench, tokens, world)
    lease = await leased(bench)
    await bench.database.rows(
        "release_run",
        run=lease.run_id,
        token=lease.token,
        status="BLOCKED",
        reason="step_budget: x",
        waits=json({}),
    )
    assert await way(cases, case) == ("barred", "run_ended")
    row = await case_of(cases._database, case)

    async def over() -> bool:
        return bool((await cases.look(row) or {})["bound_over"])

    await eventually(over)
    await cases.resolve(tokens.finance_lead, case, completed=False, evidence=TOLD, rationale=WHY)
    assert await way(cases, case) == ("new_run", "run_ended")
    with pytest.raises(Refused, match=r"its run has ended"):
        await cases.replay(tokens.finance_lead, case, rationale=WHY)
    assert await bench.states([id_]) == ["CLOSED"]
    assert issued(bench) == []


async def test_what_moved_since_the_look_is_looked_at_again(
    bench: Bench, tokens: Tokens, world: World, cases: Cases
) -> None:
    """F50: a sweep that settles between the look and the word wins, and the replay hears it."""
    id_, case = await out_of_budget(bench, tokens, world, "reply_lost")
    row = await case_of(cases._database, case)
    stale = await cases.look(row)
    await bench.settled(await leased(bench), [id_])
    with pytest.raises(Refused):
        await cases.replay(tokens.finance_lead, case, rationale=WHY)
    answer = await bench.database.row(
        "replay_case", secret=tokens.finance_lead, case=case, rationale=WHY, look=json(stale)
    )
    assert answer is not None
    assert answer["outcome"] in ("closed_already", "changed_meanwhile")
    assert issued(bench) == [OWN]


async def test_who_replays_stands_outside_the_chain_as_well(
    bench: Bench, tokens: Tokens, world: World, cases: Cases
) -> None:
    """A replay is a forward step, so the run's own people do not take it; nothing is opened."""
    id_, case = await out_of_budget(bench, tokens, world)
    with pytest.raises(Refused, match=r"stands in the chain"):
        await cases.replay(tokens.support_manager, case, rationale=WHY)
    with pytest.raises(Refused, match=r"Say it in words"):
        await cases.replay(tokens.finance_lead, case, rationale="")
    assert (await bench.operation(id_))["obstacle"] == "case"


@pytest.mark.parametrize("key", list(WAYS))
def test_every_way_has_its_words(key: tuple[str, str]) -> None:
    """A safe way says why it is safe, and no reason of a bar is one of a way."""
    assert WAYS[key].startswith(("safe: ", "nothing to open"))
    assert key[1] == "run_ended" or key[1] not in BARRED
