"""The only clients that ask for a verdict: the compiled policy in this process, or an OPA server.

Keeps I3 and I10: both engines pass the same checks before and after, and neither can fail open.
"""

import asyncio
import json
import re
import time
import uuid
from ipaddress import ip_address
from pathlib import Path
from typing import Protocol, Self
from urllib.parse import urlsplit

import aiohttp
from opapywasm import (
    UNDEFINED,
    OpaMemoryError,
    OpaPoolTimeoutError,
    OpaWasmError,
    OpaWasmPolicy,
    PolicyConfig,
)

from remit.policies.answers import checked_question, read_answer
from remit.policies.canary import check_canary
from remit.policies.opa_client import PolicyClient
from remit.policies.revision import ENTRYPOINT, HERE, Policy, load_policy
from remit.policies.silence import no_answer
from remit.tools.actions import Json
from remit.tools.errors import Misconfigured
from remit.tools.questions import Answer, Question

DEADLINE_SECONDS = 2.0
"""For one question of at most 100 actions: several times what a busy server takes (see benchmarks), short beside a
worker's lease."""

_MEMORY_PAGES = 512
"""32 MiB a compiled instance; a question of 100 actions needs two of them."""

OLDEST_OPA = (1, 22)
"""The version whose decisions were compared with the compiled module's; older ones read the language otherwise."""

_OPA_VERSION = re.compile(r"(\d{1,4})\.(\d{1,4})\.")

_INSTANCES = 2
"""As many as there are batches in flight; see `ask_all`."""


class PolicyEngine(Protocol):
    """Whoever answers questions. Both engines give the same decisions for the same question and revision."""

    @property
    def revision(self) -> str: ...

    async def ask(self, question: Question) -> Answer:
        """One decision per action, in order. Raises NoAnswer for anything else."""
        ...

    async def check(self) -> None:
        """Ask one known allow and one known deny. Raises NoAnswer unless both come."""
        ...


class EmbeddedEngine:
    """The compiled policy, in a thread of this process, with a deadline and a memory cap.

    Raises Misconfigured when the module does not belong to the Rego beside it or cannot be loaded.
    """

    def __init__(self, folder: Path = HERE, *, deadline_seconds: float = DEADLINE_SECONDS) -> None:
        policy = load_policy(folder)
        self.revision = policy.revision
        self._deadline_seconds = deadline_seconds
        self._policy = _compiled(policy, deadline_seconds)

    async def ask(self, question: Question) -> Answer:
        text = checked_question(question)
        result = await asyncio.to_thread(self._evaluate, text)
        identity = uuid.uuid4().hex
        return read_answer(question, result, engine="embedded", revision=self.revision, decision_id=identity)

    async def check(self) -> None:
        await check_canary(self.ask)

    def close(self) -> None:
        """Let the compiled instances go. Afterwards there is no answer any more."""
        self._policy.close()

    def _evaluate(self, text: str) -> Json:
        begun = time.monotonic()
        try:
            result = self._policy.evaluate(text)
        except OpaPoolTimeoutError as error:
            raise no_answer("policy_timeout", "no compiled instance became free in time") from error
        except OpaWasmError as error:
            late = time.monotonic() - begun >= self._deadline_seconds
            raise no_answer("policy_timeout" if late else _failure(error), str(error)) from error
        if result is UNDEFINED:
            raise no_answer("policy_undefined", "the entrypoint has no value")
        return result


class ServerEngine:
    """An OPA server that holds the plain bundle of the expected revision. Use as an async context manager.

    `url` is `https://HOST[:PORT]`; plain http only to this machine, since answers decide what is sent.
    `token` is sent as a bearer token; `trusted` is a PEM file of the only authorities to believe, or None for the
    system's. Raises Misconfigured for any other address, and for a file that holds no certificate.
    """

    def __init__(
        self,
        url: str,
        *,
        revision: str,
        deadline_seconds: float = DEADLINE_SECONDS,
        token: str | None = None,
        trusted: Path | None = None,
    ) -> None:
        host, port, tls = _address(url)
        self.revision = revision
        self._deadline_seconds = deadline_seconds
        try:
            self._client = PolicyClient(
                host=host, port=port, ssl=tls, token=token, timeout=deadline_seconds, trusted=trusted
            )
        except OSError as error:
            raise Misconfigured(
                f"{trusted} holds no certificates that can be read. Correct REMIT_OPA_CA_FILE.",
                code="policy_ca",
            ) from error

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections."""
        await self._client.close_connection()

    async def ask(self, question: Question) -> Answer:
        text = checked_question(question)
        document = await self._fetch(text)
        return self._answer(question, document)

    async def check(self) -> None:
        await check_canary(self.ask)

    async def _fetch(self, text: str) -> Json:
        try:
            async with asyncio.timeout(self._deadline_seconds):
                return await self._client.decisions(json.loads(text))
        except TimeoutError as error:
            what = f"the server took longer than {self._deadline_seconds} seconds"
            raise no_answer("policy_timeout", what) from error
        except (aiohttp.ClientError, OSError) as error:
            raise no_answer(
                _broken(error), f"the server cannot be reached ({type(error).__name__})"
            ) from error

    def _answer(self, question: Question, document: Json) -> Answer:
        if not isinstance(document, dict) or not set(document) <= {"result", "provenance", "decision_id"}:
            raise no_answer("policy_shape", "the server's answer is not a result with its provenance")
        if "result" not in document and "provenance" not in document:
            raise no_answer("policy_undefined", "the server knows no rule remit.boundary.decisions")
        _right_policy(document.get("provenance"), self.revision)
        if "result" not in document:
            raise no_answer("policy_undefined", "the server knows no rule remit.boundary.decisions")
        identity = document.get("decision_id")
        return read_answer(
            question,
            document["result"],
            engine="server",
            revision=self.revision,
            decision_id=identity if isinstance(identity, str) else uuid.uuid4().hex,
        )


def _compiled(policy: Policy, deadline_seconds: float) -> OpaWasmPolicy:
    config = PolicyConfig(
        pool_size=_INSTANCES,
        default_entrypoint=ENTRYPOINT,
        borrow_timeout_seconds=deadline_seconds,
        eval_timeout_seconds=deadline_seconds,
        max_memory_pages=_MEMORY_PAGES,
    )
    try:
        compiled = OpaWasmPolicy.from_wasm_bytes(policy.module, config)
        compiled.set_data(policy.data)
    except OpaWasmError as error:
        raise Misconfigured(
            f"The compiled policy does not load: {error}. Run make policies.", code="policy_bundle"
        ) from error
    return compiled


def _failure(error: OpaWasmError) -> str:
    """The code for an evaluation that ended in an error; the module says itself when it gets no more memory."""
    full = isinstance(error, OpaMemoryError) or "opa_malloc" in str(error)
    return "policy_too_large" if full else "policy_error"


def _right_policy(provenance: Json, expected: str) -> None:
    """Exactly one bundle, of the expected revision: a second one could change what ours decides. Raises NoAnswer."""
    bundles = provenance.get("bundles") if isinstance(provenance, dict) else None
    if not isinstance(bundles, dict) or len(bundles) != 1:
        raise no_answer(
            "policy_bundle", f"the server holds {len(bundles or ())} bundles, and must hold ours alone"
        )
    (bundle,) = bundles.values()
    found = bundle.get("revision") if isinstance(bundle, dict) else None
    if found != expected:
        raise no_answer("policy_revision", f"the server holds {str(found)[:80]}, expected is {expected}")
    version = _OPA_VERSION.match(str(provenance.get("version")))
    if version is None or (int(version[1]), int(version[2])) < OLDEST_OPA:
        raise no_answer("policy_too_old", f"the server is OPA {str(provenance.get('version'))[:40]}")


def _broken(error: Exception) -> str:
    """The code for a connection that brought no answer."""
    match error:
        case aiohttp.ClientConnectorCertificateError() | aiohttp.ClientConnectorSSLError():
            return "policy_tls"
        case aiohttp.ClientConnectorError():
            return "policy_unreachable"
        case aiohttp.ClientResponseError():
            return "policy_not_http"
        case _:
            return "policy_cut_off"


def _address(url: str) -> tuple[str, int, bool]:
    parts = urlsplit(url)
    plain = parts.scheme == "http" and _is_this_machine(parts.hostname)
    bare = not (parts.path.strip("/") or parts.query or parts.fragment or parts.username or parts.password)
    if parts.hostname is None or not bare or not (plain or parts.scheme == "https"):
        message = (
            f"{url} is no address of a policy server. Give https://HOST:PORT (http only on this machine)."
        )
        raise Misconfigured(message, code="policy_url")
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    return host, parts.port or (443 if parts.scheme == "https" else 80), parts.scheme == "https"


def _is_this_machine(host: str | None) -> bool:
    try:
        return host == "localhost" or ip_address(host or "").is_loopback
    except ValueError:
        return False
