"""Every way of getting no answer, as a stable code with what it means and what a person does about it.

Keeps I10: one constructor for all of them, so none can be mistaken for a verdict, and a code that is not listed here
cannot be raised.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from remit.tools.errors import NoAnswer


@dataclass(frozen=True, slots=True)
class Silence:
    """What one code means, and the next step: the last sentence of its message."""

    means: str
    remedy: str


_CHECK = "Run `remit policy check`."
_SERVER = "Look at the policy server, then run `remit policy check`."
_BUNDLE = "Give the server the bundle of this installation (policies/bundle/plain.tar.gz) and no other."

SILENCES: Mapping[str, Silence] = {
    "policy_question": Silence(
        "the question is not valid by its own schema", f"{_CHECK} If it passes, report this."
    ),
    "policy_undefined": Silence("the policy has no rule of the name that is asked for", _BUNDLE),
    "policy_shape": Silence("the answer has another shape or type", _SERVER),
    "policy_extra_field": Silence("the answer holds a field that nobody knows", _SERVER),
    "policy_ids": Silence("the decisions are not one per action, in the order of the question", _SERVER),
    "policy_refused": Silence(
        "the server refused the question (4xx)",
        "Look at REMIT_OPA_TOKEN_FILE and at the server's authorization.",
    ),
    "policy_failed": Silence("the server failed (5xx)", _SERVER),
    "policy_redirect": Silence("the server sent the question elsewhere (3xx)", "Correct REMIT_OPA_URL."),
    "policy_status": Silence("the server answered with another status than 200", "Correct REMIT_OPA_URL."),
    "policy_unreachable": Silence(
        "nobody could be asked", "Start the policy server, or correct REMIT_OPA_URL."
    ),
    "policy_tls": Silence(
        "the server could not prove who it is", "Look at its certificate and at REMIT_OPA_CA_FILE."
    ),
    "policy_not_http": Silence("whoever answered does not speak HTTP", "Correct REMIT_OPA_URL."),
    "policy_cut_off": Silence("the connection ended before the answer did", _SERVER),
    "policy_timeout": Silence("the answer was not there at its deadline", _SERVER),
    "policy_not_json": Silence("the answer is no JSON (a page, perhaps)", "Correct REMIT_OPA_URL."),
    "policy_too_large": Silence("the policy or its answer grew beyond its cap", _SERVER),
    "policy_bundle": Silence("the server holds no bundle, half of one, or a second one", _BUNDLE),
    "policy_revision": Silence("the server holds another revision of the policy", _BUNDLE),
    "policy_too_old": Silence(
        "the answer was stored by somebody, or the server is older than the policy's language",
        "Let nothing stand between Remit and a policy server of version 1.22 or later.",
    ),
    "policy_error": Silence("the policy could not be evaluated", _CHECK),
    "policy_canary": Silence(
        "a known action was not answered as it is known to be", "Build the policy anew (`make policies`)."
    ),
}
"""Stable: stored with what waited for policy, counted apart from denials, and shown."""


def no_answer(code: str, what: str) -> NoAnswer:
    """A NoAnswer whose last sentence says what to do. KeyError for a code that is not listed."""
    return NoAnswer(f"Policy gave no answer: {what}. Nothing was sent. {SILENCES[code].remedy}", code=code)
