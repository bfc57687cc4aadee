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


def ours() -> list[str]:
    """The modules but the sandbox's: it is the world, must not use Remit's hashes, and keeps its own."""
    return [name for name in MODULES if not name.startswith("sandbox/")]


def test_one_function_computes_the_canonical_hash() -> None:
    """A second serialisation that is hashed would sooner or later disagree with the first (F65)."""
    found = [
        name
        for name in ours()
        for node in ast.walk(parsed(name))
        if isinstance(node, ast.Call) and hashes_json(node)
    ]
    assert found == ["tools/actions.py"]


def test_one_module_writes_the_canonical_form() -> None:
    """Nobody else imports the library of RFC 8785, and nobody sorts keys to get something like it (F65).

    Build and screen sort what people read; nothing is hashed, signed or compared there.
    """
    using = [name for name in ours() if imports(name, "rfc8785")]
    sorting = [name for name in ours() for node in ast.walk(parsed(name)) if sorts_keys(node)]
    assert using == ["tools/actions.py"]
    assert set(sorting) == {"console/render.py", "policies/build.py"}


def test_one_function_reads_the_json_of_others() -> None:
    """Duplicate names and NaN are accepted by the standard reader, so a second reader would accept them (F64).

    Besides, only our own files are read with it, and what `json.dumps` in this process has just written.
    """
    reading = {name for name in ours() if calls(parsed(name)) & {"json.loads", "json.load"}}
    assert reading <= {
        "console/places.py",  # files of this installation
        "graph/intake.py",  # what `checked_json` wrote
        "policies/build.py",  # what opa printed
        "policies/engines.py",  # the question that was just checked
        "policies/revision.py",  # our own bundle
        "tools/actions.py",
    }


def imports(name: str, module: str) -> bool:
    return any(
        module in (getattr(node, "module", None), *(alias.name for alias in node.names))
        for node in ast.walk(parsed(name))
        if isinstance(node, ast.Import | ast.ImportFrom)
    )


def sorts_keys(node: ast.AST) -> bool:
    return isinstance(node, ast.keyword) and node.arg == "sort_keys"


def hashes_json(call: ast.Call) -> bool:
    """Whether what is handed to a hash is serialised on the spot."""
    hashing = ast.unparse(call.func).startswith("hashlib.") or ast.unparse(call.func).endswith(".update")
    serialised = {name.rpartition(".")[2] for argument in call.args for name in calls(argument)}
    return hashing and bool(serialised & {"canonical", "dumps", "model_dump_json"})


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
