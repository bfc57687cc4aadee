"""`remit policy`: whether the engine that gives verdicts gives them, and why one is as it is.

Keeps a lack of an answer apart from a denial on the screen: the one is counted here by its code, the other never.
"""

from typing import Annotated, Any

import typer

from remit.console import explaining, verdicts, viewing
from remit.console.edge import go
from remit.console.exits import Exit
from remit.console.options import AsJson, Token
from remit.console.render import safe
from remit.console.screen import complain, heading, print_json, say
from remit.console.services import Services, opened
from remit.tools.errors import Misconfigured, NoAnswer

app = typer.Typer(no_args_is_help=True, help="The policy engine, and its decisions.")


@app.command()
def check(as_json: AsJson = False) -> None:
    """Ask one known allow and one known deny, and count what got no answer so far. Exit 1 unless both come."""
    go(_check(as_json))


@app.command()
def explain(
    which: Annotated[str, typer.Argument(metavar="OPERATION|KEY", help="Of a key, its newest revision.")],
    token: Token = None,
    as_json: AsJson = False,
) -> None:
    """Say in words why an operation got its verdict, from what was stored when it was judged."""
    go(_explain(which, token, as_json))


async def _check(as_json: bool) -> int:
    async with opened() as services:
        engine = await services.policy()
        if services.settings.engine == "server":
            from remit.policies.revision import require_shipped

            require_shipped()
        failed: NoAnswer | None = None
        try:
            await engine.check()
        except NoAnswer as error:
            failed = error
        silences = await _silences(services)
        document = {
            "engine": services.settings.engine,
            "revision": engine.revision,
            "answers": failed is None,
            "code": failed.code if failed is not None else None,
            "message": str(failed) if failed is not None else None,
            "silences": silences,
        }
        if as_json:
            print_json(document)
        else:
            _tell(document)
            if failed is not None:
                raise failed
    return Exit.DONE if failed is None else Exit.FAULT


async def _silences(services: Services) -> list[dict[str, Any]] | None:
    """By run and code; None where the database is away, since this command has to work at such a time too."""
    try:
        return await (await services.database()).rows("silences", run=None)
    except Misconfigured:
        return None


def _tell(document: dict[str, Any]) -> None:
    if document["answers"]:
        say(
            f"The {document['engine']} engine answers with policy {document['revision']}: a known allow and a known "
            "deny came back."
        )
    if document["silences"] is None:
        complain(
            "The database is away, so how often policy gave no answer cannot be said. Run `remit db up`."
        )
    else:
        say(*(f"In {row['run_id']}: {verdicts.silence(row)}" for row in document["silences"]))


async def _explain(which: str, token: str | None, as_json: bool) -> None:
    async with opened() as services:
        viewer = await viewing.viewer(services, token)
        document = await explaining.explained(services, viewer, which)
        if as_json:
            print_json(document)
            return
        first, *rest = explaining.in_words(document)
        heading(safe(first))
        say(*rest)
