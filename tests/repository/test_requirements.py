"""What is installed is fixed to the byte, and where it comes from is the user's own choice."""

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]
LOCK = ROOT / "requirements.lock"
BLOCK = re.compile(
    r"^(?P<name>[a-z0-9-]+)==(?P<version>[^ ;\\]+)[^\n\\]*(?P<hashes>(?:\\\n {4}--hash=\S+ ?)*)$",
    re.MULTILINE,
)
SHA256 = re.compile(r"--hash=sha256:[0-9a-f]{64}\b")


def locked() -> dict[str, re.Match[str]]:
    return {block["name"]: block for block in BLOCK.finditer(LOCK.read_text())}


def declared() -> set[str]:
    """The normalised names of all requirements in pyproject.toml, extras included."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    lines = [
        *project["dependencies"],
        *(line for extra in project["optional-dependencies"].values() for line in extra),
    ]
    return {re.sub(r"[-_.]+", "-", re.split(r"[\[<>=!~ ]", line)[0]).lower() for line in lines}


def test_every_requirement_has_hashes() -> None:
    """Each line of the lock is a comment, or one exact version with the hashes of its files."""
    text = LOCK.read_text()
    rest = BLOCK.sub("", text)
    assert [line for line in rest.splitlines() if line and not line.startswith("#")] == []
    assert len(locked()) > 50
    assert [name for name, block in locked().items() if not SHA256.search(block["hashes"])] == []


def test_the_lock_names_no_index() -> None:
    """Which index or mirror serves the files is decided where they are installed; the hashes hold anywhere."""
    assert (
        re.findall(r"https?:|//|--(?:extra-)?index-url|--find-links|--trusted-host| @ ", LOCK.read_text())
        == []
    )


def test_the_lock_covers_every_declared_requirement() -> None:
    """Run `make lock` after a change of the requirements in pyproject.toml."""
    assert declared() - set(locked()) == set()


def test_the_lock_holds_for_every_supported_python() -> None:
    """One resolution for all: no requirement is left out on a Python that pyproject.toml admits."""
    left_out = [
        name
        for name, block in locked().items()
        if re.search(r"python_(?:full_)?version", block.group().splitlines()[0]) and name in declared()
    ]
    assert left_out == []
