"""`remit inbox`: what waits for a person, as one exact set of actions. What is shown here is what is decided.

Keeps I3 on the screen: the set's hash stands beside its actions, and a decision names both.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, Any

import typer

from remit.checkpoints.database import Database, Row
from remit.console import exact, viewing
from remit.console.edge import go
from remit.console.options import AsJson, Token
from remit.console.render import amounts, many, moment, money, quoted, span
from remit.console.screen import heading, listing, say
from remit.console.services import opened
from remit.tools.actions import Json
from remit.tools.errors import Refused


def inbox(
    id_: Annotated[
        str | None, typer.Argument(metavar="[ID]", help="One approval, with every action in full.")
    ] = None,
    token: Token = None,
    as_json: AsJson = False,
) -> None:
    """What waits for a person: what, how many, how much, who asks, who decides, until when, and why."""
    go(_inbox(id_, token, as_json))


async def _inbox(id_: str | None, token: str | None, as_json: bool) -> None:
    async with opened() as services:
        database = await services.database()
        rows = await approvals(await viewing.viewer(services, token), id_)
        found = [await described(database, row) for row in rows]
        now: datetime = await database.value("company_now")
        if id_ is not None:
            for approval in found:
                approval["actions_in_full"] = await exact.actions(database, approval["id"])
        if not await listing(database, "approvals", found, as_json=as_json, needs_worker=True):
            return
        for approval in found:
            show(approval, now)
            if id_ is not None:
                exact.show(approval["actions_in_full"])
        if not found:
            say("Nothing waits for a person.")


async def approvals(viewer: viewing.Viewer, id_: str | None) -> list[Row]:
    """The open approvals that the viewer may see, or the one of this id whatever its status.

    Raises Refused when there is none of it for this viewer.
    """
    found = await viewer.database.rows("approvals", which=id_)
    choose = viewer.listed if id_ is None else viewer.named
    rows = await choose("run", found, "run_id")
    if id_ is not None and not rows:
        raise Refused(f"There is no approval {quoted(id_)}. See `remit inbox`.", code="no_such_approval")
    return rows


async def described(database: Database, row: Row) -> dict[str, Any]:
    """One approval as listings and decisions show it. The keys are stable."""
    groups = await database.rows("approval_groups", approval=row["id"])
    left_out = await database.rows("left_out", approval=row["id"])
    again = await exact.actions(database, row["id"])
    return {
        "id": row["id"],
        "status": row["status"],
        "late": row["late"],
        "run": row["run_id"],
        "purpose": row["purpose"],
        "mandate": row["mandate_hash"],
        "agent": row["agent"],
        "owner": row["owner"],
        "grantor": row["grantor"],
        "roles": row["roles"],
        "quorum": row["quorum"],
        "quorum_of": row["quorum_of"],
        "escalated_from": row["escalated_from"],
        "on_expiry": row["on_expiry"],
        "asked_at": row["asked_at"],
        "decide_by": row["decide_by"],
        "actions": row["actions"],
        "undecided": row["undecided"],
        "set_hash": row["set_hash"],
        "groups": [_group(group) for group in groups],
        "not_included": [_left_out(group) for group in left_out],
        "asked_again": exact.asked_again(again),
        "changes": exact.changed(again),
    }


def _group(row: Row) -> dict[str, Any]:
    return {
        "step": row["step"],
        "effect": row["effect"],
        "tool": row["tool"],
        "count": row["count"],
        "each_minor": row["amount_minor"],
        "total_minor": row["total"] if row["amount_minor"] is not None else None,
        "currency": row["currency"],
        "reversibility": row["reversibility"],
        "consequence": row["consequence"],
        "first": row["first"],
        "last": row["last"],
        "reasons": row["reasons"],
    }


_WAITING = {
    "ready": "need no person",
    "requirement": "wait for another step",
    "hold": "need no person, and are held back for a while",
    "policy": "have no answer of policy yet",
    "case": "wait for a case",
    "limit": "found a limit used up",
}


def _left_out(row: Row) -> dict[str, Any]:
    """Actions of the same run that this request is not about, and why not."""
    if row["obstacle"] == "approval":
        why = "are asked about in another request" if row["asked"] else "are asked when others are decided"
    elif row["obstacle"] is not None:
        why = _WAITING.get(row["obstacle"], f"wait for: {row['obstacle']}")
    else:
        why = f"are closed: {row['closed']}" if row["closed"] else "are completed"
    named = f" ({row['detail']})" if row["detail"] else ""
    return {"step": row["step"], "count": row["count"], "first": row["first"], "why": why + named}


def show(approval: dict[str, Any], now: datetime) -> None:
    """One approval as a person decides it: what, how much, who asks, who decides until when, and what it leaves out."""
    open_ = f"{many(approval['undecided'], 'action')} undecided of {approval['actions']}"
    heading(f"{approval['id']}: {approval['status']}, {open_}")
    for group in approval["groups"]:
        say(f"  {_what(group)}")
        say(f"    why it needs a person: {reasons(group['reasons'])}")
    say(
        f"  asked by {approval['agent']} for {approval['owner']}, under the mandate of {approval['grantor']} for "
        f"{approval['purpose']} ({approval['run']})"
    )
    say(f"  decided by: {_deciders(approval)}, {_until(approval, now)}")
    if approval["escalated_from"] is not None:
        say(f"  nobody decided {approval['escalated_from']} in time, so these are asked instead")
    for group in approval["not_included"]:
        say(f"  not included: {group['count']} of step {group['step']} {group['why']}")
    exact.show_changed(approval)
    say(f"  set: {approval['set_hash']}")
    if approval["status"] == "OPEN" and not approval["late"]:
        say(f"  Next: `remit approve {approval['id']} --token FILE`, or `remit reject`.")
        say(f"  Every action in full: `remit inbox {approval['id']}`.")


def _deciders(approval: dict[str, Any]) -> str:
    roles = " or ".join(approval["roles"])
    if approval["quorum"] == 1:
        return roles
    each = " and ".join(f"{count} {role}" for role, count in sorted(approval["quorum_of"].items()))
    return f"{roles}, {approval['quorum']} different people" + (f", {each} of them" if each else "")


def _until(approval: dict[str, Any], now: datetime) -> str:
    left = approval["decide_by"] - now
    if approval["status"] != "OPEN":
        return f"until {moment(approval['decide_by'])}"
    rest = f"{span(left)} left" if left.total_seconds() > 0 else "the time is over"
    return f"until {moment(approval['decide_by'])} ({rest})"


def _what(group: dict[str, Any]) -> str:
    kind = f"{group['reversibility']}, {group['consequence']} consequence"
    how = f"{group['effect']} by {group['tool']} (step {group['step']}, {kind})"
    whom = group["first"] if group["count"] == 1 else f"{group['first']} to {group['last']}"
    if group["each_minor"] is None:
        return f"{group['count']} x {how}: {whom}"
    each, total = (money(group[name], group["currency"]) for name in ("each_minor", "total_minor"))
    return f"{group['count']} x {each} = {total}: {how}: {whom}"


def reasons(found: Sequence[Json]) -> str:
    """Policy's reasons: each code, with its detail."""
    parts = [
        one["code"] + (f" ({amounts(one['detail'])})" if one.get("detail") else "") for one in found or []
    ]
    return "; ".join(parts) or "no reason was given"
