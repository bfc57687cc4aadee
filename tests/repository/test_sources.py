"""The size and the borders of the sources: small functions, whole modules, one hash, no machine and no registry."""

import ast
import re
from collections.abc import Iterator
from typing import TypeGuard

import pytest

from .test_packaging import FOLDERS, ROOT, committed

FUNCTION_LINES = 70
MODULE_LINES = 400

# In halves, since this file is committed too.
HOSTS = [
    ("pypi", "org"),
    ("pythonhosted", "org"),
    ("npmjs", "(?:org|com)"),
    ("proxy.golang", "org"),
    ("crates", "io"),
    ("debian", "org"),
]
HOST = re.compile("|".join(rf"\b{name}\.{end}\b" for name, end in HOSTS))
MACHINE_PATH = re.compile(r"(?<![\w.])/(?:work|farm|root|home|tmp|Users)/")

PYTHON = [name for name in committed() if name.endswith(".py")]
MODULES = [name for name in PYTHON if name.partition("/")[0] in FOLDERS.values()]


def parsed(name: str) -> ast.Module:
    return ast.parse((ROOT / name).read_text(), filename=name)


def is_function(node: ast.AST) -> TypeGuard[ast.FunctionDef | ast.AsyncFunctionDef]:
    return isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)


def functions(name: str) -> Iterator[tuple[str, int]]:
    """Where each function is, and how many lines it has."""
    for node in ast.walk(parsed(name)):
        if is_function(node):
            yield f"{name}:{node.lineno} {node.name}", (node.end_lineno or node.lineno) - node.lineno + 1


def calls(node: ast.AST) -> set[str]:
    """The dotted names of everything that is called inside `node`."""
    return {ast.unparse(inner.func) for inner in ast.walk(node) if isinstance(inner, ast.Call)}


def test_no_function_is_longer_than_a_screen() -> None:
    """70 lines, tests included."""
    assert [where for name in PYTHON for where, lines in functions(name) if lines > FUNCTION_LINES] == []


def test_functions_are_short_as_a_rule() -> None:
    """95 of 100 have at most 40 lines."""
    lines = sorted(count for name in MODULES for _, count in functions(name))
    assert lines[len(lines) * 95 // 100] <= 40


def test_no_module_is_too_long_to_read_at_once() -> None:
    """400 lines; tests may be longer."""
    assert [name for name in MODULES if len((ROOT / name).read_text().splitlines()) > MODULE_LINES] == []


@pytest.mark.parametrize("folder", sorted(FOLDERS.values()))
def test_every_module_says_what_it_holds(folder: str) -> None:
    """Its first lines name the content and the invariant."""
    silent = [
        name for name in MODULES if name.startswith(f"{folder}/") and not ast.get_docstring(parsed(name))
    ]
    assert [name for name in silent if (ROOT / name).read_text().strip()] == []


def test_one_function_computes_the_canonical_hash() -> None:
    """A second serialisation that is hashed would sooner or later disagree with the first.

    The sandbox is the world: it must not use Remit's hashes, and keeps its own.
    """
    found = [
        name
        for name in MODULES
        if not name.startswith("sandbox/")
        for node in ast.walk(parsed(name))
        if isinstance(node, ast.Call) and hashes_json(node)
    ]
    assert found == ["tools/actions.py"]


def hashes_json(call: ast.Call) -> bool:
    """Whether what is handed to a hash is serialised on the spot."""
    hashing = ast.unparse(call.func).startswith("hashlib.") or ast.unparse(call.func).endswith(".update")
    serialised = {name.rpartition(".")[2] for argument in call.args for name in calls(argument)}
    return hashing and bool(serialised & {"dumps", "model_dump_json"})


def test_nothing_committed_names_a_registry_or_a_machine() -> None:
    """Such names are right in one place only, and that place is nobody else's."""
    found = []
    for name in committed():
        try:
            text = (ROOT / name).read_text()
        except UnicodeDecodeError:
            continue
        found += [
            f"{name}: {match.group()}" for match in (HOST.search(text), MACHINE_PATH.search(text)) if match
        ]
    assert found == []


def test_no_test_waits_by_the_clock() -> None:
    """A test waits for a condition; only a bounded polling helper, named for it, may pause."""
    pausing = [
        f"{name}:{node.lineno} {node.name}"
        for name in PYTHON
        if name.startswith("tests/")
        for node in ast.walk(parsed(name))
        if is_function(node)
        and node.name.startswith("test_")
        and calls(node) & {"time.sleep", "asyncio.sleep"}
    ]
    assert pausing == []
