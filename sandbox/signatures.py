"""How events are signed: the form of the Standard Webhooks convention, one secret per service."""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets

PREFIX = "whsec_"


def new_secret() -> str:
    """A secret in the convention's form: a prefix, and 32 random bytes in base64."""
    return PREFIX + base64.b64encode(secrets.token_bytes(32)).decode()


def holder(service: str) -> str:
    """Under which name the secret of a service's events stands in ``credentials.json``."""
    return f"events-{service}"


def signed(secret: str, event: str, at: int, body: bytes) -> dict[str, str]:
    """The three headers of one post; ``at`` is the time of signing in seconds since 1970."""
    key = base64.b64decode(secret.removeprefix(PREFIX))
    content = f"{event}.{at}.".encode() + body
    signature = base64.b64encode(hmac.new(key, content, hashlib.sha256).digest()).decode()
    return {"webhook-id": event, "webhook-timestamp": str(at), "webhook-signature": f"v1,{signature}"}
