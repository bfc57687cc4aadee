"""Which policy this is: one revision over its Rego, its data and its capabilities, for both engines.

Keeps both engines at one policy: a module that was not made from the Rego beside it does not start.
"""

import gzip
import hashlib
import io
import json
import tarfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

from remit.policies.data import Settings, read_settings
from remit.tools.actions import Strict
from remit.tools.errors import Misconfigured

HERE = Path(__file__).parent
ENTRYPOINT = "remit/boundary/decisions"
MODULE, PLAIN, RECORD = "boundary.wasm", "plain.tar.gz", "revision.json"


class Record(Strict):
    """What `make policies` wrote about the artefacts: the revision, SHA-256 of the Rego and of the module."""

    revision: str
    rego: str
    wasm: str


@dataclass(frozen=True)
class Policy:
    """One usable policy: the compiled module and the data that belong to one revision."""

    revision: str
    module: bytes
    data: bytes
    settings: Settings


def rego_files(folder: Path) -> list[Path]:
    """The Rego that decides, without its tests, sorted by name."""
    return sorted(file for file in (folder / "boundary").glob("*.rego") if not file.stem.endswith("_test"))


def rego_hash(folder: Path) -> str:
    """SHA-256 over what the compiled module is made of: the Rego and the capabilities."""
    return _digest([*rego_files(folder), folder / "boundary" / "capabilities.json"])


def revision_of(folder: Path) -> str:
    """`r1-` and 16 hexadecimal digits over Rego, capabilities and data: any change of a limit changes it."""
    names = ("capabilities.json", "data.json")
    return "r1-" + _digest([*rego_files(folder), *(folder / "boundary" / name for name in names)])[:16]


def load_policy(folder: Path = HERE) -> Policy:
    """The policy in `folder` (`boundary/` and `bundle/`). Raises Misconfigured when its parts do not fit."""
    try:
        record = Record.model_validate_json((folder / "bundle" / RECORD).read_bytes())
        module = (folder / "bundle" / MODULE).read_bytes()
        fits = record.rego == rego_hash(folder) and record.wasm == hashlib.sha256(module).hexdigest()
    except (OSError, ValidationError) as error:
        raise Misconfigured(
            f"The compiled policy cannot be read: {error}. Run make policies.", code="policy_bundle"
        ) from error
    if not fits:
        message = "The compiled policy was not made from the Rego beside it. Run make policies."
        raise Misconfigured(message, code="policy_bundle")
    data = folder / "boundary" / "data.json"
    return Policy(revision_of(folder), module, data.read_bytes(), read_settings(data))


def shipped_revision(folder: Path = HERE) -> str:
    """The revision of the plain bundle beside the policy. Raises Misconfigured where it is none or cannot be read."""
    try:
        with tarfile.open(folder / "bundle" / PLAIN) as tar:
            manifest = tar.extractfile(".manifest")
            assert manifest is not None, "it is a file, or KeyError was raised"
            return str(json.loads(manifest.read())["revision"])
    except (OSError, EOFError, tarfile.TarError, ValueError, KeyError, TypeError) as error:
        raise Misconfigured(
            f"The bundle for a server cannot be read: {type(error).__name__}. "
            "Run `python -m remit.policies.build`.",
            code="policy_bundle",
        ) from error


def require_shipped(folder: Path = HERE) -> None:
    """Raises Misconfigured unless the plain bundle is of the policy beside it: a server decides by what it is given."""
    shipped, expected = shipped_revision(folder), revision_of(folder)
    if shipped != expected:
        raise Misconfigured(
            f"The bundle for a server is of revision {shipped}, and the policy beside it of {expected}. "
            "Run `python -m remit.policies.build`, then give the server the new bundle.",
            code="policy_bundle",
        )


def plain_bundle(folder: Path) -> bytes:
    """The bundle for an OPA server: Rego, data and a manifest with the revision; always the same content."""
    manifest = {"revision": revision_of(folder), "roots": ["remit"]}
    members = [(".manifest", json.dumps(manifest).encode())]
    members += [(f"boundary/{file.name}", file.read_bytes()) for file in rego_files(folder)]
    members += [("data.json", (folder / "boundary" / "data.json").read_bytes())]
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        for name, content in members:
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(content), 0o644
            tar.addfile(entry, io.BytesIO(content))
    return _compressed(archive.getvalue())


def _compressed(content: bytes) -> bytes:
    packed = io.BytesIO()
    with gzip.GzipFile(filename="", fileobj=packed, mode="wb", mtime=0) as file:
        file.write(content)
    return packed.getvalue()


def _digest(files: Iterable[Path]) -> str:
    digest = hashlib.sha256()
    for file in files:
        content = file.read_bytes()
        digest.update(f"{file.name}\0{len(content)}\0".encode())
        digest.update(content)
    return digest.hexdigest()
