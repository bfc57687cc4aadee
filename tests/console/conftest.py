"""Commands in this process, on a database and a home of their own, with a company where a test needs one."""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg import sql

from remit.checkpoints import Database, People, embedded, open_pool
from remit.checkpoints.embedded_access import Urls
from remit.console import identity
from remit.console.main import command
from remit.console.settings import load
from remit.sandbox import Control, SandboxInfo, start, stop
from tests.fixtures import Tokens, mint_tokens

ROOT = Path(__file__).resolve().parent.parent.parent
MANDATE = str(ROOT / "mandates" / "outage-0611.yaml")
CORRECTED = str(ROOT / "mandates" / "outage-0611-corrected.yaml")
SECOND = str(ROOT / "mandates" / "outage-0619.yaml")
SOON = {"settle_seconds": 0.05, "deliver_seconds": 0.05}


def environment(**more: str) -> dict[str, str]:
    """Of this process, for one in another folder: what is imported here can be imported there."""
    path = os.pathsep.join(str(Path(entry).resolve()) for entry in sys.path if entry)
    return {**os.environ, "PYTHONPATH": path, **more}


def set_times(home: Path, **seconds: float) -> None:
    """How long the company takes to settle and to deliver."""

    async def change() -> None:
        async with Control.at(home) as control:
            await control.settings(**seconds)

    asyncio.run(change())


@dataclass(frozen=True)
class Said:
    """What one command said, and how it ended."""

    code: int
    out: str
    errors: str


@dataclass(frozen=True)
class Remit:
    """The `remit` command on one installation."""

    home: Path
    capture: pytest.CaptureFixture[str]

    def __call__(self, *words: str) -> Said:
        """Run one command line."""
        self.capture.readouterr()
        code = command(list(words))
        said = self.capture.readouterr()
        return Said(code, said.out, said.err)

    def process(self, *words: str) -> subprocess.Popen[str]:
        """Begin one command in a process of its own."""
        argv = [sys.executable, "-P", "-m", "remit.console.main", *words]
        return subprocess.Popen(
            argv,
            env=environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def done(self, *words: str) -> str:
        """The output of a command that has to succeed."""
        said = self(*words)
        assert said.code == 0, said
        return said.out

    def json(self, *words: str) -> Any:
        """The document that `--json` prints, whatever the exit code."""
        return json.loads(self(*words, "--json").out)

    def control(self, **seconds: float) -> None:
        """Set how long the company takes."""
        set_times(self.home, **seconds)

    def last_run(self) -> str:
        """The newest run."""
        return str(self.json("runs")["runs"][0]["id"])

    def open_approval(self) -> dict[str, Any]:
        """The one approval that is open."""
        (approval,) = self.json("inbox")["approvals"]
        return dict(approval)


@contextmanager
def cloned(postgres_home: Path, template: str) -> Iterator[Urls]:
    """A database of its own, gone afterwards."""
    name = f"test_{secrets.token_hex(6)}"
    urls = asyncio.run(embedded.create_database(postgres_home, name, template=template))
    with psycopg.connect(urls.owner_url, autocommit=True) as owner:
        # A setting of the database, which a clone does not inherit.
        owner.execute(
            sql.SQL("ALTER DATABASE {} SET search_path = remit, public").format(sql.Identifier(name))
        )
    yield urls
    asyncio.run(embedded.drop_database(postgres_home, name))


@pytest.fixture
def database(postgres_home: Path, migrated_template: str) -> Iterator[Urls]:
    """A migrated database with nothing in it."""
    with cloned(postgres_home, migrated_template) as urls:
        yield urls


@pytest.fixture
def clean(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An environment without any setting but a home, which does not exist yet."""
    for name in list(os.environ):
        if name.startswith("REMIT_"):
            monkeypatch.delenv(name)
    home = tmp_path / "home"
    monkeypatch.setenv("REMIT_HOME", str(home))
    monkeypatch.chdir(tmp_path)
    return home


@pytest.fixture
def bare(clean: Path, capsys: pytest.CaptureFixture[str]) -> Remit:
    """The command without a database."""
    return Remit(clean, capsys)


def on(remit: Remit, database: Urls, patch: pytest.MonkeyPatch) -> Remit:
    """The command on this database."""
    patch.setenv("REMIT_HOME", str(remit.home))
    patch.setenv("REMIT_DATABASE_URL", database.app_url)
    patch.setenv("REMIT_OWNER_URL", database.owner_url)
    patch.setenv("REMIT_TENANT", "test")
    return remit


@pytest.fixture
def remit(bare: Remit, database: Urls, monkeypatch: pytest.MonkeyPatch) -> Remit:
    """The command on a migrated database with nothing in it."""
    return on(bare, database, monkeypatch)


def mint_for_all(database: Urls) -> None:
    """Token files of an administrator, a support manager and a finance lead."""

    async def mint() -> Tokens:
        async with open_pool(database.app_url) as pool:
            return await mint_tokens(People(Database(pool)))

    settings = load()
    for name, secret in vars(asyncio.run(mint())).items():
        identity.keep(settings, name.replace("_", "-"), secret)


@pytest.fixture
def staffed(remit: Remit, database: Urls) -> Remit:
    """As `remit`, with tokens for everybody."""
    mint_for_all(database)
    return remit


@pytest.fixture(scope="session")
def shared_company(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SandboxInfo]:
    """One company for tests that only read its accounts."""
    home = tmp_path_factory.mktemp("company")
    yield asyncio.run(start(home))
    asyncio.run(stop(home))


@pytest.fixture
def reading(staffed: Remit, shared_company: SandboxInfo, monkeypatch: pytest.MonkeyPatch) -> Remit:
    """As `staffed`, beside a company that other tests read as well."""
    for name in ("accounts", "payments", "mail"):
        monkeypatch.setenv(f"REMIT_{name.upper()}_URL", shared_company.urls[name])
    monkeypatch.setenv("REMIT_CREDENTIALS_FILE", str(shared_company.home / "sandbox" / "credentials.json"))
    return staffed


@pytest.fixture
def company(staffed: Remit) -> Iterator[Remit]:
    """As `staffed`, beside a company of its own in which nothing takes long."""
    asyncio.run(start(staffed.home))
    set_times(staffed.home, **SOON)
    yield staffed
    asyncio.run(stop(staffed.home))


@dataclass(frozen=True)
class Picture:
    """An installation as it was left: the name of its database, and its home."""

    database: str
    home: Path


@pytest.fixture(scope="session")
def asked_once(
    postgres_home: Path, migrated_template: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Picture]:
    """A run that waits for the finance lead, to be copied: to get there takes many times what a copy takes."""
    home = tmp_path_factory.mktemp("asked")
    with cloned(postgres_home, migrated_template) as urls, pytest.MonkeyPatch.context() as patch:
        for name, value in (("HOME", home), ("TENANT", "test"), ("DATABASE_URL", urls.app_url)):
            patch.setenv(f"REMIT_{name}", str(value))
        mint_for_all(urls)
        asyncio.run(start(home))
        set_times(home, **SOON)
        assert command(["mandate", "grant", MANDATE, "--token", "support-manager", "--yes"]) == 0
        assert command(["run", "outage-0611", "--token", "support-manager"]) == 3
        asyncio.run(stop(home))
        yield Picture(urls.app_url.partition("?")[0].rpartition("/")[2], home)


@pytest.fixture
def asked(
    bare: Remit, postgres_home: Path, asked_once: Picture, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Remit]:
    """A run that waits for the finance lead, with 24 credits of 10 dollars."""
    with cloned(postgres_home, asked_once.database) as urls:
        for folder in ("sandbox", "tokens"):
            shutil.copytree(asked_once.home / folder, bare.home / folder)
        asyncio.run(start(bare.home))
        yield on(bare, urls, monkeypatch)
        asyncio.run(stop(bare.home))


@pytest.fixture
def granted(company: Remit) -> Remit:
    """As `company`, with the campaign's mandate granted."""
    company.done("mandate", "grant", MANDATE, "--token", "support-manager", "--yes")
    return company


@pytest.fixture
def empty_database_urls(postgres_home: Path) -> Iterator[Urls]:
    """A database without tables."""
    with cloned(postgres_home, "template1") as urls:
        yield urls
