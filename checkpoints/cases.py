"""What people do about cases: look, resolve with evidence, replay, close. Each call hands the secret to the database.

Keeps I6: before anything is said of an outcome, the system of record is asked, and what it shows outranks the word of
anybody. A replay sends nothing; it opens a gate, and the ordinary claim decides (I1).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from remit.checkpoints.database import Database, Row, json
from remit.checkpoints.ledger import Ledger
from remit.tools.errors import Refused
from remit.tools.ports import Due
from remit.tools.runner import Foreseen, Runner

MOST = 10_000
"""Cases in one listing. Beyond that the counts say more than the rows."""

_HOURS_BEFORE = 24

REFUSALS = {
    "closed_already": "The case is closed already; nothing was changed. See `remit cases show {case}`.",
    "in_the_chain": "This person stands in the chain of its run, and may not answer for it. Ask somebody outside it.",
    "wrong_role": "Only {detail} answers for such an action, so nothing was changed. Ask one of them.",
    "changed_meanwhile": "The operation moved meanwhile, so nothing was changed. Look again: `remit cases show "
    "{case}`.",
    "no_operation": "This case is about a whole run, and there is no outcome to establish. Close it: `remit cases "
    "close {case}`.",
    "not_unknown": "Only an unknown outcome is established by a person, and this one is known ({detail}). See `remit "
    "cases show {case}`.",
    "contradicted": "The system of record can be read, and it says otherwise: {detail}. Nothing was changed. Correct "
    "the record there, or resolve the case as it shows.",
    "too_early": "What was sent may still arrive within the receiver's own bound, so nothing was changed. Wait for it, "
    "then look again: `remit cases show {case}`.",
    "not_final": "Its operation is not final ({detail}). Establish the outcome first: `remit cases resolve {case}`.",
    "remedy_missing": "What is wrong is not put right yet: {detail}. Put it right, or decide to leave it with --leave.",
}
"""A sentence for each refusal of a person's word; the last part says what to do next."""

BARRED = {
    "closed_already": "the case is closed.",
    "settled": "it is completed, so another send would be a second effect. Close the case.",
    "accepted": "the receiver has accepted it, so it is followed and never sent again. `remit work` follows it.",
    "sending": "a sender has it right now. Look again in a moment.",
    "other_case": "another case of the same operation stands in the way: case {detail}. Work on that one first.",
    "seen": "the system of record shows an effect of it. What it shows is settled by `remit work`, or put right.",
    "withdrawn": "it was withdrawn at the receiver. `remit work` closes it.",
    "accepted_once": "the receiver once said accepted, and what is only not seen any more may come back. Establish the "
    "outcome with evidence: `remit cases resolve {case}`.",
    "later_revision": "a later revision stands under the same key. See `remit show KEY`.",
    "rejected": "a person rejected it, and that is not asked twice in one run. Start another: `remit run PURPOSE`.",
    "denied": "policy denied it. See `remit policy explain`.",
    "no_proposal": "its run holds no proposal of it any more. Propose it again: `remit run PURPOSE`.",
    "no_contract": "its tool is in no catalogue, so nobody knows how it is sent or found. Restore the tool.",
    "order": "an order stands over it. See `remit runs`, then `remit lift`.",
    "mandate": "its mandate is not in force. Grant a mandate and run that one.",
    "run_ended": "its run has ended, and nobody claims for it any more. Establish the outcome: `remit cases resolve "
    "{case}`; what had no effect is proposed again by `remit run PURPOSE`.",
    "kept_back": "a person wanted it back. Its outcome is looked up and nothing is sent.",
    "key_reused": "the receiver knows its wire key with other content, or an earlier one had another key. Establish "
    "the outcome with evidence: `remit cases resolve {case}`.",
    "unreadable": "the system of record cannot be read now, and the receiver does not vouch for the key. Look again "
    "when it answers.",
    "sender_alive": "an earlier sender cannot be proved dead, and the receiver enforces no keys. Establish the outcome "
    "with evidence: `remit cases resolve {case}`.",
    "absence_proves_nothing": "the receiver bounds no time in which an effect shows, so its absence proves nothing. "
    "Establish the outcome with evidence: `remit cases resolve {case}`.",
    "accepted_then_absent": "the receiver once said accepted. Establish the outcome: `remit cases resolve {case}`.",
    "too_early": "what was sent may still become visible. `remit work` looks on; look again later.",
}
"""Why a replay is not safe, by the ledger's code, and what to do instead."""

WAYS = {
    (
        "resend",
        "key_enforced",
    ): "safe: the same request is sent under the same wire key, which the receiver enforces "
    "and still remembers, so that it has no second effect",
    (
        "send",
        "proved_absent",
    ): "safe: everything sent so far is proved to be without effect; it is sent once more "
    "under its own wire key",
    (
        "new_revision",
        "no_effect",
    ): "safe: what was sent had no effect; its run proposes it again as a new revision, with a new verdict",
    (
        "new_run",
        "run_ended",
    ): "nothing to open here: its run has ended. `remit run PURPOSE` proposes again what was not done",
}
"""What a replay would do, by the ledger's way and reason."""


@dataclass(frozen=True, slots=True)
class Way:
    """What a replay of one case would do, as the ledger says: `way`, its reason, and both in words."""

    way: str
    why: str
    words: str

    @property
    def safe(self) -> bool:
        return self.way in {"resend", "send", "new_revision"}


def rising(counts: Sequence[Row]) -> list[str]:
    """A sentence for each row of `remit.case_counts` whose rate the database calls rising."""
    return [
        f"RISING: {row['this_hour']} cases of {row['part']} {row['name']} in the last hour, against "
        f"{row['day_before'] / _HOURS_BEFORE:.1f} an hour in the day before"
        for row in counts
        if row["rising"]
    ]


async def case_of(database: Database, id_: int) -> Row:
    """One case with its operation's key, tool, state and fact, whether it is open or closed."""
    row = await database.row("case_list", all=True, case=id_, limit=1)
    if row is None:
        raise no_such_case(id_)
    return row


def no_such_case(id_: int) -> Refused:
    """The one answer about a case that there is not, and about one that is none of the asker's business."""
    return Refused(f"There is no case {id_}. See `remit cases`.", code="no_such_case")


class Cases:
    """Cases of one installation. Errors are Refused, with what to do next."""

    def __init__(self, ledger: Ledger, runner: Runner) -> None:
        self._database: Database = ledger.database
        self._ledger = ledger
        self._runner = runner

    async def look(self, case: Row) -> dict[str, Any] | None:
        """One look at the system of record for this case, as `remit.case_look`; None for a case of a whole run."""
        if case["operation_id"] is None:
            return None
        item = await self._ledger.look_of(case["operation_id"])
        return _look(item, await self._runner.foresee(item))

    async def foresee(self, case: Row, look: dict[str, Any] | None) -> Way:
        """What a replay would do after this look. Changes nothing."""
        row = await self._database.row("foresee_replay", case=case["id"], look=json(look or {}))
        assert row is not None
        return _way(case["id"], row["way"], row["why"], None)

    async def resolve(self, secret: str, id_: int, *, completed: bool, evidence: str, rationale: str) -> Row:
        """Establish an unknown outcome by evidence: a row of `remit.case_acts`. Refused, code of REFUSALS."""
        case = await case_of(self._database, id_)
        return await self._act(
            "resolve_case",
            secret=secret,
            case=id_,
            fact="completed" if completed else "no_effect",
            evidence=evidence,
            rationale=rationale,
            look=json(await self.look(case) or {}),
        )

    async def replay(self, secret: str, id_: int, *, rationale: str) -> Row:
        """Open the case's gate where the ledger finds that safe. Refused, code of REFUSALS or of BARRED."""
        look = await self.look(await case_of(self._database, id_))
        return await self._act(
            "replay_case", secret=secret, case=id_, rationale=rationale, look=json(look or {})
        )

    async def close(
        self,
        secret: str,
        id_: int,
        *,
        rationale: str,
        eval_: str | None = None,
        no_eval: str | None = None,
        leave: bool = False,
    ) -> Row:
        """Close a case, with the eval that captures it or why none is needed. Refused, code of REFUSALS.

        `leave`: what is wrong stays as it is, by this person's decision.
        """
        look = await self.look(await case_of(self._database, id_))
        return await self._act(
            "close_case",
            secret=secret,
            case=id_,
            rationale=rationale,
            eval=eval_,
            no_eval=no_eval,
            leave=leave,
            look=json(look or {}),
        )

    async def _act(self, name: str, **values: object) -> Row:
        row = await self._database.row(name, **values)
        assert row is not None
        if row["outcome"] in _DONE:
            return row
        case, detail = row["case_id"], row["detail"]
        if row["verb"] != "replay" or row["outcome"] in _OF_PERSONS:
            said = REFUSALS[row["outcome"]].format(case=case, detail=detail)
        else:
            said = f"Not replayed: {BARRED[row['outcome']].format(case=case, detail=detail)}"
        raise Refused(said, code=row["outcome"], person=row["person"])


_DONE = {"resolved", "released", "proposed", "closed"}

_OF_PERSONS = {"in_the_chain", "wrong_role", "changed_meanwhile"}


def _way(case: int, way: str, why: str, detail: str | None) -> Way:
    words = (
        WAYS.get((way, why)) or f"not safe: {BARRED[why].format(case=case, detail=detail or 'see the list')}"
    )
    return Way(way, why, words)


def _look(item: Due, seen: Foreseen) -> dict[str, Any]:
    sighting = seen.sighting
    return {
        "operation_id": item.operation_id,
        "version": item.version,
        "attempt": item.attempt,
        "sight": sighting.sight.value,
        "source": sighting.source,
        "as_of": sighting.as_of,
        "complete": sighting.complete,
        "read_began_at": item.now.isoformat(),
        "records": sighting.records,
        "to": seen.then.to,
        "resend": seen.then.resend,
        "case": seen.then.case,
        "absence_counts": seen.look.absence_counts,
        "bound_over": seen.bound_over,
        "remembered": seen.remembered,
        "known": seen.known,
    }
