"""`remit sandbox dump` and `check`: the pretended company's own records, and what they breach.

Neither reads Remit's ledger, so that they can contradict it.
"""

from typing import Annotated, Any

import typer

from remit.console import pretended
from remit.console.edge import go
from remit.console.exits import Exit
from remit.console.options import AsJson
from remit.console.render import many, subject_of
from remit.console.screen import print_json, say
from remit.console.settings import load
from remit.tools.actions import subject_id
from remit.tools.errors import Refused

_OF_CUSTOMER = {"accounts": "id", "credits": "customer", "messages": "customer", "changes": "account"}
"""Which records are somebody's, and by which field."""


def dump(
    part: Annotated[
        str | None, typer.Argument(help="accounts, credits, messages, changes ...; all by default.")
    ] = None,
    customer: Annotated[
        str | None, typer.Option("--customer", metavar="C", help="Only this customer's, as 104.")
    ] = None,
) -> None:
    """Print the company's own records as JSON, straight from its database."""
    go(_dump(part, customer))


async def _dump(part: str | None, customer: str | None) -> None:
    from remit.sandbox import dump as read

    with pretended.asking(load()) as home:
        found = read(home)
    if customer is not None:
        found = _of(found, subject_id(subject_of(customer)))
    if part is not None:
        if part not in found:
            raise Refused(
                f"There are no records called {part}. Use one of: {', '.join(found)}.", code="usage"
            )
        found = {"as_of": found["as_of"], part: found[part]}
    print_json(found)


def _of(found: dict[str, Any], customer: str) -> dict[str, Any]:
    parts = {
        name: [record for record in found[name] if record[field] == customer]
        for name, field in _OF_CUSTOMER.items()
    }
    if not parts["accounts"]:
        raise Refused(
            f"The company has no customer {customer}. See `remit sandbox dump accounts`.", code="not_found"
        )
    theirs = {credit["id"] for credit in parts["credits"]}
    reversals = [record for record in found["reversals"] if record["credit"] in theirs]
    return {"as_of": found["as_of"], **parts, "reversals": reversals}


def check(
    incident: Annotated[str | None, typer.Argument(help="One incident; all by default.")] = None,
    final: Annotated[
        bool, typer.Option("--final", help="Also that every affected customer has everything once.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Judge the company's own records by the invariants. Exit 1 with findings."""
    go(_check(incident, final, as_json))


async def _check(incident: str | None, final: bool, as_json: bool) -> int:
    from remit.sandbox import check as judge

    with pretended.asking(load()) as home:
        findings = judge(home, incident, final)
    if as_json:
        print_json({"findings": [vars(finding) for finding in findings]})
    else:
        for finding in findings:
            say(f"{finding.invariant}: {finding.subject} {finding.detail}.")
        about = "" if incident is None else f" about {incident}"
        what = "every affected customer has everything exactly once" if final else "no invariant is breached"
        say(
            f"{many(len(findings), 'finding')}{about}."
            if findings
            else f"The company's own records{about}: {what}."
        )
    return Exit.FAULT if findings else Exit.DONE
