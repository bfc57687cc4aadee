"""A probe of one tool for one test subject: a mandate, a run and an operation like any other, then the same key again.

Keeps I2 and I3 for the probe itself: it is granted by the token's person, judged by the policy, claimed and sent by the
runner, and what it did is read from the receiver's records.
"""

import asyncio
import json
import secrets
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from remit.checkpoints import People, Sweep, Worker
from remit.checkpoints.database import Row
from remit.checkpoints.database import json as jsonb
from remit.graph.deps import Deps
from remit.graph.driver import Driver, RunEnd
from remit.graph.model import Call, Reply
from remit.tools.actions import Json, Request, operation_key, reference
from remit.tools.catalogue import FINISH
from remit.tools.contracts import Sought, WriteTool
from remit.tools.errors import Misconfigured, Refused
from remit.tools.mandates import AskAbove, Limit, Mandate, Money, Step, Who
from remit.tools.probing import probe_key

PREFIX = "probe-"
STEP = "probe"
AGENT = "catalogue-probe"
LONGEST_SECONDS = 60.0
"""For the operation to settle; a receiver that takes longer is probed again when it is well."""

_HOUR = 3_600
_PAUSE_SECONDS = 0.1

SMALLEST, OTHER = 1, 2
"""Minor units: the least that can be given, since what a probe does may stay, and another content under its key."""

CURRENCIES = {"credit.issue": "USD"}
"""By effect, how it is probed: with the smallest amount of this currency. An effect that is not here has no probe."""


@dataclass(slots=True)
class _Fixed:
    """Stands where the model stands: one call, then the end."""

    call: Call
    name: str = "probe"

    async def plan(self, messages: Sequence[dict[str, Any]], tools: Sequence[dict[str, Any]]) -> Reply:
        asked_before = any(message["role"] == "assistant" for message in messages)
        said = {"statements": [{"text": "The probe is sent.", "step": STEP, "count": 1}]}
        return Reply("", (Call("end", FINISH, json.dumps(said)) if asked_before else self.call,), 0)


def probe_mandate(tool: WriteTool, subject: str, now: int) -> Mandate:
    """One action of the smallest amount for one subject, within the hour, under a purpose of its own.

    Raises Misconfigured where the tool cannot be probed.
    """
    contract = tool.contract
    currency = CURRENCIES.get(contract.effect)
    if currency is None or contract.visible_within is None:
        raise Misconfigured(
            f"{contract.name} says that its receiver enforces keys, and no probe can show it. Set its "
            "receiver_enforces_key to False, or write a probe.",
            code="no_probe",
        )
    money = Money(amount_minor=SMALLEST, currency=currency)
    return Mandate(
        purpose=f"{PREFIX}{contract.name.replace('_', '-')[:40]}-{secrets.token_hex(6)}",
        why=f"A probe whether the receiver of {contract.name} enforces its keys.",
        agent=AGENT,
        who=Who(subjects=(subject,), at_most=1),
        valid_from=now - 1,
        valid_until=now + _HOUR,
        steps=(Step(name=STEP, effect=contract.effect, exactly=money),),
        never=(),
        ask_above=AskAbove(),
        limits=(Limit(effect=contract.effect, count=1, money=money),),
    )


async def probe_tool(deps: Deps, worker: Worker, secret: str, tool: WriteTool, mandate: Mandate) -> Row:
    """Grants the probe's mandate, sends its one operation, sends its key again, and stores what was seen: a row of
    `remit.probes`. The mandate is revoked at the end, however it ends. Raises Refused where nothing was settled."""
    people, (subject,) = People(deps.database), mandate.who.subjects
    await people.grant(secret, mandate.hash, mandate.document(), [subject])
    try:
        operation = await _settled(deps, worker, secret, tool, mandate)
        return await _sent_again(deps, secret, tool, operation)
    finally:
        await people.revoke_mandate(secret, mandate.hash)


async def _settled(deps: Deps, worker: Worker, secret: str, tool: WriteTool, mandate: Mandate) -> Row:
    (step,), (subject,) = mandate.steps, mandate.who.subjects
    assert step.exactly is not None
    call = Call("probe", tool.contract.name, json.dumps({"subject": subject, **step.exactly.model_dump()}))
    end = await _carried_on(replace(deps, model=_Fixed(call)), worker, secret, mandate)
    rows = await deps.database.rows("operation", which=operation_key(mandate.purpose, STEP, subject))
    if not rows or rows[-1]["state"] != "SETTLED":
        where = f"{rows[-1]['state']} ({rows[-1]['closed_detail'] or end.reason})" if rows else end.reason
        raise Refused(
            f"The probe of {tool.contract.name} for {subject} did not settle: {where}. Nothing was shown. "
            f"See `remit show {end.run_id}`, then probe again.",
            code="probe_not_settled",
        )
    return rows[-1]


async def _carried_on(deps: Deps, worker: Worker, secret: str, mandate: Mandate) -> RunEnd:
    driver, sweep = Driver(deps, worker), Sweep(deps.database, deps.runner, worker)
    run = await driver.start(secret, mandate.hash)
    deadline, end = time.monotonic() + LONGEST_SECONDS, await driver.drive(run)
    while end.paused and not end.only_people and time.monotonic() < deadline:
        await asyncio.sleep(_PAUSE_SECONDS)
        await sweep.once(run)
        if await deps.database.value("run_ready", run=run):
            end = await driver.drive(run)
    return end


async def _sent_again(deps: Deps, secret: str, tool: WriteTool, operation: Row) -> Row:
    (*_, attempt) = await deps.database.rows("attempts", id=operation["id"])
    subject, intent = operation["subject"], operation["intent"]
    name = reference(deps.ledger.installation, operation["key"])
    probed = await probe_key(
        tool,
        deps.transport,
        wire_key=attempt["wire_key"],
        request=Request.model_validate(operation["request"]),
        otherwise=tool.request(subject, {**intent, "amount_minor": OTHER}, name),
        sought=Sought(name, subject, intent),
    )
    evidence: dict[str, Json] = {**probed.document(), "subject": subject, "reference": name, **_money(intent)}
    (row,) = await deps.database.rows(
        "store_probe", secret=secret, operation=operation["id"], shown=probed.shown, evidence=jsonb(evidence)
    )
    return row


def _money(intent: dict[str, Json]) -> dict[str, Json]:
    return {part: intent[part] for part in ("amount_minor", "currency")}
