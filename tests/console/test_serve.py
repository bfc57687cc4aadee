"""`remit serve` as a process: events in, runs carried on, and a clean end."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import psycopg
import pytest

from remit.checkpoints.embedded_access import Urls
from remit.sandbox import Control, check, credentials
from remit.sandbox.signatures import holder, new_secret, signed

from .conftest import Remit

GOOD = {
    "id": "e-1",
    "type": "credit.settled",
    "reference": "ticket-7\u202e",
    "at": "2026-11-30T12:00:00Z",
}


@dataclass
class Serving:
    """One `remit serve`, and posts to it in the company's name."""

    remit: Remit
    process: subprocess.Popen[str]
    url: str

    def post(self, secret: str | None = None, **changed: object) -> int:
        """Posts an event of payments and returns the status."""
        event = {**GOOD, **changed}
        body = json.dumps(event).encode()
        key = secret or credentials(self.remit.home)[holder("payments")]
        headers = signed(key, str(event["id"]), int(time.time()), body)
        request = urllib.request.Request(  # noqa: S310 - the address is ours
            f"{self.url}/events/payments", body, headers, method="POST"
        )
        try:
            with urllib.request.urlopen(request, timeout=10) as got:  # noqa: S310 - as above
                return int(got.status)
        except urllib.error.HTTPError as refused:
            return refused.code

    def ended(self) -> tuple[int, str, str]:
        """SIGTERM, and how the process ended: code, output, errors."""
        self.process.send_signal(signal.SIGTERM)
        out, errors = self.process.communicate(timeout=30)
        return self.process.returncode, out, errors


Serve = Callable[..., Serving]


@pytest.fixture
def serve() -> Iterator[Serve]:
    """Begins a `remit serve` on a free port, and gives it once it takes events."""
    begun: list[subprocess.Popen[str]] = []

    def begin(remit: Remit, *words: str) -> Serving:
        process = remit.process("serve", "--port", "0", *words)
        begun.append(process)
        assert process.stdout is not None
        for line in process.stdout:
            if line.startswith("Takes events at "):
                return Serving(remit, process, line.split()[3].removesuffix("/events/RECEIVER."))
        raise AssertionError(process.communicate()[1])

    yield begin
    for process in begun:
        if process.poll() is None:
            process.kill()
        process.communicate()


def until(condition: Callable[[], bool], seconds: float = 20.0) -> None:
    """Looks until the condition holds; TimeoutError when it does not within `seconds`."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError
        time.sleep(0.05)


def until_found(query: str) -> None:
    """Looks until the query has a row."""
    with psycopg.connect(os.environ["REMIT_DATABASE_URL"], autocommit=True) as ledger:
        until(lambda: ledger.execute(query.encode()).fetchone() is not None, 40)


def pull(remit: Remit, string: str, **values: float) -> Any:
    """Pulls one string of the company: the method of `Control` of that name."""

    async def ask() -> Any:
        async with Control.at(remit.home) as control:
            return await getattr(control, string)(**values)

    return asyncio.run(ask())


def test_a_campaign_is_carried_on_beside_its_events(asked: Remit, serve: Serve) -> None:
    """The company is told where to post; credits settle, the run goes on to its e-mails, and SIGTERM ends all of it."""
    asked.done("approve", asked.open_approval()["id"], "--token", "finance-lead", "--yes")
    pull(asked, "settings", settle_seconds=1.0)
    serving = serve(asked)
    assert {hook["url"] for hook in pull(asked, "webhooks")} == {
        f"{serving.url}/events/{name}" for name in ("payments", "mail")
    }
    until_found("SELECT FROM remit.operations HAVING count(hold_until) = 24")
    posts = pull(asked, "posts")
    assert sorted(post["type"] for post in posts) == ["credit.accepted"] * 24 + ["credit.settled"] * 24
    assert {post["outcome"] for post in posts} == {"delivered"}
    assert check(asked.home, "outage-0611") == []
    assert asked.json("serve", "--list") == {"orders": [], "closed": [], "events": [], "refused": []}
    code, out, errors = serving.ended()
    assert (code, errors) == (0, "")
    assert "Ends: " in out
    assert pull(asked, "webhooks") == []


def test_events_alone_are_stored_and_listed_and_sweep_nothing(company: Remit, serve: Serve) -> None:
    """--events-only has no worker; what no operation explains and what was refused is listed, quoted and in JSON."""
    serving, remit = serve(company, "--events-only"), company
    assert [serving.post(), serving.post(), serving.post(new_secret(), id="e-2")] == [200, 200, 401]
    assert remit.json("db", "status")["last_sweep"] is None
    code, out, errors = serving.ended()
    assert (code, errors) == (0, "")
    assert "Takes no more events." in out
    listed = remit.json("serve", "--list")
    (event,) = listed["events"]
    assert (event["receiver"], event["id"], event["reference"]) == ("payments", "e-1", GOOD["reference"])
    assert (event["type"], event["key"], event["state"]) == ("credit.settled", None, None)
    (refused,) = listed["refused"]
    assert (refused["receiver"], refused["code"], refused["count"]) == ("payments", "signature", 1)
    shown = remit.done("serve", "--list")
    assert "1 event that no operation explains" in shown
    assert '"ticket-7<U+202E>"' in shown
    assert "payments: 1 post refused (signature)" in shown


def test_an_event_that_is_being_stored_is_answered_before_the_end(
    company: Remit, serve: Serve, database: Urls
) -> None:
    """SIGTERM while the database makes a post wait: no new connection is taken, the event is stored and answered."""
    serving = serve(company, "--events-only")
    with psycopg.connect(database.owner_url) as owner, ThreadPoolExecutor() as pool:
        owner.execute("LOCK TABLE remit.events IN EXCLUSIVE MODE")
        posting = pool.submit(serving.post)
        until(lambda: waits_for_a_lock(database))
        serving.process.send_signal(signal.SIGTERM)
        until(lambda: not listens(int(serving.url.rpartition(":")[2])))
        assert not posting.done()
        owner.rollback()
        assert posting.result(10) == 200
    assert serving.process.wait(30) == 0
    assert [event["id"] for event in serving.remit.json("serve", "--list")["events"]] == ["e-1"]


def waits_for_a_lock(database: Urls) -> bool:
    with psycopg.connect(database.owner_url) as owner:
        query = "SELECT FROM pg_locks WHERE NOT granted AND relation = 'remit.events'::regclass"
        return owner.execute(query).fetchone() is not None


def listens(port: int) -> bool:
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=1):
            return True
    except OSError:
        return False


def test_serve_says_what_it_lacks(remit: Remit) -> None:
    """No secret at all, and an address that is taken: a sentence each, and nothing is served."""
    said = remit("serve")
    assert said.code == 1
    assert "events-payments" in said.errors
    assert "so no event could be checked" in said.errors
    file = remit.home / "sandbox" / "credentials.json"
    file.parent.mkdir(parents=True)
    file.write_text(json.dumps({"events-mail": new_secret()}))
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        said = remit("serve", "--events-only", "--port", str(taken.getsockname()[1]))
    assert said.code == 1
    assert "Choose with --host and --port." in said.errors


def test_without_a_company_events_are_taken_all_the_same(remit: Remit) -> None:
    """It is said that nobody posts here yet, and the process goes on."""
    file = remit.home / "sandbox" / "credentials.json"
    file.parent.mkdir(parents=True)
    file.write_text(json.dumps({"events-payments": new_secret()}))
    process = remit.process("serve", "--port", "0", "--events-only")
    assert process.stdout is not None
    try:
        assert process.stdout.readline().startswith("Takes events at ")
    finally:
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=30)
    assert process.returncode == 0
    assert errors.startswith("The company does not know where to post events.")
