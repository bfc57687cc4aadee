"""People are told once, through an outbox that survives a crash: what is told, to whom, and what a failure costs."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import psycopg
import pytest
from aiohttp import web

from remit.checkpoints.embedded_access import Urls
from remit.checkpoints.notices import Notices, posting, running, untold
from remit.tools.ports import Lease
from remit.tools.signatures import is_signed, key_of, signed
from tests.checkpoints.notice_process import Order
from tests.fixtures import ASK_FINANCE, HOUR, Bench, Tokens, eventually, mandate_over

OWN = ["customer:c-104"]
ROOT = Path(__file__).parents[2]
SECRET = "whsec_MDEyMzQ1Njc4OWFiY2RlZg=="


@dataclass
class Desk:
    """Somebody who is told: what came, in order, and the status that is answered next."""

    url: str = ""
    statuses: list[int] = field(default_factory=list)
    came: list[dict[str, Any]] = field(default_factory=list)
    signed: list[bool] = field(default_factory=list)

    async def take(self, request: web.Request) -> web.Response:
        body = await request.read()
        self.signed.append(is_signed(key_of(SECRET), request.headers, body))
        self.came.append(json.loads(body))
        return web.Response(status=self.statuses.pop(0) if self.statuses else 204)

    @property
    def ids(self) -> list[str]:
        return [one["id"] for one in self.came]


@pytest.fixture
async def desk() -> AsyncIterator[Desk]:
    told = Desk()
    app = web.Application()
    app.router.add_post("/told", told.take)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    told.url = f"http://127.0.0.1:{runner.addresses[0][1]}/told"
    yield told
    await runner.cleanup()


@pytest.fixture
async def outbox(bench: Bench, desk: Desk) -> AsyncIterator[Notices]:
    async with aiohttp.ClientSession() as session:
        yield Notices(bench.database, posting(session, desk.url, key_of(SECRET)))


async def kinds(bench: Bench) -> Counter[str]:
    return Counter(row["kind"] for row in await bench.database.rows("notices", all=True, limit=100))


async def asked(bench: Bench, tokens: Tokens) -> Lease:
    """A run whose one credit needs a person, who is asked."""
    lease = await bench.run_over(tokens, OWN)
    await bench.propose(lease, "credit", OWN, verdict="needs_approval", obligations=ASK_FINANCE)
    await bench.database.rows("ask_approvals", run=lease.run_id, token=lease.token, new_id="ap-abcdef")
    return lease


async def released(bench: Bench, lease: Lease, status: str, **waits: int) -> None:
    await bench.database.rows(
        "release_run",
        run=lease.run_id,
        token=lease.token,
        status=status,
        reason="a test",
        waits=json.dumps(waits),
    )


async def due_now(database: Urls) -> None:
    """Whatever is to be tried later is due at once."""
    async with await psycopg.AsyncConnection.connect(database.owner_url, autocommit=True) as owner:
        await owner.execute("UPDATE remit.notices SET due_at = clock_timestamp()")


async def test_an_approval_is_told_with_ids_and_counts_and_a_signature(
    bench: Bench, tokens: Tokens, desk: Desk, outbox: Notices
) -> None:
    """Who is asked, about how many, until when; no customer, amount or text leaves with it."""
    lease = await asked(bench, tokens)
    assert await outbox.deliver() == 1
    (notice,) = desk.came
    assert desk.signed == [True]
    assert (notice["type"], notice["run"]) == ("approval.wanted", lease.run_id)
    assert (notice["data"]["approval"], notice["data"]["actions"], notice["data"]["roles"]) == (
        "ap-abcdef",
        1,
        ["finance_lead"],
    )
    assert not {"c-104", "1000", "USD"} & set(json.dumps(notice).replace('"', " ").split())
    assert await outbox.deliver() == 0
    assert len(desk.came) == 1


async def test_an_approval_that_is_about_to_expire_is_told_once_however_often_it_is_looked_at(
    bench: Bench, tokens: Tokens
) -> None:
    """A tenth of its time is left, or less; before that nobody is told a second time."""
    await asked(bench, tokens)
    await bench.database.rows("advance_clock", seconds=HOUR * 0.85)
    await bench.sweep()
    assert (await kinds(bench))["approval.expiring"] == 0
    await bench.database.rows("advance_clock", seconds=HOUR * 0.06)
    for _ in range(3):
        await bench.sweep()
    assert await kinds(bench) == {"approval.wanted": 1, "approval.expiring": 1}


async def test_a_run_is_told_once_for_each_set_of_things_that_it_waits_for(
    bench: Bench, tokens: Tokens
) -> None:
    """A second pause for the same is none; another one is; so is the end."""
    run = await bench.started(tokens, await bench.granted(tokens, OWN))
    for waits in ({"settlement": 1}, {"settlement": 3}, {"approval": 1, "settlement": 1}):
        await released(bench, await bench.leased(run), "PAUSED", **waits)
    await released(bench, await bench.leased(run), "COMPLETED")
    assert await kinds(bench) == {"run.paused": 2, "run.ended": 1}


async def test_a_receiver_is_told_when_its_door_closes(bench: Bench, tokens: Tokens) -> None:
    """One for the closing, however many calls meet it afterwards; what opens and closes at once is not told again."""

    async def met(what: str) -> None:
        await bench.database.rows("note_answer", receiver="payments", met=what, detail="nobody listens")

    for what in ("answered", "gone", "gone", "answered"):
        await met(what)
    (row,) = await bench.database.rows("notices", all=True, limit=10)
    assert (row["kind"], row["data"]["receiver"], row["data"]["why"]) == (
        "receiver.closed",
        "payments",
        "gone",
    )
    assert "detail" not in row["data"]
    await met("gone")
    assert [row["closed"] for row in await bench.sql("SELECT closed FROM remit.receivers")] == ["gone"]
    assert await kinds(bench) == {"receiver.closed": 1}


async def test_a_case_is_told_once(bench: Bench, tokens: Tokens) -> None:
    """However often a claim meets it."""
    lease = await bench.run_over(tokens, OWN)
    ids = await bench.propose(lease, "credit", OWN)
    terms = {"issue_credit": {"attempts": 0, "budget_ms": 1, "timeout_ms": 1, "retention_ms": None}}
    for _ in range(2):
        await bench.database.rows(
            "claim",
            run=lease.run_id,
            token=lease.token,
            worker=bench.worker.id,
            ids=ids,
            read_at=await bench.database.value("now"),
            send_seconds=5,
            terms=json.dumps(terms),
        )
    assert await bench.cases() == ["budget"]
    assert await kinds(bench) == {"case.opened": 1}


async def test_what_is_undone_is_not_told(bench: Bench, tokens: Tokens, ledger_database: Urls) -> None:
    """A notice is part of the transaction that it tells of."""
    run = await bench.started(tokens, await bench.granted(tokens, OWN))
    owner = await psycopg.AsyncConnection.connect(ledger_database.owner_url, autocommit=True)
    async with owner, owner.transaction(force_rollback=True):
        await owner.execute("UPDATE remit.runs SET status = 'PAUSED' WHERE id = %s", [run])
    assert await kinds(bench) == {}


async def test_killed_between_post_and_record_the_same_notice_comes_again(
    bench: Bench, tokens: Tokens, desk: Desk, outbox: Notices, ledger_database: Urls
) -> None:
    """Never lost, and known by its id as the one that came before; the next worker tells it and records that."""
    await asked(bench, tokens)
    order = Order(ledger_database.app_url, desk.url, SECRET, 0.3)
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.checkpoints.notice_process", order.text(), cwd=ROOT
    )
    assert await asyncio.wait_for(process.wait(), 60) == -signal.SIGKILL
    assert len(desk.came) == 1

    async def told_again() -> bool:
        return await outbox.deliver() == 1

    await eventually(told_again)
    assert desk.came[0] == desk.came[1]
    assert await bench.database.rows("notices", all=False, limit=10) == []


async def test_two_workers_at_once_tell_each_notice_once(
    bench: Bench, tokens: Tokens, desk: Desk, outbox: Notices
) -> None:
    """What one took the other leaves alone."""
    for _ in range(3):
        run = await bench.started(tokens, await bench.granted(tokens, OWN))
        await released(bench, await bench.leased(run), "COMPLETED")
    told = await asyncio.gather(outbox.deliver(), outbox.deliver(), outbox.deliver())
    assert sum(told) == 3
    assert len(set(desk.ids)) == len(desk.ids) == 3


async def test_what_is_not_taken_is_shown_and_tried_again_later(
    bench: Bench, tokens: Tokens, desk: Desk, outbox: Notices, ledger_database: Urls
) -> None:
    """Not at once, in a tight loop; a redirect is no acceptance; once it is taken nothing is shown any more."""
    await asked(bench, tokens)
    for number, status in enumerate((302, 400, 500), start=1):
        desk.statuses = [status]
        assert await outbox.deliver() == 0
        assert await outbox.deliver() == 0
        assert len(desk.came) == number
        lost = await untold(bench.database)
        assert lost is not None
        assert (lost[0], lost[2]) == (1, f"It was answered with {status}. Look at REMIT_NOTIFY_URL.")
        await due_now(ledger_database)
    assert await outbox.deliver() == 1
    assert await untold(bench.database) is None


async def test_pauses_between_tries_double_up_to_ten_minutes(
    bench: Bench, tokens: Tokens, ledger_database: Urls
) -> None:
    """Nobody is posted to in a tight loop, and nobody waits for an hour once the channel works again."""
    await asked(bench, tokens)
    pauses = []
    for _ in range(12):
        await due_now(ledger_database)
        (taken,) = await bench.database.rows("take_notices", limit=10, seconds=1)
        await bench.database.rows("notices_failed", ids=[taken["id"]], error="no")
        (row,) = await bench.sql(
            "SELECT round(extract(epoch FROM due_at - clock_timestamp())) AS s FROM remit.notices"
        )
        pauses.append(int(row["s"]))
    assert pauses == [2, 4, 8, 16, 32, 64, 128, 256, 512, 600, 600, 600]


async def test_a_command_gets_the_notice_on_its_input_and_tells_by_its_end(
    bench: Bench, tokens: Tokens, tmp_path: Path, ledger_database: Urls
) -> None:
    """Exit 0 is told; another one, or a command that is not there, is shown with what to look at."""
    await asked(bench, tokens)
    for command, why in (
        ([sys.executable, "-c", "import sys; sys.exit(3)"], "ended with code 3"),
        (["/nowhere/at-all"], "cannot be run"),
    ):
        assert await Notices(bench.database, running(command)).deliver() == 0
        lost = await untold(bench.database)
        assert lost is not None
        assert why in lost[2]
        await due_now(ledger_database)
    script = "import sys; open(sys.argv[1], 'w').write(sys.stdin.read())"
    file = tmp_path / "told.json"
    assert await Notices(bench.database, running([sys.executable, "-c", script, str(file)])).deliver() == 1
    assert json.loads(file.read_text())["type"] == "approval.wanted"


def test_a_notice_is_signed_like_the_conventions_posts() -> None:
    """Another id, time, body or key is another signature."""
    key = key_of(SECRET)
    headers = signed(key, "ntc-1", 1_700_000_000, b"{}")
    assert is_signed(key, headers, b"{}")
    assert not is_signed(key, headers, b"[]")
    assert not is_signed(key, {**headers, "webhook-id": "ntc-2"}, b"{}")
    assert not is_signed(key, {**headers, "webhook-timestamp": "1700000001"}, b"{}")
    assert not is_signed(b"0" * 16, headers, b"{}")


def test_every_kind_that_can_be_told_is_one_that_a_test_here_expects() -> None:
    """The list of kinds is the database's; a new one needs a test."""
    sql = (ROOT / "checkpoints/migrations/0001/19_notices.sql").read_text()
    listed = sql.partition("kind IN (")[2].partition(")")[0].replace("'", "").split(", ")
    here = Path(__file__).read_text()
    assert [kind for kind in listed if f'"{kind}"' not in here] == []


async def test_a_mandate_of_many_subjects_is_one_notice(bench: Bench, tokens: Tokens) -> None:
    """One for the request, whatever number of actions it is about."""
    subjects = [f"customer:c-{number}" for number in range(201, 241)]
    lease = await bench.run_over(tokens, subjects, mandate_over())
    await bench.propose(lease, "credit", subjects, verdict="needs_approval", obligations=ASK_FINANCE)
    await bench.database.rows("ask_approvals", run=lease.run_id, token=lease.token, new_id="ap-abcdef")
    (row,) = await bench.database.rows("notices", all=True, limit=10)
    assert row["data"]["actions"] == 40
