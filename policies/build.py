"""`python -m remit.policies.build --opa PATH [--check]`: check, test and build the policy.

Keeps one source for two engines. Without `--opa` only the plain bundle and the record are made, enough after
a change of the policy's data; a change of the Rego needs OPA's own compiler.
"""

import argparse
import filecmp
import gzip
import hashlib
import json
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Sequence
from pathlib import Path

from remit.policies.data import read_settings
from remit.policies.revision import (
    ENTRYPOINT,
    HERE,
    MODULE,
    PLAIN,
    RECORD,
    Record,
    plain_bundle,
    rego_files,
    rego_hash,
    revision_of,
)
from remit.tools.actions import Json
from remit.tools.errors import Misconfigured, RemitError
from remit.tools.mandates import Mandate
from remit.tools.questions import Question

_SECONDS = 120
_SHOWN = 4_000
"""Characters of what opa says: a coverage report has thousands of lines, and what failed stands at its end."""

_BUILTINS = """
    abs and array.concat array.slice assign ceil concat contains count div endswith eq equal floor format_int gt gte
    indexof internal.member_2 internal.member_3 internal.template_string intersection is_array is_boolean is_null
    is_number is_object is_set is_string lower lt lte max min minus mul neq numbers.range object.filter object.get
    object.keys object.remove object.union object.union_n or plus rem replace round set_diff sort split startswith
    substring sum to_number trim type_name union upper
"""
BUILTINS = frozenset(_BUILTINS.split())
"""Pure, and native to the compiled form; time, units, crypto, http and schemas fail at the check."""

_FEATURES = ("keywords_in_refs", "rego_v1", "template_strings")


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit code 0 when the artefacts are made (with --check: are those that are committed), else 1."""
    parser = argparse.ArgumentParser(prog="python -m remit.policies.build", description=__doc__)
    parser.add_argument(
        "--opa", type=Path, help="the opa binary; without it only data and record are rebuilt"
    )
    parser.add_argument(
        "--check", action="store_true", help="compare with what is committed and change nothing"
    )
    options = parser.parse_args(arguments)
    try:
        if options.check:
            check(HERE, options.opa)
        else:
            build(HERE, options.opa)
    except RemitError as error:
        print(error, file=sys.stderr)
        return 1
    print(f"policy revision {revision_of(HERE)}")
    return 0


def build(folder: Path, opa: Path | None) -> None:
    """Write `bundle/`, capabilities and schema below `folder`. Raises Misconfigured with what to correct."""
    read_settings(folder / "boundary" / "data.json")
    bundle = folder / "bundle"
    bundle.mkdir(exist_ok=True)
    if opa is not None:
        _generate(folder, opa)
        _judge(folder, opa)
        (bundle / MODULE).write_bytes(_compile(folder, opa))
    else:
        _same_module(folder)
    record = Record(revision=revision_of(folder), rego=rego_hash(folder), wasm=_module_hash(folder))
    (bundle / PLAIN).write_bytes(plain_bundle(folder))
    (bundle / RECORD).write_text(record.model_dump_json(indent=2) + "\n")


def check(folder: Path, opa: Path | None) -> None:
    """Build in a temporary folder and compare. Raises Misconfigured, which names the files that differ."""
    with tempfile.TemporaryDirectory() as scratch:
        fresh = Path(scratch)
        for part in ("boundary", "bundle", "server"):
            shutil.copytree(folder / part, fresh / part)
        build(fresh, opa)
        made = (
            "boundary/capabilities.json",
            "boundary/schema.json",
            *(f"bundle/{one}" for one in (MODULE, RECORD)),
        )
        different = [name for name in made if not filecmp.cmp(folder / name, fresh / name, shallow=False)]
        if _unpacked(folder) != _unpacked(fresh):
            different.append(f"bundle/{PLAIN}")
    if different:
        names = ", ".join(different)
        message = f"Not what the policy's source makes: {names}. Run make policies and commit the result."
        raise Misconfigured(message, code="policy_bundle")


def _generate(folder: Path, opa: Path) -> None:
    """What the check needs besides the Rego: the built-ins that are allowed, and the shape of the input."""
    current = json.loads(_run(opa, "capabilities", "--current"))
    kept = [
        {key: builtin[key] for key in ("name", "infix", "decl") if key in builtin}
        for builtin in current["builtins"]
        if builtin["name"] in BUILTINS
    ]
    _write(folder / "boundary" / "capabilities.json", {"builtins": kept, "features": list(_FEATURES)})
    _write(folder / "boundary" / "schema.json", question_schema())


def question_schema() -> Json:
    """The JSON schema of the input, the mandate included: OPA checks each reference of the Rego by it."""
    schema, mandate = Question.model_json_schema(), Mandate.model_json_schema()
    definitions = schema["$defs"]
    definitions |= mandate.pop("$defs")
    definitions["Context"]["properties"]["mandate"] = {"$ref": "#/$defs/Mandate"}
    definitions["Mandate"] = mandate
    return schema


def _judge(folder: Path, opa: Path) -> None:
    boundary, server = folder / "boundary", folder / "server"
    if unformatted := _run(opa, "fmt", "--list", str(boundary), str(server)).split():
        raise Misconfigured(
            f"Not formatted: {', '.join(unformatted)}. Run opa fmt -w on them.", code="policy_source"
        )
    with tempfile.TemporaryDirectory() as scratch:
        source = _source(folder, Path(scratch))
        limits = (
            "--capabilities",
            str(boundary / "capabilities.json"),
            "--schema",
            str(boundary / "schema.json"),
        )
        _run(opa, "check", "--strict", *limits, "--bundle", str(source))
    for part in (boundary, server):
        _run(opa, "check", "--strict", "--bundle", str(part))
        _run(opa, "test", "--bundle", str(part))
        _covered(json.loads(_run(opa, "test", "--bundle", "--coverage", str(part))))


def _covered(report: Json) -> None:
    # opa's own threshold rounds to whole percents, and would let a rule without a test pass.
    untested = [
        f"{Path(file).name}:{span['start']['row']}"
        for file, found in report["files"].items()
        for span in found.get("not_covered", [])
    ]
    if untested:
        message = f"No test reaches {', '.join(untested)}. Write one, or remove the rule."
        raise Misconfigured(message, code="policy_source")


def _compile(folder: Path, opa: Path) -> bytes:
    with tempfile.TemporaryDirectory() as scratch:
        _source(folder, Path(scratch))
        capabilities = ("--capabilities", str(folder.resolve() / "boundary" / "capabilities.json"))
        # From a relative path: the module names its source files, and a reproducible one names no folder of this build.
        arguments = (
            "build",
            "--bundle",
            "source",
            "-t",
            "wasm",
            "-e",
            ENTRYPOINT,
            *capabilities,
            "-o",
            "made.tar.gz",
        )
        _run(opa, *arguments, cwd=Path(scratch))
        target = Path(scratch) / "made.tar.gz"
        with tarfile.open(target) as tar:
            module = tar.extractfile("/policy.wasm")
            if module is None:
                raise Misconfigured("opa built no module. Use OPA 1.22.3 or later.", code="policy_source")
            return module.read()


def _source(folder: Path, scratch: Path) -> Path:
    """The Rego alone: the module takes its data at run time, so that a changed limit needs no compiler."""
    source = scratch / "source"
    source.mkdir()
    for file in rego_files(folder):
        shutil.copy(file, source / file.name)
    _write(source / ".manifest", {"roots": ["remit/boundary"]})
    return source


def _unpacked(folder: Path) -> bytes:
    """What the plain bundle holds: the bytes of zlib's output differ between its versions, what is in it does not."""
    return gzip.decompress((folder / "bundle" / PLAIN).read_bytes())


def _module_hash(folder: Path) -> str:
    return hashlib.sha256((folder / "bundle" / MODULE).read_bytes()).hexdigest()


def _same_module(folder: Path) -> None:
    record = Record.model_validate_json((folder / "bundle" / RECORD).read_bytes())
    if (record.rego, record.wasm) != (rego_hash(folder), _module_hash(folder)):
        message = "The Rego or its module changed, which only OPA can compile. Give --opa PATH."
        raise Misconfigured(message, code="policy_source")


def _run(opa: Path, *arguments: str, cwd: Path | None = None) -> str:
    program = shutil.which(opa)
    if program is None:
        raise Misconfigured(f"{opa} is no program. Give the path of an opa binary.", code="policy_source")
    command = [str(Path(program).resolve()), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS, check=False, cwd=cwd)
    if done.returncode != 0:
        shown = f"{done.stdout[-_SHOWN:]}{done.stderr[-_SHOWN:]}"
        message = f"opa {arguments[0]} failed:\n{shown}\nCorrect the policy and run it again."
        raise Misconfigured(message, code="policy_source")
    return done.stdout


def _write(file: Path, document: Json) -> None:
    file.write_text(json.dumps(document, indent=2, sort_keys=True) + "\n")


if __name__ == "__main__":
    sys.exit(main())
