"""`remit catalogue --probe`: whether receivers really enforce their keys, on test subjects that a person names.

Keeps the promise of `receiver_enforces_key`: shown where it was seen, and said plainly where a receiver lied.
"""

from dataclasses import replace

from remit.checkpoints.database import Row
from remit.console import identity
from remit.console.exits import Exit
from remit.console.prompts import confirm
from remit.console.render import many, moment, money
from remit.console.screen import complain, print_json, say
from remit.console.services import opened
from remit.console.startup import checked
from remit.tools.errors import Refused

_KEEPERS = ("administrator", "finance_lead")

_MOST = 10
"""Subjects of one command: each probe gives something, and takes seconds."""


async def probe(subjects: list[str], token: str | None, *, yes: bool, as_json: bool) -> int:
    """Probes each tool of agents that says so, for each subject. Exit 1 where one does not enforce its keys."""
    from remit.console.cohorts import check_role
    from remit.graph.probing import probe_mandate, probe_tool

    _, policy = checked()
    async with opened() as services:
        wanted = subjects or services.settings.probed
        if not 1 <= len(wanted) <= _MOST:
            raise Refused(
                f"A probe needs 1 to {_MOST} test subjects. Name them, `remit catalogue --probe customer:c-104`, or "
                "set REMIT_PROBE_SUBJECTS.",
                code="no_subject",
            )
        secret = identity.secret(services.settings, token)
        people, deps = await services.people(), await services.looking()
        actor = await people.whoami(secret)
        if actor["role"] not in _KEEPERS:
            raise Refused(
                f"{actor['person']} is {actor['role']}, and a probe is kept on the word of an administrator or a "
                "finance_lead. Ask one.",
                code="authority",
            )
        tools = [tool for tool in services.catalogue().for_agents() if tool.contract.receiver_enforces_key]
        now = int((await deps.ledger.company_now()).timestamp())
        pairs = [(tool, probe_mandate(tool, subject, now)) for tool in tools for subject in wanted]
        for _, mandate in pairs:
            check_role(mandate, actor["role"], policy)
        names = ", ".join(tool.contract.name for tool in tools)
        confirm(f"Send {names} for {', '.join(wanted)}, and each key twice more on purpose?", yes=yes)
        deps = replace(deps, policy=await services.policy())
        worker = await services.worker()
        rows = [await probe_tool(deps, worker, secret, tool, mandate) for tool, mandate in pairs]
    if as_json:
        print_json({"probes": rows})
    else:
        for row in rows:
            _tell(row)
    return Exit.DONE if all(row["shown"] for row in rows) else Exit.FAULT


def _tell(row: Row) -> None:
    seen = row["evidence"]
    given = many(seen["effects"], "effect")
    said = (
        f"{row['tool']} version {row['tool_version']} at {row['receiver']}, {moment(row['at'])}: {given} for one key "
        f"sent three times; repeated: {seen['again']}; with other content: {seen['otherwise']}."
    )
    stays = (
        f"What the probe gave {seen['subject']}, at first {money(seen['amount_minor'], seen['currency'])}, stays under "
        f"the reference {seen['reference']}."
    )
    if row["shown"]:
        say(f"{said} The receiver enforces its keys.", stays)
    else:
        complain(
            f"{said} That does not show that the receiver enforces its keys. {stays} Set receiver_enforces_key of "
            f"{row['tool']} to False, or have the receiver put right and probe again."
        )
