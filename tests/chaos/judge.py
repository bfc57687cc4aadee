"""The judge: what the company's records and the ledger must agree on once everything is quiet. Empty is right.

The company's own checker comes first and reads no ledger (I1, I2, I8, I12); then ledger against world (I1, I5, I6),
and the ledger's rows against each other (I3, I4, I7, I9, limits).
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from remit.sandbox import check, dump
from tests.chaos.arena import PURPOSES, Arena

Rows = list[dict[str, Any]]

STANDING = "SELECT id, key, run_id, purpose, state, shown_fact, obstacle FROM remit.standing ORDER BY id"

_FORBIDDEN: dict[str, str] = {
    "I4: claimed while an order stood": """
        SELECT a.id FROM remit.attempts a JOIN remit.operations o ON o.id = a.operation_id JOIN remit.orders d
        ON d.scope = 'all' OR (d.scope = 'run' AND d.value = o.run_id)
           OR (d.scope = 'mandate' AND d.value IN (o.purpose, o.mandate_hash))
           OR (d.scope = 'subject' AND d.value = o.subject)
        WHERE a.claimed_at > d.issued_at AND (d.lifted_at IS NULL OR a.claimed_at < d.lifted_at)""",
    "I3: claimed without an allow or a granted approval of the same hash": """
        SELECT a.id FROM remit.attempts a JOIN remit.operations o ON o.id = a.operation_id
        WHERE o.verdict IS DISTINCT FROM 'allow' AND NOT (o.verdict = 'needs_approval' AND EXISTS (
            SELECT FROM remit.approval_items i WHERE i.operation_id = o.id AND i.action_hash = o.action_hash
            AND i.decision = 'granted' AND i.decided_at < a.claimed_at AND a.company_time < i.execute_by))""",
    "I3: decided from inside the chain": """
        SELECT v.operation_id AS id FROM remit.votes v JOIN remit.operations o ON o.id = v.operation_id
        JOIN remit.runs r ON r.id = o.run_id JOIN remit.mandates m ON m.hash = o.mandate_hash
        WHERE v.person IN (r.owner, r.requester, r.agent, m.grantor)""",
    "I5: settled without evidence": """
        SELECT o.id FROM remit.operations o WHERE o.state = 'SETTLED' AND NOT EXISTS (
            SELECT FROM remit.evidence e WHERE e.operation_id = o.id AND e.sight IN ('effective', 'different'))""",
    "I1: more than one wire key for one key": """
        SELECT min(a.operation_id) AS id FROM remit.attempts a JOIN remit.operations o ON o.id = a.operation_id
        WHERE NOT EXISTS (SELECT FROM remit.operations c WHERE c.key = o.key AND c.closed IN ('refused', 'withdrawn'))
        GROUP BY o.key HAVING count(DISTINCT a.wire_key) > 1""",
    "I9: an attempt that the journal does not know": """
        SELECT a.id FROM remit.attempts a WHERE NOT EXISTS (
            SELECT FROM remit.journal j WHERE j.operation_id = a.operation_id AND j.kind = 'attempts.added'
            AND (j.data ->> 'id')::bigint = a.id)""",
    "I7: a run without a name for where it stands": """
        SELECT 0 AS id FROM remit.runs WHERE status <> 'RUNNING' AND reason = ''""",
    "limits: shares that no sent operation holds, or sent operations without one": """
        SELECT u.count AS id FROM remit.limit_usage u WHERE u.count <> (
            SELECT count(*) FROM remit.reservations r JOIN remit.operations o ON o.id = r.operation_id
            WHERE r.bucket = u.bucket AND o.state NOT IN ('PENDING', 'CLOSED'))""",
    "a case, though every fault of this round can be settled": """
        SELECT operation_id AS id FROM remit.cases WHERE closed_at IS NULL""",
}


async def breaches(arena: Arena, *, final: bool = False) -> list[str]:
    """Everything that is wrong; `final`: also every customer whom a campaign did not reach exactly once."""
    found = [
        f"{finding.invariant}: {finding.subject} {finding.detail}"
        for purpose in PURPOSES
        for finding in check(arena.home, purpose, final)
    ]
    installation = (await arena.sql("SELECT id FROM remit.installation"))[0]["id"]
    found += compared(await arena.sql(STANDING), dump(arena.home), installation)
    for name, query in _FORBIDDEN.items():
        ids = [row["id"] for row in await arena.sql(query)]
        found += [f"{name}: {ids}"] if ids else []
    return list(dict.fromkeys(found))


def compared(standing: Rows, records: dict[str, Any], installation: str) -> list[str]:
    """Ledger against world: every completed operation has its one effect, and every effect of ours is completed."""
    effects = Counter(
        reference.partition(":")[2]
        for reference in _references(records)
        if reference and reference.partition(":")[0] == installation
    )
    completed = {row["key"] for row in standing if row["shown_fact"] == "COMPLETED"}
    found = [
        f"I5: operation {row['id']} {row['key']} is still {row['state']} ({row['obstacle']})"
        for row in standing
        if row["state"] in ("SENDING", "UNKNOWN", "ACCEPTED")
    ]
    found += [f"I5: lost: {key} is COMPLETED and has no effect" for key in sorted(completed - set(effects))]
    found += [f"I5: {key} has an effect and is not COMPLETED" for key in sorted(set(effects) - completed)]
    return found + [f"I1: {key} has {count} effects" for key, count in effects.items() if count > 1]


def _references(records: dict[str, Any]) -> list[str | None]:
    live = [
        *(credit for credit in records["credits"] if credit["status"] not in ("withdrawn", "reversed")),
        *(message for message in records["messages"] if message["status"] != "withdrawn"),
        *(note for account in records["accounts"] for note in account["notes"] if note["actor"] == "agent"),
    ]
    return [entry["reference"] for entry in live]
