"""Cases: an outcome established by a person, a replay that makes no second effect, and what closes one (F40, F47, F50).

Each end is compared with the company's own records.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import psycopg
import pytest

from remit.checkpoints.cases import BARRED, REFUSALS, WAYS, Cases, rising
from remit.checkpoints.embedded_access import Urls
from remit.sandbox import dump
from remit.sandbox.worlds import World
from remit.tools.errors import Refused
from remit.tools.ports import Lease
from tests.fixtures import ASK_FINANCE, Bench, Tokens, eventually, limited, quick_catalogue

OWN = "customer:c-104"
CREDITS = "POST /credits"
WHY = "looked into"


@pytest.fixture
def cases(bench: Bench) -> Cases:
    """The cases of this bench."""
    return Cases(bench.ledger, bench.runner)


def issued(bench: Bench) -> list[str]:
    """Whom the payments service's own records show a credit of."""
    return sorted(f"customer:{credit['customer']}" for credit in dump(bench.home)["credits"])


async def opened(urls: Urls, id_: int, code: str, state: str | None = None) -> int:
    """Opens a case of this code, as whatever finds it does, and has its operation looked at no more meanwhile."""
    async with await psycopg.AsyncConnection.connect(urls.owner_url, autocommit=True) as owner:
        cursor = await owner.execute(
            "SELECT remit.open_case(o, %s, 'said by the test') FROM remit.operations o WHERE id = %s", [code, id_]
        )
        await owner.execute("UPDATE remit.operations SET due_at = 'infinity' WHERE id = %s", [id_])
        cursor = await owner.execute("SELECT max(id) FROM remit.cases WHERE operation_id = %s", [id_])
        row = await cursor.fetchone()
    assert row is not None
    return int(row[0])


async def unanswered(
    bench: Bench, tokens: Tokens, world: World, fault: str = "reply_lost", **changes: Any
) -> tuple[Lease, int]:
    """One credit whose reply was lost: UNKNOWN, whatever the payments service did."""
    lease = await bench.run_over(tokens, [OWN])
    (id_,) = await bench.propose(lease, "credit", [OWN], **changes)
    await world.control.add_fault("payments", fault, CREDITS)
    await bench.send(lease)
    assert await bench.states([id_]) == ["UNKNOWN"]
    return lease, id_


async def acts(bench: Bench, case: int) -> list[tuple[str, str]]:
    return [(row["verb"], row["outcome"]) for row in await bench.database.rows("case_acts", case=case)]


async def test_what_the_record_shows_outranks_a_persons_word(
    bench: Bench, tokens: Tokens, world: World, cases: Cases, ledger_database: Urls
) -> None:
    """F40: the money moved and the reply was lost; "no effect" is refused with what the record shows, and kept."""
    _, id_ = await unanswered(bench, tokens, world)
    case = await opened(ledger_database, id_, "unverifiable")
    with pytest.raises(Refused, match="says otherwise: (effective|pending) in payments") as refused:
        await cases.resolve(tokens.finance_lead, case, completed=False, evidence="nothing seen", rationale=WHY)
    assert refused.value.code == "contradicted"
    assert await bench.states([id_]) == ["UNKNOWN"]
    assert await acts(bench, case) == [("resolve", "contradicted")]
    assert issued(bench) == [OWN]
