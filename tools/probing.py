"""Sends again, on purpose, what one operation has sent, and counts the effects: does the receiver enforce its keys?

The only call of a side-effecting tool outside the runner, and only behind an operation that policy allowed for it and
the runner sent. Keeps I1 honest: a contract's `receiver_enforces_key` is believed because it was seen.
"""

import asyncio
from dataclasses import dataclass

from remit.tools.actions import Json, Request
from remit.tools.contracts import Sought, WriteTool
from remit.tools.errors import NotSent, OutcomeUnknown
from remit.tools.states import Seen
from remit.tools.transport import Transport


@dataclass(frozen=True, slots=True)
class Probed:
    """What the receiver did with one key sent three times; `shown` only where there is one effect and both answers."""

    shown: bool
    again: Seen
    """What the same request under the same key was answered: ACCEPTED is the stored answer."""
    otherwise: Seen
    """What another request under the same key was answered: KEY_REUSED is the refusal."""
    effects: int
    complete: bool
    source: str
    as_of: str

    def document(self) -> dict[str, Json]:
        """As it is stored."""
        return {
            name: getattr(self, name)
            for name in ("again", "otherwise", "effects", "complete", "source", "as_of")
        }


async def probe_key(
    tool: WriteTool,
    transport: Transport,
    *,
    wire_key: str,
    request: Request,
    otherwise: Request,
    sought: Sought,
) -> Probed:
    """Sends `request` and then `otherwise` under a key that has had its effect, and reads the receiver's records.

    The records are read after `visible_within`, since a second effect could show that late; ValueError without it.
    """
    if tool.contract.visible_within is None:
        raise ValueError("without visible_within the records never prove that there is one effect only")
    again = await _sent(tool, transport, wire_key, request)
    other = await _sent(tool, transport, wire_key, otherwise)
    await asyncio.sleep(tool.contract.visible_within)
    (sighting,) = await tool.verify_many(transport, [sought])
    effects = len(sighting.records)
    shown = (again, other, effects, sighting.complete) == (Seen.ACCEPTED, Seen.KEY_REUSED, 1, True)
    return Probed(shown, again, other, effects, sighting.complete, sighting.source, sighting.as_of)


async def _sent(tool: WriteTool, transport: Transport, wire_key: str, request: Request) -> Seen:
    contract = tool.contract
    try:
        response = await transport.call(
            contract.receiver,
            request.method,
            request.path,
            credential=contract.credential,
            seconds=contract.timeout,
            body=request.body,
            headers=tool.headers(wire_key, None),
        )
    except NotSent:
        return Seen.NOT_WRITTEN
    except OutcomeUnknown:
        return Seen.UNKNOWN
    return tool.classify(response, request)
