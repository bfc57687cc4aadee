"""Asking a person before something that cannot be taken back."""

import sys

import typer

from remit.console.edge import Ended
from remit.console.exits import Exit
from remit.console.screen import complain, say


def at_terminal() -> bool:
    """Whether a person can be asked here."""
    return sys.stdin.isatty() and sys.stdout.isatty()


def confirm(question: str, *, yes: bool) -> None:
    """Goes on when `yes` is given or the person at the terminal says so; without a terminal `yes` is needed."""
    if yes:
        return
    if not at_terminal():
        complain(f"{question} There is no terminal to ask at. Say it with --yes.")
        raise Ended(Exit.USAGE)
    if not typer.confirm(question):
        say("Nothing was changed.")
        raise Ended(Exit.FAULT)
