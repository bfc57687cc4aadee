"""Signatures of posts, in the form of the Standard Webhooks convention: what comes in is checked, what goes out signed.

One function for each, so that no second idea of what is signed can arise.
"""

import base64
import binascii
import hashlib
import hmac
from collections.abc import Mapping

from remit.tools.errors import NotSent

_MOST_SIGNATURES = 10
"""In one header: a sender that changes its secret signs with both for a while, and nobody needs more."""


def key_of(secret: str) -> bytes:
    """The bytes behind a secret: base64, with or without its prefix. Raises NotSent for one that is none."""
    try:
        key = base64.b64decode(secret.removeprefix("whsec_"), validate=True)
    except (binascii.Error, ValueError):
        key = b""
    if len(key) < 16:
        # An empty key would let everybody sign.
        raise NotSent(
            "The secret of signed posts is not at least 16 bytes in base64. Put the right one there.",
            code="credential",
        )
    return key


def signed(key: bytes, id_: str, at: int, body: bytes) -> dict[str, str]:
    """The headers of one post; `at` is the time of signing in seconds since 1970."""
    signature = _made(key, f"{id_}.{at}.".encode() + body)
    return {"webhook-id": id_, "webhook-timestamp": str(at), "webhook-signature": f"v1,{signature}"}


def is_signed(key: bytes, headers: Mapping[str, str], body: bytes) -> bool:
    """Whether one of the signatures is `v1,` and the HMAC of id, time and body. Compared in constant time."""
    start = f"{headers.get('webhook-id', '')}.{headers.get('webhook-timestamp', '')}."
    made = _made(key, start.encode("utf-8", "surrogateescape") + body).encode()
    given = [one for one in headers.get("webhook-signature", "").split(" ") if one.startswith("v1,")]
    return any(
        hmac.compare_digest(one[3:].encode("utf-8", "surrogateescape"), made)
        for one in given[:_MOST_SIGNATURES]
    )


def _made(key: bytes, content: bytes) -> str:
    return base64.b64encode(hmac.new(key, content, hashlib.sha256).digest()).decode()
