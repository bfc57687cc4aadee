"""How the console reaches the pretended company, whose errors are its own."""

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from remit.console.settings import Settings
from remit.tools.errors import Misconfigured, Refused

if TYPE_CHECKING:
    from remit.sandbox import Control


@contextmanager
def asking(settings: Settings) -> Iterator[Path]:
    """The company's home; its refusals become errors that the console shows. Misconfigured outside the sandbox."""
    # The sandbox brings a web server along, which most commands have no use for.
    from aiohttp import ClientError

    from remit.sandbox import SandboxError, info

    if not settings.sandboxed:
        raise Misconfigured(
            f"This is {settings.environment}, and the pretended company is for the sandbox only. "
            "Set REMIT_ENVIRONMENT to sandbox.",
            code="no_sandbox",
        )
    try:
        yield settings.home
    except SandboxError as error:
        remedy = "" if info(settings.home) else " `remit sandbox up` starts it."
        raise Refused(f"{error}{remedy}", code="company") from error
    except ClientError as error:
        raise Refused(
            "The company broke off in the middle of an answer. Look at it with `remit sandbox dump`, or start it again "
            "with `remit sandbox up`.",
            code="company",
        ) from error


@asynccontextmanager
async def control(settings: Settings) -> "AsyncIterator[Control]":
    """The client for the company's strings."""
    from remit.sandbox import Control

    with asking(settings) as home:
        async with Control.at(home) as client:
            yield client
