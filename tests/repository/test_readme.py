"""README is run: its walk-through command by command, and its Python against the example that is tested."""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
REMIT = [sys.executable, "-m", "remit.console.main"]


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", README, flags=re.MULTILINE | re.DOTALL)


def walk_through() -> list[tuple[str, int]]:
    """The lines of the block that begins with `remit`, each with the exit code that its comment names."""
    (block,) = [one for one in blocks("sh") if one.startswith("remit ")]
    lines = [line.partition("#") for line in block.splitlines()]
    return [
        (command.strip(), int(named[0]) if (named := re.findall(r"exit (\d)", comment)) else 0)
        for command, _, comment in lines
    ]


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Path]:
    """A working directory as a newcomer has it after `git clone`, as far as the commands look at it."""
    shutil.copytree(ROOT / "mandates", tmp_path / "mandates")
    tmp_path.chmod(0o755)
    yield tmp_path
    run(tmp_path, "remit sandbox down")
    run(tmp_path, "remit db down")


def run(place: Path, command: str) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("REMIT_")}
    words = [*REMIT, *shlex.split(command)[1:]]
    return subprocess.run(
        words, cwd=place, env=environment, capture_output=True, text=True, timeout=120, check=False
    )


def test_the_walk_through_does_what_it_says(place: Path) -> None:
    """Every command of the README's walk-through ends with the exit code that it names, in order."""
    for command, code in walk_through():
        if " ID " in command:
            asked = json.loads(run(place, "remit inbox --json").stdout)
            done = run(place, command.replace(" ID ", f" {asked['approvals'][0]['id']} "))
        else:
            done = run(place, command)
        assert done.returncode == code, f"{command}\n{done.stdout}\n{done.stderr}"


def test_make_targets_that_readme_names_exist() -> None:
    """`make demo`, `make test` and `make check` are the Makefile's own words."""
    named = {word for block in blocks("sh") for word in re.findall(r"^make (\S+)", block, flags=re.MULTILINE)}
    made = set(
        re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), flags=re.MULTILINE)
    )
    assert {"demo", "test", "check"} <= named <= made


def test_the_python_of_readme_is_the_tested_example() -> None:
    """The lines that README shows are those that tests/graph/test_example.py runs."""
    (shown,) = blocks("python")
    source = (ROOT / "tests" / "graph" / "test_example.py").read_text(encoding="utf-8")
    (tested,) = re.findall(r"# --8<-- start\n(.*?)\s*# --8<-- end", source, flags=re.DOTALL)
    indent = len(tested) - len(tested.lstrip())
    assert shown.rstrip() == "\n".join(line[indent:] for line in tested.rstrip().splitlines())


def test_every_folder_has_its_page_and_every_file_its_line() -> None:
    """Each package's README names every module of it."""
    packages = [path.parent for path in ROOT.glob("*/__init__.py")]
    lacking = [
        f"{package.name}/{module.name}"
        for package in packages
        for module in package.glob("*.py")
        if module.name != "__init__.py"
        and module.name not in (package / "README.md").read_text(encoding="utf-8")
    ]
    assert lacking == []
