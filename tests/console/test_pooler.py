"""A transaction pooler between Remit and Postgres: every statement may land on another backend (F34)."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

from remit.checkpoints.embedded_access import Urls
from remit.sandbox import dump, start, stop

from .conftest import MANDATE, SOON, Remit, mint_for_all, on, set_times
from .test_work import approve, eventually, status, worker

POOLER = shutil.which("pgbouncer") or shutil.which("pgbouncer", path="/usr/sbin")

BACKENDS = 3
"""Fewer than two processes' clients, so that they have to share."""


@pytest.fixture
def pooler_program() -> str:
    """The pooler of the system; where there is none the test says so, and fails where everything has to be tested."""
    if POOLER is None and os.environ.get("CI") == "true":
        pytest.fail("There is no pgbouncer, and nothing may be left out here: `.ci/run` installs it.")
    if POOLER is None:
        pytest.skip("no pgbouncer on this machine: install the package of that name to run this test")
    return POOLER


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def pooling(program: str, urls: Urls, folder: Path) -> Iterator[Urls]:
    """The addresses with a pooler in transaction mode in front of the application's; migrations need a direct one.

    It runs as the user whose the server's socket is.
    """
    found = conninfo_to_dict(urls.app_url)
    user, password, sockets, name = (str(found[key]) for key in ("user", "password", "host", "dbname"))
    whose, port = Path(sockets).stat(), free_port()

    (folder / "users.txt").write_text(f'"{user}" "{password}"\n')
    (folder / "pooler.ini").write_text(
        f"[databases]\n{name} = host={sockets} port=5432 dbname={name}\n"
        f"[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {port}\nunix_socket_dir =\n"
        f"auth_type = scram-sha-256\nauth_file = {folder}/users.txt\n"
        f"logfile = {folder}/log\npool_mode = transaction\ndefault_pool_size = {BACKENDS}\nmax_client_conn = 100\n"
    )
    for path in (folder, *folder.iterdir()):
        os.chown(path, whose.st_uid, whose.st_gid)
    process = subprocess.Popen(
        [program, "-q", str(folder / "pooler.ini")],
        user=whose.st_uid if os.geteuid() == 0 else None,
        group=whose.st_gid if os.geteuid() == 0 else None,
        extra_groups=[] if os.geteuid() == 0 else None,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    pooled = f"postgresql://{user}:{quote(password)}@127.0.0.1:{port}/{name}"

    def answers() -> bool:
        assert process.poll() is None, (folder / "log").read_text()
        try:
            psycopg.connect(pooled, connect_timeout=2).close()
        except psycopg.OperationalError:
            return False
        return True

    try:
        eventually(answers, 10.0)
        yield Urls(owner_url=urls.owner_url, app_url=pooled)
    finally:
        process.kill()
        process.wait()


@pytest.fixture
def pooled(
    bare: Remit, database: Urls, pooler_program: str, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Remit]:
    """An installation that knows the pooler's address only, with tokens for everybody and a company of its own."""
    folder = Path(tempfile.mkdtemp(prefix="remit-pooler-"))
    try:
        with pooling(pooler_program, database, folder) as pooler:
            remit = on(bare, pooler, monkeypatch)
            mint_for_all(pooler)
            asyncio.run(start(remit.home))
            set_times(remit.home, **SOON)
            yield remit
            asyncio.run(stop(remit.home))
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@pytest.mark.slow
def test_a_whole_campaign_runs_through_a_transaction_pooler(pooled: Remit) -> None:
    """F34: claims, approval, stop and lift, the worker that is woken by polling, and the checkpoints, end to end."""
    pooled.done("mandate", "grant", MANDATE, "--token", "support-manager", "--yes")
    assert pooled("run", "outage-0611", "--token", "support-manager").code == 3
    stopped = pooled.done("stop", "all", "--token", "support-manager")
    assert "STOP in force" in stopped
    assert pooled("resume", pooled.last_run()).code == 4
    (order,) = pooled.json("runs")["orders"]
    pooled.done("lift", str(order["id"]), "--token", "support-manager")
    assert pooled("run", "outage-0611", "--token", "support-manager").code == 3
    with worker(pooled) as process:
        approve(pooled)
        eventually(lambda: all(hold["hold_until"] for hold in pooled.json("holds")["holds"]))
        pooled.done("sandbox", "clock", "+1m")
        eventually(lambda: status(pooled) == "COMPLETED")
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=30)
    assert (process.returncode, errors) == (0, "")
    assert pooled("sandbox", "check", "outage-0611", "--final").code == 0
    assert len(dump(pooled.home)["credits"]) == 24


def test_the_pooler_of_these_tests_is_one_that_forgets_sessions(
    database: Urls, pooler_program: str, tmp_path: Path
) -> None:
    """What is prepared on one backend is not there on the next: the fault that these tests are about is real."""
    folder = Path(tempfile.mkdtemp(prefix="remit-pooler-"))
    try:
        with pooling(pooler_program, database, folder) as pooler:
            first, second = (psycopg.connect(pooler.app_url, autocommit=True) for _ in range(2))
            with first, second:
                first.execute("PREPARE mine AS SELECT 1")
                with second.transaction():
                    second.execute("SELECT pg_backend_pid()")
                    with pytest.raises(psycopg.errors.InvalidSqlStatementName):
                        first.execute("EXECUTE mine")
    finally:
        shutil.rmtree(folder, ignore_errors=True)
