"""Who is speaking: token files, kept in HOME/tokens/NAME, readable by their owner alone.

Keeps I3 from the console's side: a secret is read from a file, handed to the database, and never printed or logged.
"""

import getpass
import os
import stat
import sys
from datetime import datetime
from pathlib import Path

from remit.checkpoints.people import SECRET_PREFIX, People
from remit.console.settings import Settings
from remit.tools.errors import Misconfigured, Refused

ADMINISTRATOR = "administrator"

NEWCOMERS = {"support-manager": "support_manager", "finance-lead": "finance_lead"}
"""The people of the sandbox: those who can go on from `remit sandbox up` without minting a token first."""

BOOTSTRAP_DAYS = 365

AT_THE_TERMINAL = "-"
"""In the place of a token file: the secret is typed, and not shown."""

_LONGEST = 4_096


def secret(settings: Settings, token: str | None) -> str:
    """The secret of a token file, or of the file of that name in HOME/tokens; `-` asks for it at the terminal.

    Raises Refused with what to do.
    """
    if token == AT_THE_TERMINAL:
        return _typed()
    if (token or str(settings.token_file or "")).startswith(SECRET_PREFIX):
        # Not repeated: the message may be logged, as the command line may have been.
        raise Refused(
            "A token's secret is never given on the command line or in a variable, where others can read it. Put it "
            "into a file of mode 600 and pass --token FILE; have this one revoked: `remit token revoke ID`.",
            code="token_file",
        )
    file = _file(settings, token)
    try:
        # Before it is opened, which alone can change a device or wake up whoever waits at a pipe.
        if not stat.S_ISREG(file.stat().st_mode):
            raise Refused(f"The token file {file} is no regular file. {_known(settings)}", code="token_file")
        # A pipe that took its place since then would otherwise keep the command waiting for a writer.
        descriptor = os.open(file, os.O_RDONLY | os.O_NONBLOCK)
        with os.fdopen(descriptor, encoding="utf-8") as handle:
            mode = os.fstat(descriptor).st_mode
            text = handle.read(_LONGEST).strip() if stat.S_ISREG(mode) else ""
    except (OSError, UnicodeDecodeError) as error:
        raise Refused(
            f"The token file {file} cannot be read. {_known(settings)}", code="token_file"
        ) from error
    if stat.S_ISREG(mode) and stat.S_IMODE(mode) & 0o077:
        raise Refused(
            f"The token file {file} is open to other users. Close it: chmod 600 {file}", code="token_file"
        )
    if not _sayable(text):
        raise Refused(f"There is no token in {file}. {_known(settings)}", code="token_file")
    return text


def _typed() -> str:
    if not sys.stdin.isatty():
        raise Refused(
            "A token can be typed at a terminal only, and this is none. Pass --token FILE.", code="token_file"
        )
    text = getpass.getpass("Token (not shown): ")[:_LONGEST].strip()
    if not _sayable(text):
        raise Refused("No token was typed. Type it again, or pass --token FILE.", code="token_file")
    return text


def _sayable(text: str) -> bool:
    return bool(text) and text.isascii() and text.isprintable()


def keep(settings: Settings, name: str, text: str) -> Path:
    """Write a secret to HOME/tokens/NAME. Raises Refused when there is one already: it may still be in use."""
    file = settings.tokens / name
    try:
        settings.tokens.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError as error:
        raise Refused(
            f"{file} is there already. Move it away, or name another file with --file.", code="token_file"
        ) from error
    except OSError as error:
        raise Misconfigured(
            f"The token file {file} cannot be written. Set REMIT_HOME to a folder of your own, or name another "
            "file with --file.",
            code="token_file",
        ) from error
    with os.fdopen(descriptor, "w") as handle:
        handle.write(text + "\n")
    return file


async def mint(
    people: People,
    settings: Settings,
    minter: str | None,
    *,
    person: str,
    role: str,
    days: float = BOOTSTRAP_DAYS,
    name: str | None = None,
    natural: str | None = None,
) -> tuple[str, Path, datetime]:
    """Mint a token and keep it: (id, file, expiry). Nothing is minted when the file could not be written."""
    file, minted = keep(settings, name or person, ""), False
    try:
        id_, text, expires = await people.mint(minter, person, role, days * 86_400, natural)
        file.write_text(text + "\n", encoding="utf-8")
        minted = True
    finally:
        if not minted:
            file.unlink(missing_ok=True)
    return id_, file, expires


def _file(settings: Settings, token: str | None) -> Path:
    if token is None:
        if settings.token_file is None:
            raise Refused(
                f"This needs the word of a person. Pass --token FILE, or set REMIT_TOKEN_FILE. {_known(settings)}",
                code="no_token",
            )
        return settings.token_file
    given = Path(token)
    named = settings.tokens / token
    return named if given.name == token and not given.is_file() and named.is_file() else given


def _known(settings: Settings) -> str:
    names = sorted(file.name for file in settings.tokens.glob("*") if file.is_file())
    if names:
        return f"In {settings.tokens} there are: {', '.join(names)}."
    return "`remit sandbox up` makes tokens for the sandbox, `remit token new` further ones."
