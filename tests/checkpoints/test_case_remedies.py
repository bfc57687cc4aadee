"""Cases of failed undos, wrong effects and whole runs: what puts each right, and the rate at which they come (F47).

Each end is compared with the company's own records.
"""

from __future__ import annotations

from collections.abc import Sequence

import psycopg
import pytest

from remit.checkpoints.cases import Cases, case_of, rising
from remit.checkpoints.database import json
from remit.checkpoints.embedded_access import Urls
from remit.sandbox import dump
from remit.tools.actions import Json, reference
from remit.tools.errors import Refused
from remit.tools.mandates import Step
from remit.tools.ports import Lease
from tests.checkpoints.test_cases import OWN, TOLD, WHY, opened
from tests.fixtures import STEPS, Bench, Tokens, mandate_over


@pytest.fixture
def cases(bench: Bench) -> Cases:
    """The cases of this bench."""
    return Cases(bench.ledger, bench.runner)


UNDOING = mandate_over(
    "recovery-0611",
    steps=(
        *STEPS,
        Step(name="reverse", effect="credit.reverse"),
    ),
)


async def credited(bench: Bench, tokens: Tokens, subjects: Sequence[str]) -> dict[str, dict[str, Json]]:
    """Settled credits, and by subject what an undo of each says."""
    lease = await bench.run_over(tokens, subjects)
    await bench.settled(lease, await bench.propose(lease, "credit", subjects))
    found = {f"customer:{credit['customer']}": credit["id"] for credit in dump(bench.home)["credits"]}
    keys = await bench.sql("SELECT subject, key FROM remit.operations WHERE step = 'credit'")
    return {
        row["subject"]: {
            "undoes": reference(bench.ledger.installation, row["key"]),
            "record": found[row["subject"]],
            "amount_minor": 1000,
            "currency": "USD",
        }
        for row in keys
    }


async def undoing(
    bench: Bench, tokens: Tokens, said: dict[str, dict[str, Json]]
) -> tuple[Lease, dict[str, int]]:
    """A recovery run with one reversal proposed for each, as if nothing had happened since."""
    lease = await bench.run_over(tokens, list(said), UNDOING)
    premises: dict[str, Json] = {"exists": True, "matches": True, "settled": True, "reversible_minor": 1000}
    ids = {}
    for subject, what in said.items():
        (ids[subject],) = await bench.propose(
            lease,
            "reverse",
            [subject],
            tool="reverse_credit",
            said=what,
            mandate=UNDOING,
            premises=premises,
        )
    return lease, ids


async def test_a_failed_undo_is_a_case_and_the_others_go_on(
    bench: Bench, tokens: Tokens, cases: Cases, affected: list[str]
) -> None:
    """F47: two credits are taken back, of which the receiver refuses the first; nothing calls that one compensated."""
    said = await credited(bench, tokens, affected[:2])
    bad, good = affected[:2]
    lease, ids = await undoing(bench, tokens, {bad: {**said[bad], "amount_minor": 1001}, good: said[good]})
    await bench.settled(lease, [ids[good]])
    row = await bench.operation(ids[bad])
    assert (row["state"], row["closed"]) == ("CLOSED", "refused")
    (listed,) = await bench.database.rows("case_list", all=False, case=None, limit=10)
    assert (listed["code"], listed["operation_id"], listed["subject"]) == ("undo_failed", ids[bad], bad)
    assert "refused" in listed["detail"]
    for subject, state in ((bad, "CLOSED"), (good, "SETTLED")):
        (credit,) = await bench.sql(
            "SELECT id FROM remit.operations WHERE step = 'credit' AND subject = %s", subject
        )
        (undo,) = await bench.database.rows("undone_by", id=credit["id"])
        assert (undo["id"], undo["state"]) == (ids[subject], state)
    with pytest.raises(Refused, match=r"not put right yet"):
        await cases.close(tokens.finance_lead, listed["id"], rationale=WHY, eval_="undo-refused")
    (again,) = await bench.propose(
        lease,
        "reverse",
        [bad],
        tool="reverse_credit",
        said=said[bad],
        mandate=UNDOING,
        premises={"exists": True, "matches": True, "settled": True, "reversible_minor": 1000},
    )
    await bench.settled(lease, [again])
    await cases.close(tokens.finance_lead, listed["id"], rationale=WHY, eval_="undo-refused")
    assert sorted(c["reversed_minor"] for c in dump(bench.home)["credits"]) == [1000, 1000]


async def test_a_wrong_effect_is_put_right_or_left_by_somebodys_decision(
    bench: Bench, tokens: Tokens, cases: Cases, affected: list[str], ledger_database: Urls
) -> None:
    """Where the record agrees with the ledger nothing is left to do; elsewhere a person may leave it."""
    lease = await bench.run_over(tokens, affected[:1])
    (id_,) = await bench.propose(lease, "annotate", affected[:1])
    await bench.settled(lease, [id_])
    agreeing = await opened(ledger_database, id_, "different")
    done = await cases.close(tokens.finance_lead, agreeing, rationale=WHY, eval_="note-twice")
    assert (done["outcome"], done["detail"]) == ("closed", None)
    standing = await opened(ledger_database, id_, "undo_failed")
    with pytest.raises(Refused, match=r"--leave"):
        await cases.close(tokens.finance_lead, standing, rationale=WHY, eval_="note-twice")
    done = await cases.close(tokens.finance_lead, standing, rationale=WHY, eval_="note-twice", leave=True)
    assert (done["outcome"], done["detail"]) == ("closed", "left as it is")


async def ended(bench: Bench, lease: Lease, status: str, reason: str) -> None:
    """The last word of a runner about its run."""
    await bench.database.rows(
        "release_run", run=lease.run_id, token=lease.token, status=status, reason=reason, waits=json({})
    )


async def test_a_blocked_run_is_a_case_until_another_run_of_its_purpose_completes(
    bench: Bench, tokens: Tokens, cases: Cases
) -> None:
    """By the name of its end; it is not replayed, and what a person did to its mandate is none."""
    mandate = await bench.granted(tokens, [OWN])
    for reason in ("repeated_plan: nothing moved", "token_budget: 9 used", "mandate_revoked: taken back"):
        await ended(bench, await bench.leased(await bench.started(tokens, mandate)), "BLOCKED", reason)
    assert await bench.cases() == ["repeated_plan", "token_budget"]
    first, second = await bench.database.rows("case_list", all=False, case=None, limit=10)
    assert (first["operation_id"], first["purpose"], first["agent_version"]) == (None, "outage-0611", "test")
    assert (await cases.foresee(first, None)).way == "new_run"
    with pytest.raises(Refused, match=r"about a whole run"):
        await cases.resolve(tokens.finance_lead, first["id"], completed=True, evidence=TOLD, rationale=WHY)
    await cases.close(tokens.finance_lead, first["id"], rationale=WHY, no_eval="a sample run")
    await ended(
        bench, await bench.leased(await bench.started(tokens, mandate)), "COMPLETED", "completed: all"
    )
    assert await bench.cases() == []
    row = await case_of(bench.database, second["id"])
    assert row["resolution"] == "a run of the purpose has completed"


async def test_an_unreadable_checkpoint_is_a_case_of_its_run_once(bench: Bench, tokens: Tokens) -> None:
    """Quarantined threads are kept, and people see them where they see everything else."""
    lease = await bench.run_over(tokens, [OWN])
    for _ in range(2):
        await bench.database.rows(
            "new_thread",
            run=lease.run_id,
            token=lease.token,
            state="QUARANTINED",
            why="not readable",
            fingerprint="",
        )
    assert await bench.cases() == ["quarantined"]
    await ended(bench, lease, "COMPLETED", "completed: all")
    assert await bench.cases() == []


async def test_a_rising_rate_is_called_out_and_found_by_an_index(
    bench: Bench, tokens: Tokens, ledger_database: Urls
) -> None:
    """Three of one code in an hour after a quiet day; what is usual is not called out, however much there is of it."""
    lease = await bench.run_over(tokens, [OWN])
    async with await psycopg.AsyncConnection.connect(ledger_database.owner_url, autocommit=True) as owner:
        await owner.execute(
            "INSERT INTO remit.cases (run_id, code, detail, opened_at, closed_at)"
            " SELECT %(run)s, code, '', now() - make_interval(mins => n * step),"
            "        CASE WHEN step > 1 THEN now() END"
            " FROM (VALUES ('usual', 20, 4000), ('usual', 1, 4), ('sudden', 1, 3), ('few', 1, 2)) v (code, step, most),"
            " generate_series(1, most) n",
            {"run": lease.run_id},
        )
        await owner.execute("ANALYZE remit.cases")
        cursor = await owner.execute("EXPLAIN SELECT * FROM remit.case_counts")
        plan = "\n".join(row[0] for row in await cursor.fetchall())
    counts = await bench.database.rows("case_counts")
    by_code = {row["name"]: row for row in counts if row["part"] == "code"}
    assert {name: (row["open"], row["rising"]) for name, row in by_code.items()} == {
        "usual": (4, False),
        "sudden": (3, True),
        "few": (2, False),
    }
    assert any("3 cases of code sudden in the last hour, against 0.0" in line for line in rising(counts))
    assert "cases_opened" in plan
    assert "Seq Scan on cases" not in plan
