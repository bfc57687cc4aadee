"""Credentials are read at the moment of the call, and are afterwards nowhere but in their own file."""

from __future__ import annotations

import asyncio
import base64
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import psycopg
import pytest
from psycopg import sql

from remit.console import places
from remit.console.services import opened
from remit.console.settings import load
from remit.tools.transport import ECHO

from .conftest import Remit

ROTATED = "rotated-credential-of-payments-0123456789"


@dataclass
class Gateway:
    """Stands before payments. `mode`: `forward`, or one of the ways in which gateways repeat a request's headers.

    Searches are forwarded unless `reads`, so that there is something to send.
    """

    real: str
    mode: str = "forward"
    reads: bool = False
    heard: list[str] = field(default_factory=list)
    """The Authorization header of every request."""

    def answer(self, handler: BaseHTTPRequestHandler) -> tuple[int, str, bytes]:
        said = handler.headers.get("Authorization", "")
        length = int(handler.headers.get("Content-Length") or 0)
        body = handler.rfile.read(length) if length else None
        self.heard.append(said)
        search = handler.path.endswith("/search")
        match "forward" if search and not self.reads else self.mode:
            case "page":
                return 200, "text/html", f"<pre>Authorization: {said}</pre>".encode()
            case "problem":
                return 409, "application/problem+json", json.dumps({"code": said, "detail": said}).encode()
            case "refused":
                return (
                    401,
                    "application/json",
                    json.dumps({"code": said, "title": f"bad key {said}"}).encode(),
                )
            case "receipt":
                return 200, "application/json", json.dumps({"id": said, "credit_id": said}).encode()
        return self._forwarded(handler, body)

    def _forwarded(self, handler: BaseHTTPRequestHandler, body: bytes | None) -> tuple[int, str, bytes]:
        kept = {k: v for k, v in handler.headers.items() if k.lower() not in ("host", "content-length")}
        request = Request(self.real + handler.path, body, kept, method=handler.command)  # noqa: S310 - of this machine
        try:
            with urlopen(request, timeout=10) as got:  # noqa: S310
                return got.status, got.headers.get_content_type(), got.read()
        except HTTPError as error:
            return error.code, error.headers.get_content_type(), error.read()


@contextmanager
def gateway_to(real: str) -> Iterator[tuple[Gateway, str]]:
    """A gateway that answers, and its URL."""
    gateway = Gateway(real)

    class Handler(BaseHTTPRequestHandler):
        def handle_any(self) -> None:
            status, kind, body = gateway.answer(self)
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_GET = do_POST = handle_any  # noqa: N815 - the server's names

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the server's name
            """Nothing of it belongs into the output of the tests."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield gateway, f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


@dataclass
class Watched:
    """A run that waits for approval, whose payments are behind the gateway; everything that is said is kept."""

    remit: Remit
    gateway: Gateway
    file: Path
    said: list[str] = field(default_factory=list)

    def __call__(self, *words: str) -> int:
        done = self.remit(*words)
        self.said += [done.out, done.errors]
        return done.code

    def rotate(self, **secrets: str) -> None:
        self.file.write_text(json.dumps(json.loads(self.file.read_text()) | secrets))


@pytest.fixture
def watched(asked: Remit, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Watched]:
    settings = load()
    file = tmp_path / "credentials.json"
    file.write_bytes(places.credentials_file(settings).read_bytes())
    with gateway_to(places.receivers(settings)["payments"]) as (gateway, url):
        monkeypatch.setenv("REMIT_PAYMENTS_URL", url)
        monkeypatch.setenv("REMIT_CREDENTIALS_FILE", str(file))
        yield Watched(asked, gateway, file)


def forms(secret: str) -> set[str]:
    """A secret as it is, and as columns and files may hold it: hexadecimal, and base64 from each of its places."""
    raw = secret.encode()
    parts = {base64.b64encode(raw[skip:])[:-4].decode() for skip in range(3)}
    return {secret, raw.hex(), *parts}


def everything_stored(home: Path) -> dict[str, str]:
    """Every row of every table as text, and every file of the installation but the company's and the tokens' own."""
    found = {}
    with psycopg.connect(load().owner_url.get_secret_value()) as owner:  # type: ignore[union-attr]
        tables = owner.execute(
            "SELECT table_schema, table_name FROM information_schema.tables WHERE table_type = 'BASE TABLE'"
            " AND table_schema NOT IN ('pg_catalog', 'information_schema')"
        ).fetchall()
        for schema, table in tables:
            query = sql.SQL("SELECT t::text FROM {} t").format(sql.Identifier(schema, table))
            found[table] = "\n".join(row for (row,) in owner.execute(query))
    for file in home.rglob("*"):
        if file.is_file() and not {"sandbox", "tokens"} & {*file.relative_to(home).parts}:
            found[str(file)] = file.read_bytes().decode("utf-8", "replace")
    return found


@pytest.mark.slow
def test_no_credential_and_no_token_is_kept_shown_or_logged(
    watched: Watched, caplog: pytest.LogCaptureFixture
) -> None:
    """A campaign whose gateway repeats the credential in a page, a problem, a refusal and a receipt: found nowhere."""
    caplog.set_level("DEBUG")
    remit = watched.remit
    secrets = {*json.loads(watched.file.read_text()).values(), ROTATED}
    secrets |= {file.read_text().strip() for file in (remit.home / "tokens").iterdir()}
    run = remit.last_run()
    watched("approve", remit.open_approval()["id"], "--token", "finance-lead")
    for mode, reads in (("refused", False), ("problem", True), ("page", True), ("receipt", False)):
        watched.gateway.mode, watched.gateway.reads = mode, reads
        watched("resume", run)
    watched.rotate(payments=ROTATED)
    watched("resume", run)
    worker = remit.process("work", "--once")
    watched.said += worker.communicate(timeout=60)
    for words in (("show", run), ("status",), ("receivers",), ("inbox",), ("holds",)):
        watched(*words)
        watched(*words, "--json")
    places_ = everything_stored(remit.home) | {"said": "\n".join(watched.said), "logged": caplog.text}
    assert {"checkpoints", "checkpoint_blobs", "journal", "attempts", "evidence"} <= places_.keys()
    # The search finds what came in the credential's place, so it would have found the credential.
    assert ECHO in places_["attempts"]
    assert len(watched.gateway.heard) > 4
    for secret in secrets:
        for form in forms(secret):
            assert [name for name, text in places_.items() if form in text] == []


def test_a_changed_credential_is_used_by_the_next_call(
    watched: Watched,
) -> None:
    """Rotation needs no restart: the secret is read from its file at each call."""

    async def calls() -> None:
        async with opened() as services:
            transport = await services.transport()
            for secret in ("first-credential-of-payments", ROTATED):
                watched.rotate(payments=secret)
                watched.gateway.mode = "refused"
                await transport.call("payments", "GET", "/credits", credential="payments", seconds=5)

    watched.gateway.heard.clear()
    asyncio.run(calls())
    assert watched.gateway.heard == ["Bearer first-credential-of-payments", f"Bearer {ROTATED}"]
