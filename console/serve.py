"""`remit serve`: takes the events that receivers post, and does what `remit work` does, at once where an event came.

Keeps F49: an event is checked and stored here and moves nothing; what it makes due is asked of the system of record by
the sweep. Whoever is not the receiver gets a refusal and leaves a number.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Annotated

import aiohttp
import psycopg
import typer
from aiohttp import web
from aiohttp.typedefs import Handler

from remit.checkpoints.events import LARGEST, Events, Outcome
from remit.console import places, pretended
from remit.console.edge import go
from remit.console.options import AsJson
from remit.console.render import many, moment, quoted
from remit.console.screen import complain, listing, say, table
from remit.console.services import Services, opened
from remit.console.settings import Settings
from remit.console.telling import telling
from remit.console.work import Ending, Standing
from remit.tools.catalogue import RECEIVERS
from remit.tools.errors import Misconfigured, NotSent, RemitError

_PORT = 8600

_COUNT_SECONDS = 1.0
"""How long the number of a refusal may be known to this process only: a flood of forgeries is one write a second."""

_READ_SECONDS = 5.0
"""For the body of a post; events are small, and a sender that stalls would hold its connection for ever."""

_END_SECONDS = 5.0
"""For posts that are being answered when the process is asked to end."""

_ANSWERS: dict[Outcome, tuple[int, str]] = {
    Outcome.STORED: (200, "Stored."),
    Outcome.KNOWN: (200, "This event was stored before; nothing was done."),
    Outcome.NO_SUCH_RECEIVER: (404, "No receiver of this name posts events here. Correct the address."),
    Outcome.SECRET: (503, "There is no secret to check this receiver's events with. Post it again later."),
    Outcome.SIGNATURE: (401, "The signature is not the receiver's. Sign with the secret that was agreed."),
    Outcome.TIME: (
        401,
        "This was not signed within the last 5 minutes. Look at the clock, and sign it anew.",
    ),
    Outcome.SIZE: (413, f"An event has at most {LARGEST} bytes. Post less."),
    Outcome.BODY: (
        400,
        "An event is a JSON object of id (as in webhook-id), type, reference and at. Correct it.",
    ),
}
"""Status and words by outcome; the last sentence says what the sender does next."""


def serve(
    port: Annotated[int, typer.Option("--port", min=0, max=65_535, help="0 takes one that is free.")] = _PORT,
    host: Annotated[
        str, typer.Option("--host", help="Plain HTTP: what other machines reach belongs behind TLS.")
    ] = "127.0.0.1",
    events_only: Annotated[
        bool, typer.Option("--events-only", help="Take events, and leave all else to `remit work`.")
    ] = False,
    list_: Annotated[
        bool, typer.Option("--list", help="Only list what no operation explains, and what was refused.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Take receivers' events and carry runs on, until SIGTERM or Ctrl-C. Exit 0."""
    go(_list(as_json) if list_ else _serve(host, port, events_only))


async def _serve(host: str, port: int, events_only: bool) -> None:
    ending = _Awake()
    async with opened(reach=ending.reach, acts=True) as services:
        events = await _events(services)
        _require_secrets(services.settings)
        standing = None if events_only else Standing(services, ending)
        if standing is not None:
            await services.worker()
        ending.listen()
        async with (
            _counting(events),
            listening(events, host, port, ending.stir) as url,
            _told(services.settings, url),
            _telling(services, standing),
        ):
            say(f"Takes events at {url}/events/RECEIVER. SIGTERM or Ctrl-C ends it.")
            await (ending.wished.wait() if standing is None else standing.until_ended())
        say("Takes no more events." if standing is None else f"Ends: {standing.tally()}.")


@asynccontextmanager
async def _telling(services: Services, standing: Standing | None) -> AsyncIterator[None]:
    """People are told by whoever works; one that only takes events leaves it to `remit work`."""
    if standing is None:
        yield
        return
    async with telling(services):
        yield


class _Awake(Ending):
    """The standing worker's wish to end, whose pauses end as well when an event was stored."""

    def __init__(self) -> None:
        super().__init__()
        self._stirred = asyncio.Event()

    def stir(self) -> None:
        """An event was stored: there is something to look at."""
        self._stirred.set()

    async def rest(self, seconds: float) -> None:
        """At most `seconds`; an event or the wish to end is earlier."""
        waits = {asyncio.ensure_future(self.wished.wait()), asyncio.ensure_future(self._stirred.wait())}
        _, pending = await asyncio.wait(waits, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        for wait in pending:
            wait.cancel()
        self._stirred.clear()


async def _events(services: Services) -> Events:
    """What is taken here; each secret is read anew at each post."""
    settings = services.settings
    return Events(
        await services.database(), RECEIVERS, lambda name: places.credential(settings, _secret(name))
    )


def _secret(receiver: str) -> str:
    return f"events-{receiver}"


def _require_secrets(settings: Settings) -> None:
    for name in RECEIVERS:
        with suppress(NotSent):
            places.credential(settings, _secret(name))
            return
    raise Misconfigured(
        f"No receiver's secret is in {places.credentials_file(settings)}, so no event could be checked. "
        f"Put one there, for example as {_secret(RECEIVERS[1])}.",
        code="credential",
    )


@asynccontextmanager
async def listening(events: Events, host: str, port: int, stored: Callable[[], None]) -> AsyncIterator[str]:
    """Serves POST /events/RECEIVER while the block runs; yields the base URL. Port 0 takes a free one.

    `stored` is called between the commit of an event and the answer. Misconfigured when the address cannot be had.
    """
    runner = web.AppRunner(
        application(events, stored), access_log=None, handle_signals=False, shutdown_timeout=_END_SECONDS
    )
    await runner.setup()
    try:
        try:
            await web.TCPSite(runner, host, port).start()
        except OSError as error:
            raise Misconfigured(
                f"Nobody can listen at {host}, port {port}: {error.strerror}. Choose with --host and --port.",
                code="address",
            ) from error
        bound = runner.addresses[0]
        yield f"http://{f'[{host}]' if ':' in host else host}:{bound[1]}"
    finally:
        await runner.cleanup()


def application(events: Events, stored: Callable[[], None]) -> web.Application:
    """The one route. `stored` as in `listening`."""

    async def take(request: web.Request) -> web.Response:
        outcome = await _taken(events, request)
        if outcome is Outcome.STORED:
            stored()
        status, detail = _ANSWERS[outcome]
        return _answer(status, outcome, detail)

    # One more than is taken: whichever way the server counts its limit, the largest event fits.
    app = web.Application(client_max_size=LARGEST + 1, middlewares=[_patient])
    app.router.add_post("/events/{receiver}", take)
    return app


async def _taken(events: Events, request: web.Request) -> Outcome:
    receiver = request.match_info["receiver"]
    try:
        async with asyncio.timeout(_READ_SECONDS):
            body = await request.read()
    except web.HTTPRequestEntityTooLarge:
        return events.refuse(receiver, Outcome.SIZE)
    return await events.take(receiver, request.headers, body)


@web.middleware
async def _patient(request: web.Request, handler: Handler) -> web.StreamResponse:
    """What keeps us from storing is no fault of the sender: it is asked to post again."""
    try:
        return await handler(request)
    except TimeoutError:
        return _answer(408, "slow", "The body did not come in time. Post it again.")
    except (RemitError, psycopg.Error) as error:
        complain(
            f"An event could not be stored ({type(error).__name__}), and its sender was asked to post it again. "
            "See `remit db status`."
        )
        return _answer(503, "away", "Events cannot be stored just now. Post it again later.")


def _answer(status: int, outcome: str, detail: str) -> web.Response:
    return web.json_response({"outcome": outcome, "detail": detail}, status=status)


@asynccontextmanager
async def _counting(events: Events) -> AsyncIterator[None]:
    """Writes the numbers of what was refused from time to time, and at the end."""

    ending = asyncio.Event()

    async def keep_writing() -> None:
        while not ending.is_set():
            with suppress(TimeoutError):
                await asyncio.wait_for(ending.wait(), _COUNT_SECONDS)
            # Where the database is away, the numbers are kept and written later.
            with suppress(RemitError, psycopg.Error):
                await events.write_counts()

    writing = asyncio.create_task(keep_writing())
    try:
        yield
    finally:
        ending.set()
        await writing


@asynccontextmanager
async def _told(settings: Settings, url: str) -> AsyncIterator[None]:
    """In the sandbox the company is told where to post; at any other receiver a person registers the address."""
    own = [name for name in ("payments", "mail") if getattr(settings, f"{name}_url") is None]
    if not settings.sandboxed or not own:
        yield
        return
    try:
        async with pretended.control(settings) as control:
            for name in own:
                await control.register_webhook(name, f"{url}/events/{name}")
    except (RemitError, aiohttp.ClientError) as error:
        complain(f"The company does not know where to post events. {error}")
    try:
        yield
    finally:
        with suppress(RemitError, aiohttp.ClientError):
            async with pretended.control(settings) as control:
                for hook in await control.webhooks():
                    if hook["url"].startswith(f"{url}/"):
                        await control.clear_webhooks(hook["service"])


async def _list(as_json: bool) -> None:
    async with opened() as services:
        database = await services.database()
        found = await (await _events(services)).unmatched()
        refused = await database.rows("refused_events")
        if not await listing(database, "events", found, as_json=as_json, refused=refused):
            return
    say(f"{many(len(found), 'event')} that no operation explains. They prove nothing: look at the receiver.")
    if found:
        rows = [
            (
                row["receiver"],
                row["type"],
                quoted(row["reference"] or ""),
                moment(row["at"]),
                (row["closed"] or row["state"] or "not ours by the ledger").lower(),
            )
            for row in found
        ]
        table(("receiver", "event", "reference", "at", "operation"), rows)
    for row in refused:
        say(
            f"{row['receiver']}: {many(row['count'], 'post')} refused ({row['code']}), last {moment(row['last_at'])}."
        )
