"""What people say: tokens, mandates, decisions, stops. Each call hands the secret to the database, which checks it.

Keeps I3: nothing in Python decides whether a token may do something, and no secret is kept or logged here.
"""

import hashlib
import secrets
from collections.abc import Sequence
from datetime import datetime

from remit.checkpoints.database import Database, Row, json
from remit.tools.actions import Json
from remit.tools.errors import Refused

REFUSALS = {
    "token_unknown": "This token is not known here. Give the file of a token that `remit token list` shows.",
    "token_revoked": "This token was revoked. Ask an administrator for a new one.",
    "token_expired": "This token has expired. Ask an administrator for a new one.",
    "no_such_approval": "There is no such approval. See `remit inbox`.",
    "in_the_chain": "This person stands in the chain of this run (grantor, requester, owner, agent, or who minted a "
    "token for one of them or got one from them) and decides nothing in it, at any amount. Ask somebody outside it.",
    "wrong_role": "This approval is for another role. See who is asked in `remit inbox`.",
    "too_late": "The time to decide has passed, so nothing was approved. Start another run to be asked again: "
    "`remit run PURPOSE`.",
    "administrator": "Administrators make identities, so they decide nothing. Ask one of the roles in `remit inbox`.",
    "escalated": "The time to decide has passed, and others were asked instead. See whom in `remit inbox`.",
    "cancelled": "Nobody is asked by this any more: what it was about was closed, or is asked anew. See `remit inbox`.",
    "already_decided": "This was decided already; nothing was changed. See `remit show`.",
    "already_voted": "This person has decided this already, and the quorum needs somebody else.",
    "other_set": "The set of actions is not the one that was shown. Look at it again: `remit inbox ID`.",
    "not_in_this_set": "One of the operations named is not part of this approval. See `remit inbox ID`.",
}
"""A sentence for each code of `remit.decide`; the last part says what to do next."""

NOT_EDITED = {
    "no_such_operation": "There is no such operation. See `remit inbox ID`.",
    "not_asked": "Nobody is asked about this operation just now, so there is nothing to edit. See `remit inbox`.",
    "wrong_role": "Only who may decide about an operation may edit it. See who is asked in `remit inbox`.",
    "not_editable": "The mandate fixes this. Edit a field that its step names, or reject the action.",
    "same": "That is what the action says already, so nothing was changed. Approve or reject it.",
    "changed_meanwhile": "The operation has changed meanwhile. Look at it again: `remit inbox ID`.",
}
"""A sentence for each refusal of `remit.edit`."""


SECRET_PREFIX = "rmt_"  # noqa: S105 - how secrets begin, not one
"""How every secret begins, so that one in a wrong place is known for what it is."""


def new_secret() -> str:
    """A secret of 256 random bits; only its SHA-256 is stored."""
    return SECRET_PREFIX + secrets.token_urlsafe(32)


class People:
    """Tokens, mandates, decisions and orders. Errors are Refused, with what to do next."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def mint(
        self, minter: str | None, person: str, role: str, seconds: float, natural_person: str | None = None
    ) -> tuple[str, str, datetime]:
        """A new token: (id, secret, expiry). `minter` None is the bootstrap of an empty database, an administrator.

        `natural_person`: who that identity is; None where it is known already, or is nobody's but its own.
        """
        id_, secret = "tok-" + secrets.token_hex(4), new_secret()
        digest = hashlib.sha256(secret.encode()).digest()
        expires: datetime = await self._database.value(
            "mint_token",
            minter=minter,
            id=id_,
            hash=digest,
            person=person,
            role=role,
            seconds=seconds,
            natural_person=natural_person,
        )
        return id_, secret, expires

    async def whoami(self, secret: str) -> Row:
        """Who a token speaks for: token_id, person, natural_person, role, expires_at."""
        row = await self._database.row("whoami", secret=secret)
        if row is None:
            raise Refused("This token is not known here. Give the file of another one.", code="token")
        return row

    async def revoke_token(self, secret: str, id_: str) -> int:
        """Revoke a token, and void what it granted and nobody has begun to send: the number of those actions."""
        voided: int = await self._database.value("revoke_token", secret=secret, id=id_)
        return voided

    async def grant(self, secret: str, hash_: str, document: dict[str, Json], subjects: Sequence[str]) -> Row:
        """Grant a mandate over a frozen cohort: {outcome, superseded}."""
        row = await self._database.row(
            "grant_mandate", secret=secret, hash=hash_, document=json(document), subjects=list(subjects)
        )
        assert row is not None
        return row

    async def revoke_mandate(self, secret: str, hash_: str) -> datetime:
        moment: datetime = await self._database.value("revoke_mandate", secret=secret, hash=hash_)
        return moment

    async def decide(
        self,
        secret: str,
        approval: str,
        set_hash: str,
        *,
        grant: bool,
        rationale: str,
        only: Sequence[int] | None = None,
    ) -> Row:
        """Decide an approval: {outcome, person, decided, undecided}. Raises Refused with a code of REFUSALS."""
        row = await self._database.row(
            "decide",
            secret=secret,
            approval=approval,
            set_hash=set_hash,
            decision="granted" if grant else "rejected",
            only=None if only is None else list(only),
            rationale=rationale,
        )
        assert row is not None
        if row["outcome"] in REFUSALS:
            raise Refused(REFUSALS[row["outcome"]], code=row["outcome"], person=row["person"])
        return row

    async def unapprove(
        self, secret: str, approval: str, *, rationale: str, only: Sequence[int] | None = None
    ) -> list[Row]:
        """Take the own grants back: {operation_id, outcome} each, truthful where a claim was first."""
        chosen = None if only is None else list(only)
        return await self._database.rows(
            "unapprove", secret=secret, approval=approval, only=chosen, rationale=rationale
        )

    async def edit(
        self, secret: str, operation: int, version: int, intent: dict[str, Json], *, rationale: str
    ) -> None:
        """Put another intent in the place of an action that waits for approval. Raises Refused, code of NOT_EDITED."""
        outcome = await self._database.value(
            "edit",
            secret=secret,
            operation=operation,
            version=version,
            intent=json(intent),
            rationale=rationale,
        )
        if outcome in NOT_EDITED:
            raise Refused(NOT_EDITED[outcome], code=outcome)

    async def stop(self, secret: str, scope: str, value: str, reason: str) -> Row:
        """Place a stop. In force for every claim and every group of sends from the moment this returns."""
        row = await self._database.row("stop", secret=secret, scope=scope, value=value, reason=reason)
        assert row is not None
        return row

    async def freeze(self, secret: str, scope: str, value: str, reason: str) -> Row:
        """Place a freeze: what waits within the scope keeps waiting, and nothing new is allowed. For leads only."""
        row = await self._database.row("freeze", secret=secret, scope=scope, value=value, reason=reason)
        assert row is not None
        return row

    async def lift(self, secret: str, id_: int) -> Row:
        """Lift an order: {order_id, cancelled}. What it kept back is closed first and has to be proposed again."""
        row = await self._database.row("lift", secret=secret, id=id_)
        assert row is not None
        return row

    async def cancel_holds(self, secret: str, ids: Sequence[int]) -> list[Row]:
        """Keep waiting operations back: one row of `remit.hold_changes` each, truthful where a send was first.

        What was with a sender already is followed and never sent again; it is closed where nothing of it was sent.
        """
        return await self._database.rows("cancel_holds", secret=secret, ids=list(ids))

    async def release_holds(self, secret: str, ids: Sequence[int]) -> list[Row]:
        """Let waiting operations leave now; for whom policy names, outside the chain. Rows as of `cancel_holds`."""
        return await self._database.rows("release_holds", secret=secret, ids=list(ids))

    async def reschedule_holds(
        self, secret: str, ids: Sequence[int], *, to: datetime | None = None, by: float | None = None
    ) -> list[Row]:
        """Move windows to a moment of company time, or by seconds. Later is open to all; earlier is a release.

        Rows as of `cancel_holds`. Raises Refused unless exactly one of `to` and `by` is given.
        """
        return await self._database.rows("reschedule_holds", secret=secret, ids=list(ids), to=to, by=by)
