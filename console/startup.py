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
    from remit.policies.data import Settings
    from remit.tools.catalogue import Catalogue


def checked() -> "tuple[Catalogue, Settings]":
    """The tools and the policy data, which fit together. Raises Misconfigured with what to correct."""
    try:
        found = tools.credit_catalogue()
    except ValidationError as error:
        places = "; ".join(f"{'.'.join(map(str, one['loc'])) or 'whole'}: {one['msg']}" for one in error.errors()[:5])
        raise Misconfigured(
            f"A {error.title.lower()} of the catalogue does not load: {places}. Complete it.", code="contract"
        ) from error
    settings = load_policy().settings
    check_fit(found, settings)
    return found, settings
