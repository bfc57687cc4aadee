"""Every field of every action of an approval, without loss, and what differs from what was asked before.

Keeps I3 on the screen: what is decided about is what would be sent, byte for byte, and no sign in it can hide.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from remit.checkpoints.database import Database, Row
from remit.console.render import exact, many, quoted
from remit.console.screen import heading, say
from remit.tools.actions import Json, canonical

_COMPARED = ("tool", "tool_version", "mandate_hash", "intent", "request", "relied_on")
"""What an action's hash is made of."""


async def actions(database: Database, id_: str) -> list[dict[str, Any]]:
    """Every action of an approval, the unusual ones first: exactly what would be sent, and what was relied on."""
    rows = await database.rows("approval_items", approval=id_)
    before = {row["operation_id"]: row for row in await database.rows("asked_before", approval=id_)}
    alike = Counter(_kind(row) for row in rows)
    rows.sort(key=lambda row: (alike[_kind(row)], row["step"], row["subject"]))
    return [_action(row, before.get(row["operation_id"])) for row in rows]


def _kind(row: Row) -> bytes:
    """The same for actions that differ in nothing but whom they are for."""
    said = {name: value for name, value in row["intent"].items() if name != "subject"}
    return canonical([row["step"], row["tool"], said, row["relied_on"]])


def _action(row: Row, before: Row | None) -> dict[str, Any]:
    return {
        "operation": row["operation_id"],
        "key": row["key"],
        "revision": row["revision"],
        "version": row["version"],
        "step": row["step"],
        "subject": row["subject"],
        "effect": row["effect"],
        "tool": row["tool"],
        "tool_version": row["tool_version"],
        "mandate": row["mandate_hash"],
        "intent": row["intent"],
        "request": row["request"],
        "relied_on": row["relied_on"],
        "action_hash": row["action_hash"],
        "state": row["state"],
        "closed": row["closed"],
        "decision": row["decision"],
        "edited_by": row["edited_by"],
        "asked_again": _why_again(row, before),
        "changes": [] if before is None else differences(before, row),
    }


def _why_again(row: Row, before: Row | None) -> str | None:
    if row["void_before"] is not None:
        return f"an earlier grant is void: {row['void_before']}"
    if before is None:
        return None
    return f"revision {before['revision']} was asked about before and is closed ({before['closed']})"


def differences(old: Row, new: Row) -> list[dict[str, Json]]:
    """Each part of what is hashed that is not as it was: {field, old, new}, None for what is missing on one side."""
    parts = {name: (dict(_flat(old[name], name)), dict(_flat(new[name], name))) for name in _COMPARED}
    return [
        {"field": field, "old": was.get(field), "new": now.get(field)}
        for was, now in parts.values()
        for field in sorted({*was, *now})
        if was.get(field) != now.get(field) or (field in was) != (field in now)
    ]


def _flat(value: Json, path: str) -> Iterator[tuple[str, Json]]:
    if isinstance(value, dict) and value:
        for name, item in value.items():
            yield from _flat(item, f"{path}.{name}")
    else:
        yield path, value


def changed(found: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """What differs from what was asked before, alike changes together: {field, old, new, count, first}."""
    alike: dict[bytes, dict[str, Any]] = {}
    for one in found:
        for change in one["changes"]:
            kept = alike.setdefault(canonical(change), {**change, "count": 0, "first": one["subject"]})
            kept["count"] += 1
    return sorted(alike.values(), key=lambda change: (change["count"], change["field"]))


def asked_again(found: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Why actions are asked about once more: {why, count}."""
    alike = Counter(one["asked_again"] for one in found if one["asked_again"] is not None)
    return [{"why": why, "count": count} for why, count in sorted(alike.items())]


def show_changed(approval: dict[str, Any]) -> None:
    """What is asked again, why, and what is not as it was, as lines of the summary."""
    for again in approval["asked_again"]:
        say(f"  asked again, {many(again['count'], 'action')}: {quoted(again['why'])}")
    for change in approval["changes"]:
        whom = f"{many(change['count'], 'action')}, {change['first']}{' ...' if change['count'] > 1 else ''}"
        say(f"    {change['field']}: {exact(change['old'])} -> {exact(change['new'])} ({whom})")


def show(found: Sequence[dict[str, Any]]) -> None:
    """Every action in full, one line for each field."""
    for one in found:
        request = one["request"]
        heading(
            f"operation {one['operation']}, {one['subject']}: {one['decision'] or one['closed'] or one['state']}"
        )
        say(f"  key {one['key']}, revision {one['revision']}, step {one['step']}, effect {one['effect']}")
        say(f"  tool {one['tool']}, version {one['tool_version']}; mandate {one['mandate']}")
        if one["edited_by"] is not None:
            say(f"  edited by {one['edited_by']}")
        say(f"  would be sent: {request['method']} {request['path']} {exact(request['body'])}")
        say(f"  means: {exact(one['intent'])}", f"  relied on: {exact(one['relied_on'])}")
        for change in one["changes"]:
            say(f"  changed: {change['field']}: {exact(change['old'])} -> {exact(change['new'])}")
        say(f"  {one['action_hash']}")
