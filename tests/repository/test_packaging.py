"""The distribution holds what the repository holds, and is usable without the repository."""

import os
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
FOLDERS = {
    package.removeprefix("remit."): folder
    for package, folder in PROJECT["tool"]["setuptools"]["package-dir"].items()
}

# Every module, since a data file that is missing shows itself at the latest when it is read at import.
IMPORT_ALL = """
import importlib, pathlib, sys
top = pathlib.Path(sys.argv[1]).resolve()
sys.path.insert(0, str(top))
for file in sorted(top.glob("remit/*/*.py")):
    name = f"remit.{file.parent.name}.{file.stem}".removesuffix(".__init__")
    if not name.endswith(".__main__"):
        found = importlib.import_module(name).__file__
        assert pathlib.Path(found).resolve() == file, f"{name} came from {found}"
        print(name)
"""


def committed(root: Path = ROOT) -> list[str]:
    """What git has, or would have after `git add .`."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=root, check=True, capture_output=True, text=True).stdout
    return sorted(name for name in set(listed.splitlines()) if (root / name).is_file())


def is_packaged(name: str) -> bool:
    """Everything of a package but the page that explains its folder to readers."""
    folder, _, rest = name.partition("/")
    return folder in FOLDERS.values() and rest != "README.md"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    """Built from a copy, so that neither left-overs get into it nor the build into the tree."""
    source = tmp_path_factory.mktemp("source")
    for name in committed():
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / name, source / name)
    target = tmp_path_factory.mktemp("wheel")
    command = [
        sys.executable,
        "-m",
        "build",
        "--wheel",
        "--no-isolation",
        "--outdir",
        str(target),
        str(source),
    ]
    built = subprocess.run(command, check=False, capture_output=True, text=True)
    assert built.returncode == 0, built.stdout + built.stderr
    (file,) = target.glob("*.whl")
    return zipfile.ZipFile(file)


def test_packages_are_the_folders_with_an_init() -> None:
    """A new folder that pyproject.toml does not name would be missing for everybody but its author."""
    found = {file.parent.name for file in ROOT.glob("*/__init__.py")}
    assert set(FOLDERS.values()) == found
    assert {name: name for name in found} == FOLDERS
    assert set(PROJECT["tool"]["setuptools"]["packages"]) == {f"remit.{name}" for name in found}
    assert set(PROJECT["tool"]["importlinter"]["root_packages"]) == {f"remit.{name}" for name in found}


def test_every_package_is_typed_and_explained() -> None:
    """Type checkers look for the marker; readers look for one page per folder."""
    for name in FOLDERS.values():
        assert (ROOT / name / "py.typed").is_file(), name
        assert (ROOT / name / "README.md").is_file(), name


def test_the_wheel_holds_every_file_of_the_packages(wheel: zipfile.ZipFile) -> None:
    """SQL, Rego, bundles and scripts travel too, and nothing else does."""
    expected = {f"remit/{name}" for name in committed() if is_packaged(name)}
    found = {name for name in wheel.namelist() if ".dist-info/" not in name}
    assert found == expected


def test_the_wheel_imports_without_the_repository(wheel: zipfile.ZipFile, tmp_path: Path) -> None:
    """Unpacked elsewhere, every module of it is found there and nowhere else."""
    wheel.extractall(tmp_path / "unpacked")
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    ran = subprocess.run(
        [sys.executable, "-c", IMPORT_ALL, str(tmp_path / "unpacked")],
        cwd=tmp_path,
        env=environment,
        check=False,
        capture_output=True,
        text=True,
    )
    assert ran.returncode == 0, ran.stderr
    assert {f"remit.{name}" for name in FOLDERS.values()} <= set(ran.stdout.split())


def test_the_wheel_says_licence_and_command(wheel: zipfile.ZipFile) -> None:
    """Whoever gets only the wheel gets its terms with it, and the command `remit`."""
    info = f"remit-{PROJECT['project']['version']}.dist-info"
    assert "License-Expression: Apache-2.0" in wheel.read(f"{info}/METADATA").decode()
    assert wheel.read(f"{info}/licenses/LICENSE") == (ROOT / "LICENSE").read_bytes()
    assert "remit = remit.console.main:main" in wheel.read(f"{info}/entry_points.txt").decode()
