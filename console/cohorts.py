"""For whom a mandate would be, and whether a role may delegate it: looked at before anything is granted."""

from typing import TYPE_CHECKING

from remit.checkpoints.database import Row
from remit.console.render import amounts
from remit.console.services import Services
from remit.tools.errors import Refused
from remit.tools.mandates import Mandate

if TYPE_CHECKING:
    from remit.policies.data import Settings as PolicySettings


def check_role(mandate: Mandate, role: str, settings: "PolicySettings") -> None:
    """Says early what policy would answer to each action. Raises Refused: nobody delegates more than the role holds."""
    from remit.policies import beyond_ceiling

    beyond = beyond_ceiling(mandate, role, settings)
    if beyond:
        raise Refused(
            f"{' '.join(amounts(line) for line in beyond)} Lower it, or grant it with the --token of somebody whose "
            "role may.",
            code="role",
        )


async def cohort(services: Services, mandate: Mandate) -> list[str]:
    """The subjects as the accounts system lists them now. Refused when there are none, or more than delegated."""
    who = mandate.who
    if who.affected_by is None:
        return sorted(who.subjects)
    from remit.tools.accounts import IncidentArguments

    tool = services.catalogue().read("list_affected_accounts")
    rows = await tool.read(await services.transport(), IncidentArguments(incident=who.affected_by))
    subjects = sorted(str(row["subject"]) for row in rows)
    if len(subjects) > who.at_most:
        raise Refused(
            f"{who.affected_by} affects {len(subjects)} customers, and the mandate is for at most {who.at_most}. "
            "Raise at_most, or name the subjects.",
            code="too_many_subjects",
        )
    if not subjects:
        raise Refused(
            f"{who.affected_by} affects nobody, so there is nothing to grant. Correct the incident.",
            code="nobody",
        )
    return subjects


def overlap_line(row: Row) -> str:
    """One other live mandate for the same effect and people, as a sentence."""
    return (
        f"Another live mandate, {row['purpose']} ({row['hash'][:15]}), may also do {row['effect']} to "
        f"{row['subjects']} of these subjects."
    )
