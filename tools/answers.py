"""How the tools read what a receiver answers: in batches, strictly, and never as more than it proves.

An answer that is not the documented one is no knowledge: a read of it raises, a write's is UNKNOWN, and a
search's is UNREADABLE, never ABSENT (I5, I6).
"""

from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Generic, TypeVar
from urllib.parse import quote

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError

from remit.tools.actions import Json, Strict
from remit.tools.contracts import Sighting, Sought
from remit.tools.doors import CLOSED
from remit.tools.errors import NotSent, OutcomeUnknown, Refused
from remit.tools.states import Seen, Sight
from remit.tools.transport import Response, Transport

BATCH = 100
"""Ids or references per request: the most that the company's batch and search calls take."""

Text = Annotated[str, StringConstraints(max_length=4_000, pattern=r"^[^\x00]*$")]
"""A receiver's text; NUL is no text that the ledger could store as evidence."""

Count = Annotated[int, Field(ge=0, le=2**53 - 1)]

T = TypeVar("T")


class Record(BaseModel):
    """Base of what receivers answer: the fields that we know are strict, others are left aside."""

    model_config = ConfigDict(strict=True, extra="ignore", frozen=True, allow_inf_nan=False)


class Listing(Record):
    """What every list and search of the company's services states about itself."""

    as_of: Text
    complete: bool


R = TypeVar("R", bound=Record)
A = TypeVar("A", bound=Strict)


@dataclass(frozen=True, slots=True)
class Found(Generic[R]):
    """The records of one complete search, and the receiver's own time of it."""

    as_of: str
    records: Sequence[R]


def batches(items: Sequence[T]) -> Iterator[Sequence[T]]:
    """In order, at most BATCH of them at a time."""
    for start in range(0, len(items), BATCH):
        yield items[start : start + BATCH]


def distinct(items: Sequence[T]) -> list[T]:
    """Each once, in the order of first appearance."""
    return list(dict.fromkeys(items))


def of_kind(kind: type[A], arguments: Strict) -> A:
    """The arguments as the tool's own class. TypeError where the caller validated them for another tool."""
    if not isinstance(arguments, kind):
        raise TypeError(f"{kind.__name__} are needed here, not {type(arguments).__name__}.")
    return arguments


def parse(model: type[R], body: Json) -> R | None:
    """The record, or None where the body is not what the receiver documents."""
    try:
        return model.model_validate(body)
    except ValidationError:
        return None


def problem_code(response: Response) -> str | None:
    """The `code` of an RFC 9457 problem body, the only part of it that a decision may rest on."""
    code = response.body.get("code") if isinstance(response.body, dict) else None
    return code if isinstance(code, str) else None


async def ask(
    transport: Transport,
    receiver: str,
    call: str,
    model: type[R],
    *,
    seconds: float,
    body: Json = None,
    unknown: str | None = None,
) -> R:
    """One read, `call` being method and path. The credential's reference is the receiver's name.

    Raises Refused for a 404 with the code `unknown` (what was named does not exist), and NotSent for whatever
    else is not a complete, documented answer: a read writes nothing, so it may be repeated. What the transport
    raises passes through.
    """
    method, _, path = call.partition(" ")
    response = await transport.call(receiver, method, path, credential=receiver, seconds=seconds, body=body)
    if unknown is not None and (response.status, problem_code(response)) == (404, unknown):
        raise Refused(f"{receiver} knows nothing at {path}. Correct the name and ask again.", code=unknown)
    record = parse(model, response.body) if response.status == 200 else None
    if record is None:
        raise unusable(receiver, call, response, "unreadable")
    if isinstance(record, Listing) and not record.complete:
        raise unusable(receiver, call, response, "incomplete")
    return record


class Paged(Listing):
    """One page of a list that is read to its end; `next` names what the following one comes after."""

    next: Text | int | None


P = TypeVar("P", bound=Paged)


async def every_page(
    transport: Transport, receiver: str, path: str, model: type[P], *, since: datetime, seconds: float
) -> list[P]:
    """All pages of a list since a company time. Raises what `ask` raises, and NotSent for a list without an end."""
    query = f"GET {path}?since={quote(since.isoformat(), safe='')}&limit={BATCH}"
    pages: list[P] = []
    call, passed = query, set[str | int]()
    while True:
        pages.append(await ask(transport, receiver, call, model, seconds=seconds))
        following = pages[-1].next
        if following is None:
            return pages
        if following in passed:
            raise unusable(receiver, call, Response(200, None), "incomplete")
        passed.add(following)
        call = f"{query}&after={quote(str(following), safe='')}"


def unusable(receiver: str, call: str, response: Response, why: str) -> NotSent:
    """The error for a read that taught nothing; its code says which gate of the receiver it concerns."""
    code = {401: "credential", 403: "credential", 429: "rate_limited"}.get(response.status, why)
    return NotSent(
        f"{receiver} gave no usable answer to {call} ({code}, status {response.status}). "
        "Look at the receiver, then `remit resume`.",
        code=code,
        status=response.status,
        retry_after=response.headers.get("retry-after"),
    )


Table = Mapping[tuple[int, str], Seen]
"""What a receiver documents, by status and problem code."""

ANYWHERE: Mapping[int, Seen] = {401: Seen.CREDENTIAL, 403: Seen.CREDENTIAL, 429: Seen.RATE_LIMITED}
"""They come before the receiver looks at the content, often from a gateway, so that no code is asked for."""


def by_table(response: Response, table: Table) -> Seen:
    """What a failure proves. Whatever no table documents is UNKNOWN."""
    seen = ANYWHERE.get(response.status)
    if seen is not None:
        return seen
    return table.get((response.status, problem_code(response) or ""), Seen.UNKNOWN)


def echoes(record: Record | None, request_body: Mapping[str, Json], names: Sequence[str]) -> bool:
    """Whether an acceptance speaks of the very thing that was asked for."""
    return record is not None and all(getattr(record, name) == request_body[name] for name in names)


async def sight_each(
    sought: Sequence[Sought],
    source: str,
    look: Callable[[list[str]], Awaitable[Found[R]]],
    judge: Callable[[Sought, list[R]], Sight],
    reference_of: Callable[[R], str | None],
) -> list[Sighting]:
    """One sighting per operation. A batch whose search failed is UNREADABLE as a whole; `source` says why."""
    sightings: list[Sighting] = []
    for batch in batches(sought):
        try:
            found = await look(distinct([one.reference for one in batch]))
        except (NotSent, OutcomeUnknown, Refused) as error:
            where, asked = f"{source} ({error.code})", error.code != CLOSED
            sightings += [
                Sighting(one.reference, Sight.UNREADABLE, where, "", complete=False, asked=asked)
                for one in batch
            ]
            continue
        for one in batch:
            records = [record for record in found.records if reference_of(record) == one.reference]
            evidence = [record.model_dump(mode="json") for record in records]
            sightings.append(
                Sighting(one.reference, judge(one, records), source, found.as_of, True, evidence)
            )
    return sightings


async def withdraw_each(
    transport: Transport,
    receiver: str,
    paths: Mapping[str, str],
    judge: Callable[[str, Response], Seen],
    *,
    seconds: float,
) -> Seen:
    """One POST for each record, `paths` being by its id. Raises what the transport raises."""
    seen: list[Seen] = []
    for name, path in paths.items():
        response = await transport.call(receiver, "POST", path, credential=receiver, seconds=seconds)
        seen.append(judge(name, response))
    return together(seen)


def together(seen: Sequence[Seen]) -> Seen:
    """What several withdrawals prove as one: ACCEPTED only when each was, else the least certain of them."""
    for worst in (Seen.UNKNOWN, Seen.CREDENTIAL, Seen.RATE_LIMITED, Seen.REFUSED):
        if worst in seen:
            return worst
    return Seen.ACCEPTED if seen else Seen.UNKNOWN
