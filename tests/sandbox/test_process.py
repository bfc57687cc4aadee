"""The company's process: starting, stopping, killing, and what survives."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import stat
import sys
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path
from typing import Any

import aiohttp
import psutil
import pytest

from remit.sandbox import (
    Control,
    SandboxError,
    SandboxInfo,
    check,
    credentials,
    dump,
    info,
    reset,
    running_world,
    start,
    stop,
)
from remit.sandbox.store import Store, database
from remit.sandbox.worlds import World, eventually

CREDIT: dict[str, Any] = {
    "customer": "c-104",
    "amount_minor": 1000,
    "currency": "USD",
    "reason": "outage-0611",
    "reference": "r",
}


@pytest.fixture
async def live(tmp_path: Path) -> AsyncIterator[World]:
    async with running_world(tmp_path) as opened:
        yield opened


async def _kill(home: Path) -> SandboxInfo:
    """SIGKILL, and wait until the operating system has let go of it."""
    found = info(home)
    assert found is not None
    os.kill(found.pid, signal.SIGKILL)

    async def gone() -> bool:
        return info(home) is None

    await eventually(gone)
    return found


async def test_what_was_answered_survives_sigkill(live: World) -> None:
    """Killed right after its answers, the next process knows credit, key, clock, fault and change."""
    await live.control.advance(3600)
    await live.control.add_fault("payments", "never_settle", "POST /credits", times=2)
    made = (await live.ask("payments", "POST", "/credits", CREDIT, key="k1")).body
    await live.control.edit("c-104", {"plan": "premium"})
    before = await _kill(live.home)
    assert dump(live.home)["credits"] == [made]
    after = await start(live.home)
    assert (after.already_running, after.urls) == (False, before.urls)
    again = await live.ask("payments", "POST", "/credits", CREDIT, key="k1")
    assert again.body == made
    assert (await live.control.clock())["offset_seconds"] == 3600
    assert [fault["hits"] for fault in await live.control.faults()] == [2]
    assert (await live.ask("accounts", "GET", "/accounts/c-104")).body["plan"] == "premium"


async def test_a_lost_reply_and_its_rule_are_one_transaction(live: World) -> None:
    """Killed after the connection was cut: the effect is there and the rule is used up."""
    await live.control.add_fault("payments", "reply_lost", "POST /credits")
    with pytest.raises(aiohttp.ClientConnectionError):
        await live.ask("payments", "POST", "/credits", CREDIT, key="k1")
    await _kill(live.home)
    await start(live.home)
    assert [fault["hits"] for fault in await live.control.faults()] == [1]
    assert (await live.ask("payments", "POST", "/credits", CREDIT, key="k1")).status == 202
    assert len(dump(live.home)["credits"]) == 1


async def test_a_refusal_outlives_the_process(live: World) -> None:
    """The port stays closed after a restart, and opens again at the same number."""
    await live.control.add_fault("mail", "refuse")
    await _kill(live.home)
    restarted = await start(live.home)
    assert restarted.urls == live.urls
    with pytest.raises(aiohttp.ClientConnectionError):
        await live.ask("mail", "GET", "/messages")
    await live.control.clear_faults()
    assert (await live.ask("mail", "GET", "/messages")).status == 200


async def test_the_company_goes_on_settling_while_its_process_is_down(live: World) -> None:
    """A status follows from times: the records tell it with nobody running."""
    await live.control.settings(settle_seconds=0.05)
    await live.ask("payments", "POST", "/credits", CREDIT, key="k1")
    await _kill(live.home)

    async def settled() -> bool:
        return bool(dump(live.home)["credits"][0]["status"] == "settled")

    await eventually(settled)
    assert check(live.home) == []


async def test_starting_twice_says_that_it_runs_and_stopping_ends_it(live: World) -> None:
    """Start and stop are idempotent; a clean end is quick although clients keep connections."""
    first, second = info(live.home), await start(live.home)
    assert first is not None
    assert second.already_running
    assert (second.pid, second.urls) == (first.pid, first.urls)
    assert (await live.ask("mail", "GET", "/templates")).status == 200
    async with asyncio.timeout(3):
        assert await stop(live.home)
    assert info(live.home) is None
    assert not await stop(live.home)


def _processes(home: Path) -> list[int]:
    """Who serves this home, by the table of processes."""
    found = psutil.process_iter(["cmdline"])
    return [process.pid for process in found if str(home) in (process.info["cmdline"] or [])]


async def test_two_starts_at_once_make_one_process(tmp_path: Path) -> None:
    """The lock decides; the loser finds the winner and leaves nothing that takes over after it."""
    one, two = await asyncio.gather(start(tmp_path), start(tmp_path))
    try:
        assert (one.pid, one.urls) == (two.pid, two.urls)
        assert sorted([one.already_running, two.already_running]) == [False, True]
        assert _processes(tmp_path) == [one.pid]
    finally:
        await stop(tmp_path)


async def test_a_second_server_of_one_home_ends_with_a_reason(live: World) -> None:
    """Started by hand beside a running one, it says what to do and leaves the first alone."""
    command = ("-P", "-m", "remit.sandbox", "serve", "--home", str(live.home))
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    second = await asyncio.create_subprocess_exec(
        sys.executable, *command, stderr=asyncio.subprocess.PIPE, env=environment
    )
    _, said = await second.communicate()
    assert (second.returncode, said.decode()) == (
        4,
        "Another process serves this home. Use it, or stop it first.\n",
    )
    assert (await live.control.health())["status"] == "ok"


async def test_a_reset_gives_a_running_company_a_fresh_world(live: World) -> None:
    """The records are empty, the ports the same, and the old credentials open nothing."""
    await live.ask("payments", "POST", "/credits", CREDIT, key="k1")
    fresh = await reset(live.home)
    assert fresh is not None
    assert fresh.urls == live.urls
    assert dump(live.home)["credits"] == []
    assert credentials(live.home).keys() == live.credentials.keys()
    assert (await live.ask("mail", "GET", "/templates")).status == 401
    async with Control.at(live.home) as control:
        assert await control.faults() == []


async def test_the_seed_decides_who_is_affected(tmp_path: Path) -> None:
    """The same seed gives the same world, another one others; the two named customers stay."""
    affected = []
    for seed in (1, 1, 2):
        assert await reset(tmp_path, seed) is None
        incident = dump(tmp_path)["incidents"][0]
        affected.append(incident["affected"])
        assert {"c-104", "c-205"} <= set(incident["affected"])
    assert affected[0] == affected[1] != affected[2]


async def test_files_are_private_and_credentials_are_hashed(live: World) -> None:
    """Only the owner reads them, and the database holds no credential in clear."""
    folder = live.home / "sandbox"
    for name in ("sandbox.json", "credentials.json", "company.sqlite", "serving.lock", "sandbox.log"):
        assert stat.S_IMODE((folder / name).stat().st_mode) == 0o600
    stored = json.loads((folder / "sandbox.json").read_text())
    assert set(stored) == {"pid", "urls"}
    assert set(stored["urls"]) == {"accounts", "payments", "mail", "model", "control"}
    text = (folder / "company.sqlite").read_bytes()
    assert not any(secret.encode() in text for secret in live.credentials.values())


async def test_without_a_world_each_call_says_to_make_one(tmp_path: Path) -> None:
    """Records, checker, credentials and the client tell what to do."""
    for call in (dump, check, credentials):
        with pytest.raises(SandboxError, match="Reset it to make a fresh one"):
            call(tmp_path)
    with pytest.raises(SandboxError, match="Start it first"):
        Control.at(tmp_path)


async def test_a_process_that_cannot_start_is_told(tmp_path: Path) -> None:
    """A database that is none ends the start with a pointer to the log, not with a wait."""
    await reset(tmp_path)
    (tmp_path / "sandbox" / "company.sqlite").write_bytes(b"no database" * 500)
    with pytest.raises(SandboxError, match=r"sandbox\.log"):
        await start(tmp_path)


async def test_a_taken_port_is_replaced(tmp_path: Path) -> None:
    """Where the last port is in use by others, the service takes another one."""
    await reset(tmp_path)
    other = await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", 0)
    taken = f"http://127.0.0.1:{other.sockets[0].getsockname()[1]}"
    (tmp_path / "sandbox" / "sandbox.json").write_text(json.dumps({"pid": 1, "urls": {"mail": taken}}))
    try:
        assert (await start(tmp_path)).urls["mail"] != taken
    finally:
        await stop(tmp_path)
        other.close()
        await other.wait_closed()


async def test_a_commit_is_on_disk_before_its_answer(tmp_path: Path) -> None:
    """The write-ahead log is synced at each commit, so that a power cut loses no answer either."""
    await reset(tmp_path)
    with closing(Store(database(tmp_path))) as store:
        modes = [store.db.execute(f"PRAGMA {name}").fetchone()[0] for name in ("journal_mode", "synchronous")]
    full = 2
    assert modes == ["wal", full]
