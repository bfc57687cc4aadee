"""The `remit` command: every command by name. DESIGN section 12.

Keeps small commands quick: only the module of the command that was called is imported. `remit --help` imports all.
"""

import sys
from collections.abc import Iterable, Sequence
from importlib import import_module
from io import TextIOWrapper

import typer

from remit.console.edge import run

_GROUPS = {
    "mandate": "mandates",
    "token": "tokens",
    "holds": "holds",
    "cases": "cases",
    "policy": "policy",
    "db": "databases",
    "sandbox": "company",
}
"""Commands with commands of their own: `app` of the module."""

_SINGLE = {
    "demo": "demo",
    "run": "runs",
    "runs": "runs",
    "show": "traces",
    "inbox": "inbox",
    "approve": "decisions",
    "reject": "decisions",
    "unapprove": "changes",
    "edit": "changes",
    "notices": "telling",
    "resume": "resume",
    "work": "work",
    "serve": "serve",
    "stop": "orders",
    "freeze": "orders",
    "lift": "orders",
    "status": "status",
    "receivers": "receivers",
    "limits": "limits",
    "catalogue": "catalogue",
}
"""The others: the function of that name."""


def app(names: Iterable[str] = (*_SINGLE, *_GROUPS)) -> typer.Typer:
    """The command with these commands, by default all of them."""
    built = typer.Typer(
        name="remit",
        help="An agent with a built-in control boundary, and a ledger that can say what really happened.",
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
    )
    # Without it, typer would drop the name of an only command.
    built.callback()(_root)
    for name in names:
        module = import_module(f"remit.console.{_SINGLE.get(name) or _GROUPS[name]}")
        if name in _SINGLE:
            built.command(name)(getattr(module, name))
        else:
            built.add_typer(module.app, name=name)
    return built


def _root() -> None:
    """Holds no option: everything is set by REMIT_* variables."""


def command(arguments: Sequence[str]) -> int:
    """Runs one command line and returns its exit code."""
    words = [_text(word) for word in arguments]
    called = words[0] if words else ""
    known = called in _SINGLE or called in _GROUPS
    return run(lambda: app([called]) if known else app(), words)


def _text(word: str) -> str:
    """A word as text: bytes that are none become the replacement character, so that a stop never fails over one."""
    return word.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def main() -> None:
    """The entry point of the distribution."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            # A terminal that cannot show a sign shows its number, and the command goes on.
            stream.reconfigure(errors="backslashreplace")
    sys.exit(command(sys.argv[1:]))


if __name__ == "__main__":
    main()
