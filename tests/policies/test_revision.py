"""One revision for source and artefacts: what does not fit does not start, and a changed limit needs no compiler."""

import gzip
import io
import json
import re
import subprocess
import tarfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from remit.policies import EmbeddedEngine, load_policy
from remit.policies.build import build, check, main
from remit.policies.revision import (
    HERE,
    PLAIN,
    RECORD,
    plain_bundle,
    require_shipped,
    revision_of,
    shipped_revision,
)
from remit.tools.errors import Misconfigured
from remit.tools.states import Verdict

from .cases import CREDIT, action, policy_data, question, with_data


def add_line(file: Path) -> None:
    file.write_text(file.read_text() + "\n# another line\n")


def flip_bit(file: Path) -> None:
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(content)


UNUSABLE: Mapping[str, Callable[[Path], object]] = {
    "a changed rule": lambda folder: add_line(folder / "boundary" / "money.rego"),
    "a new rule file": lambda folder: (folder / "boundary" / "more.rego").write_text(
        "package remit.boundary\n"
    ),
    "a missing rule file": lambda folder: (folder / "boundary" / "money.rego").unlink(),
    "other capabilities": lambda folder: add_line(folder / "boundary" / "capabilities.json"),
    "another module": lambda folder: flip_bit(folder / "bundle" / "boundary.wasm"),
    "no module": lambda folder: (folder / "bundle" / "boundary.wasm").unlink(),
    "no record": lambda folder: (folder / "bundle" / RECORD).unlink(),
    "a record of another form": lambda folder: (folder / "bundle" / RECORD).write_text(
        '{"revision": "r1-0"}'
    ),
}


@pytest.mark.parametrize("case", UNUSABLE)
def test_a_module_that_does_not_belong_to_the_rego_does_not_start(policy_folder: Path, case: str) -> None:
    """Whatever was changed by hand on one side only, the start says `Run make policies`."""
    UNUSABLE[case](policy_folder)
    with pytest.raises(Misconfigured, match=r"Run make policies\.$") as refused:
        EmbeddedEngine(policy_folder)
    assert refused.value.code == "policy_bundle"


def test_a_changed_test_of_the_rego_changes_nothing(policy_folder: Path) -> None:
    """Tests decide nothing, so they are no part of the revision."""
    before = revision_of(policy_folder)
    add_line(policy_folder / "boundary" / "money_test.rego")
    assert load_policy(policy_folder).revision == before


async def test_a_changed_limit_is_in_force_without_a_compiler_and_has_a_revision_of_its_own(
    policy_folder: Path,
) -> None:
    """Data is read beside the module: a lower ceiling denies at once, under another revision."""
    before = revision_of(policy_folder)
    data = policy_data()
    data["remit"]["settings"]["roles"]["support_manager"]["credit.issue"]["each"]["USD"] = 999
    engine = EmbeddedEngine(with_data(policy_folder, data))
    answer = await engine.ask(question(action(CREDIT)))
    assert answer.decisions[0].verdict is Verdict.DENY
    assert answer.revision == engine.revision != before


def effect(name: str, **values: Any) -> Callable[[Any], None]:
    return lambda settings: settings["effects"][name].update(values)


def policy_limit(**values: Any) -> Any:
    """One limit of the policy's data, right unless `values` say otherwise."""
    most = {"count": None, "amount_minor": None, "currency": None}
    return {"scope": "effect", "window": "day", **most, **values}


WRONG_DATA: Mapping[str, Callable[[Any], object]] = {
    "an unknown field": effect("credit.issue", holdseconds=5),
    "a hold as text": effect("email.send", hold_seconds="5"),
    "nobody may approve": effect("credit.issue", approvers=[]),
    "an approver that is no role": effect("credit.issue", approvers=["nobody"]),
    "a misspelled role that may release": effect("email.send", release_by=["suport_manager"]),
    "a misspelled role in a quorum": effect("credit.issue", quorum_of={"finance_led": 1}),
    "who may end a window and approves nothing": effect("email.send", release_by=["administrator"]),
    "a quorum of none": effect("credit.issue", quorum=0),
    "a quorum of a role that is not asked": effect("credit.issue", quorum_of={"support_manager": 1}),
    "a quorum of roles that is more than the quorum": effect("credit.issue", quorum_of={"finance_lead": 2}),
    "an administrator who approves": effect("credit.issue", approvers=["administrator"]),
    "an escalation to administrators": effect(
        "credit.issue", on_expiry={"approvers": ["administrator"], "quorum": 1, "decide_within": 60}
    ),
    "an escalation without a time": effect(
        "credit.issue", on_expiry={"approvers": ["finance_lead"], "quorum": 1, "decide_within": 0}
    ),
    "an unbounded bounded effect": effect("credit.issue", bounds=None),
    "another autonomy": effect("credit.issue", autonomy="full"),
    "money without a total": effect("credit.issue", volume=[policy_limit(count=1)]),
    "a limit of nothing": effect("credit.issue", auto_budget=[policy_limit()]),
    "an amount without its currency": effect("credit.issue", auto_budget=[policy_limit(amount_minor=1)]),
    "an amount where no money moves": effect(
        "email.send", auto_budget=[policy_limit(amount_minor=1, currency="USD")]
    ),
    "the same limit twice": effect("email.send", volume=[policy_limit(count=1), policy_limit(count=2)]),
    "two limits of one subject": effect(
        "credit.issue", per_subject=[{"count": n, "amount_minor": None, "currency": None} for n in (1, 2)]
    ),
    "no limit at all": effect("email.send", volume=[]),
    "another scope": effect("email.send", volume=[policy_limit(count=1, scope="subject")]),
    "another window": effect("email.send", volume=[policy_limit(count=1, window="week")]),
    "an amount beyond the bound": effect(
        "credit.issue", volume=[policy_limit(amount_minor=10**12 + 1, currency="USD")]
    ),
    "an automatic budget of an autonomous effect": effect(
        "account.annotate", auto_budget=[policy_limit(count=1)]
    ),
    "a cell that denies nothing": lambda settings: settings["matrix"]["reversible"].pop("high"),
    "a missing row": lambda settings: settings["matrix"].pop("irreversible"),
    "an order upside down": lambda settings: settings["rows"].reverse(),
    "a role for an effect that is not listed": lambda settings: settings["roles"]["administrator"].update(
        {"account.close": {"count": 1, "each": {}, "total": {}}}
    ),
    "a currency with other digits": lambda settings: settings["currencies"].update({"USD": 3}),
    "yen with cents": lambda settings: settings["currencies"].update({"JPY": 2}),
    "dinars with cents": lambda settings: settings["currencies"].update({"KWD": 2}),
}


@pytest.mark.parametrize("case", WRONG_DATA)
def test_incomplete_policy_data_does_not_start(policy_folder: Path, case: str) -> None:
    """(F12) A slip in the data, of a role too, is found at the start, with its place, and never as a decision."""
    data = policy_data()
    WRONG_DATA[case](data["remit"]["settings"])
    with pytest.raises(Misconfigured, match=r"^data\.json: .*Correct the policy data\.$") as refused:
        EmbeddedEngine(with_data(policy_folder, data))
    assert refused.value.code == "policy_data"


def test_the_committed_artefacts_are_those_of_the_committed_source(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Bundle, record and module belong to the Rego and the data beside them."""
    assert main(["--check"]) == 0
    assert re.fullmatch(r"policy revision r1-[0-9a-f]{16}\n", capsys.readouterr().out)


def test_the_plain_bundle_holds_the_rego_the_data_and_the_revision() -> None:
    """What a server loads is what was hashed, without the tests."""
    with tarfile.open(fileobj=io.BytesIO(gzip.decompress((HERE / "bundle" / PLAIN).read_bytes()))) as tar:
        names = tar.getnames()
        manifest = json.loads(tar.extractfile(".manifest").read())  # type: ignore[union-attr]  # it is there
    assert manifest == {"revision": revision_of(HERE), "roots": ["remit"]}
    assert "boundary/decisions.rego" in names
    assert not [name for name in names if "_test" in name]


def test_the_plain_bundle_is_the_same_every_time() -> None:
    """No clock, owner or folder is in it."""
    assert plain_bundle(HERE) == plain_bundle(HERE)


def test_a_rebuild_after_a_changed_limit_needs_no_compiler(policy_folder: Path) -> None:
    """Plain bundle and record follow the data; the module stays."""
    data = policy_data()
    data["remit"]["settings"]["effects"]["email.send"]["hold_seconds"] = 6
    with_data(policy_folder, data)
    with pytest.raises(Misconfigured, match=r"revision\.json, bundle/plain\.tar\.gz"):
        check(policy_folder, None)
    build(policy_folder, None)
    check(policy_folder, None)


def test_a_rebuild_after_a_changed_rule_needs_the_compiler(policy_folder: Path) -> None:
    """Without OPA the module cannot follow the Rego, so nothing is recorded."""
    add_line(policy_folder / "boundary" / "money.rego")
    with pytest.raises(Misconfigured, match="Give --opa PATH"):
        build(policy_folder, None)


def test_a_rebuild_never_records_a_module_that_something_else_made(policy_folder: Path) -> None:
    """A module of unknown origin stays refused."""
    flip_bit(policy_folder / "bundle" / "boundary.wasm")
    with pytest.raises(Misconfigured, match="Give --opa PATH"):
        build(policy_folder, None)


@pytest.mark.parametrize(
    ("line", "what"),
    [
        ("now := time.now_ns()", "undefined function time.now_ns"),
        ("answer := http.send({})", "undefined function http.send"),
        ("typo := input.context.revokd", "undefined ref"),
        ("unused := 1  ", "Not formatted"),
        ("untested if input.context.now > 1", "No test reaches money.rego"),
    ],
)
def test_rego_that_cannot_run_everywhere_is_not_built(
    opa: str, policy_folder: Path, line: str, what: str
) -> None:
    """Built-ins that only the server has, references beside the schema, and rules without a test stop the build."""
    file = policy_folder / "boundary" / "money.rego"
    file.write_text(f"{file.read_text()}\n{line}\n")
    with pytest.raises(Misconfigured, match=what):
        build(policy_folder, Path(opa))


def test_opa_that_is_not_there_is_said(policy_folder: Path) -> None:
    """A wrong path is a setting to correct."""
    with pytest.raises(Misconfigured, match="Give the path of an opa binary"):
        build(policy_folder, policy_folder / "opa")


def test_the_metadata_names_the_entrypoint(opa: str) -> None:
    """The one entrypoint is marked as such in the source."""
    inspected = subprocess.run(
        [opa, "inspect", "-a", "-f", "json", HERE / "boundary"], capture_output=True, check=True
    )
    marked = [
        one["path"]
        for one in json.loads(inspected.stdout)["annotations"]
        if one["annotations"].get("entrypoint")
    ]
    assert [[part["value"] for part in path] for path in marked] == [
        ["data", "remit", "boundary", "decisions"]
    ]


def with_bundle(folder: Path, content: bytes) -> Path:
    (folder / "bundle" / PLAIN).write_bytes(content)
    return folder


def test_a_bundle_of_another_revision_is_not_given_to_a_server(policy_folder: Path) -> None:
    """Data that changed without a fresh bundle: `remit policy check` says what to do, before a server is asked."""
    require_shipped(policy_folder)
    data = policy_data()
    data["remit"]["settings"]["effects"]["email.send"]["hold_seconds"] = 6
    with_data(policy_folder, data)
    with pytest.raises(Misconfigured, match=r"Run `python -m remit\.policies\.build`, then give the server"):
        require_shipped(policy_folder)
    build(policy_folder, None)
    require_shipped(policy_folder)


@pytest.mark.parametrize(
    "content",
    [b"", b"no archive", plain_bundle(HERE)[:1_000], gzip.compress(b"no archive")],
    ids=["empty", "no archive", "half of it", "something else"],
)
def test_a_bundle_that_cannot_be_read_is_said(policy_folder: Path, content: bytes) -> None:
    """Half a download is no bundle."""
    with pytest.raises(Misconfigured, match=r"Run `python -m remit\.policies\.build`\.$"):
        shipped_revision(with_bundle(policy_folder, content))


async def test_who_is_asked_of_which_role_and_what_happens_on_expiry_is_policys_data(
    policy_folder: Path,
) -> None:
    """A quorum of roles and an escalation are obligations of the decision, from the data alone."""
    data = policy_data()
    later = {"approvers": ["support_manager"], "quorum": 1, "decide_within": 600}
    roles = {"finance_lead": 1, "support_manager": 1}
    data["remit"]["settings"]["effects"]["credit.issue"].update(
        approvers=list(roles),
        quorum=2,
        quorum_of=roles,
        on_expiry=later,
        autonomy="supervised",
        bounds=None,
        auto_budget=[],
    )
    engine = EmbeddedEngine(with_data(policy_folder, data))
    (decision,) = (await engine.ask(question(action(CREDIT)))).decisions
    assert (decision.verdict, decision.obligations.quorum_of) == (Verdict.NEEDS_APPROVAL, roles)
    assert decision.obligations.on_expiry is not None
    assert decision.obligations.on_expiry.model_dump(mode="json") == later
