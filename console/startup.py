"""The look at tools, policy data and probes before a command may act.

Keeps F12 from the console's side: `run`, `resume`, `work`, `serve` and `mandate grant` begin nothing while a gate is
misconfigured. A stop, a status and whatever only looks never come here, since they must work at such a time too.
"""

from typing import TYPE_CHECKING

from pydantic import ValidationError

from remit.policies.fit import check_fit
from remit.policies.revision import load_policy
from remit.tools import catalogue as tools
from remit.tools.errors import Misconfigured

if TYPE_CHECKING:
    from remit.checkpoints.database import Database
    from remit.policies.data import Settings
    from remit.tools.catalogue import Catalogue

PROBE_DAYS = 90
"""How long a probe shows that a receiver enforces its keys: a quarter, within which receivers are changed and people
still remember the probe."""


def checked() -> "tuple[Catalogue, Settings]":
    """The tools and the policy data, which fit together. Raises Misconfigured with what to correct."""
    try:
        found = tools.credit_catalogue()
    except ValidationError as error:
        places = "; ".join(
            f"{'.'.join(map(str, one['loc'])) or 'whole'}: {one['msg']}" for one in error.errors()[:5]
        )
        raise Misconfigured(
            f"A {error.title.lower()} of the catalogue does not load: {places}. Complete it.", code="contract"
        ) from error
    settings = load_policy().settings
    check_fit(found, settings)
    return found, settings


async def require_proved(database: "Database", catalogue: "Catalogue") -> None:
    """Raises Misconfigured (key_unproved) where a tool of agents rests on keys that no fresh probe showed.

    A probe of another version of the contract is none. For production; elsewhere the contract's own
    `key_probe` will do.
    """
    rows = await database.rows("probes", days=PROBE_DAYS)
    proved = {(row["tool"], row["tool_version"]) for row in rows if row["shown"] and row["fresh"]}
    for tool in catalogue.for_agents():
        contract = tool.contract
        if contract.receiver_enforces_key and (contract.name, contract.version) not in proved:
            raise Misconfigured(
                f"{contract.name} version {contract.version} rests on keys that {contract.receiver} enforces, and no "
                f"probe of the last {PROBE_DAYS} days showed it. Run `remit catalogue --probe SUBJECT` with the token "
                "of a finance lead.",
                code="key_unproved",
            )
