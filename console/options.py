"""Options that several commands share, so that each means the same everywhere."""

from typing import Annotated

import typer

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON; its keys are stable.")]
Token = Annotated[
    str | None,
    typer.Option(
        "--token",
        metavar="FILE",
        help="Whose word this is: a token file, the name of one of HOME/tokens, or - to type it.",
    ),
]
Because = Annotated[
    str, typer.Option("--because", metavar="TEXT", help="The reason, kept with the decision.")
]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask whether I am sure.")]
