"""Before a mandate is granted: a file from a few answers, and what it would do, without anything being done."""

import io
from pathlib import Path

import pytest

from remit.policies import parse_mandate, read_mandate

from .conftest import MANDATE, SECOND, Remit
from .test_mandates import grant

ANSWERS = [
    "outage-0611",
    "The outage kept these customers out for a day: a credit makes up for it.",
    "",
    "outage-0611",
    "30",
    "14",
    "y",
    "credit",
    "10.00 USD",
    "y",
    "annotate",
    "notes",
    "",
    "y",
    "notify",
    "one_time_credit",
    "",
    "",
    "",
]


def answer(monkeypatch: pytest.MonkeyPatch, lines: list[str]) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("\n".join(lines) + "\n"))


def test_a_few_answers_make_a_mandate_that_says_what_is_never_allowed(
    bare: Remit, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The strict reader reads it back: exact amount, order, limits for the whole cohort, and nothing left unsaid."""
    file = tmp_path / "new.yaml"
    answer(monkeypatch, ANSWERS)
    out = bare.done("mandate", "new", str(file))
    assert "Nothing is granted yet" in out
    assert "exactly 10.00 USD" in out
    mandate = parse_mandate(str(file), file.read_bytes())
    assert [(step.name, step.after) for step in mandate.steps] == [
        ("credit", ()),
        ("annotate", ("credit",)),
        ("notify", ("credit",)),
    ]
    assert mandate.steps[2].announces == mandate.steps[0].exactly
    assert [(limit.effect, limit.count) for limit in mandate.limits] == [
        ("credit.issue", 30),
        ("account.annotate", 30),
        ("email.send", 30),
    ]
    assert mandate.limits[0].money is not None
    assert mandate.limits[0].money.amount_minor == 30_000
    assert set(mandate.never) == {"subscription.change", "field:plan", "field:renewal_date"}


def test_a_list_of_subjects_is_its_own_bound(
    bare: Remit, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody counts what is listed: the list's length is offered as the most."""
    file = tmp_path / "new.yaml"
    answer(
        monkeypatch,
        ["p-1", "yes", "", "customer:c-104, customer:c-205", "", "", "y", "", "3.50 USD", *"nn", ""],
    )
    bare.done("mandate", "new", str(file))
    mandate = parse_mandate(str(file), file.read_bytes())
    assert (mandate.who.subjects, mandate.who.at_most) == (("customer:c-104", "customer:c-205"), 2)
    assert (mandate.why, mandate.limits[0].money) == ("yes", mandate.limits[0].money)
    assert mandate.limits[0].money is not None
    assert mandate.limits[0].money.amount_minor == 700


def test_a_file_that_is_there_is_left_as_it_is(bare: Remit, tmp_path: Path) -> None:
    """Nothing is asked, and nothing is overwritten."""
    file = tmp_path / "there.yaml"
    file.write_text("mine")
    said = bare("mandate", "new", str(file))
    assert (said.code, "is there already" in said.errors, file.read_text()) == (1, True, "mine")


def test_an_answer_that_is_no_amount_writes_nothing(
    bare: Remit, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The strict reader refuses it with its line, and there is no half a file."""
    file = tmp_path / "new.yaml"
    answer(monkeypatch, [*ANSWERS[:8], "ten dollars", *"nn", ""])
    said = bare("mandate", "new", str(file))
    assert (said.code, "is no amount" in said.errors, file.exists()) == (1, True, False)


def test_a_trial_says_how_many_are_allowed_held_asked_and_denied(reading: Remit) -> None:
    """On real reads and the real policy: 24 credits ask, 24 notes pass, 24 messages are held; nothing is kept."""
    found = reading.json("mandate", "try", MANDATE, "--token", "support-manager")
    steps = {
        step["step"]: (step["allow"], step["hold"], step["needs_approval"], step["deny"])
        for step in found["steps"]
    }
    assert steps == {"credit": (0, 0, 24, 0), "annotate": (24, 0, 0, 0), "notify": (0, 24, 0, 0)}
    assert (found["subjects"], found["no_return"], found["early"]) == (24, "notify", {})
    assert reading.json("mandate", "list")["mandates"] == []
    assert reading.json("runs")["runs"] == []


def test_a_trial_in_words_names_the_point_of_no_return_and_what_comes_next(reading: Remit) -> None:
    """Who decides, why it asks, what waits, and that nothing was granted."""
    out = reading.done("mandate", "try", MANDATE, "--token", "support-manager")
    for passage in (
        "Point of no return: notify",
        "ask_above_count",
        "decided by 1 of the roles finance_lead",
        "240.00 USD",
        "Nothing was granted",
        "remit mandate grant",
    ):
        assert passage in out, passage


def test_a_trial_warns_of_what_leaves_before_a_person_has_decided(reading: Remit, tmp_path: Path) -> None:
    """A message that waits for nothing could announce a credit that nobody approves."""
    text = Path(MANDATE).read_text()
    loose = text.replace('    announces: "10.00 USD"\n    after: [credit]\n', "")
    assert loose != text
    file = tmp_path / "loose.yaml"
    file.write_text(loose)
    found = reading.json("mandate", "try", str(file), "--token", "support-manager")
    assert found["early"] == {"notify": ["credit"]}
    assert "add `after: [credit]`" in reading("mandate", "try", str(file), "--token", "support-manager").out


def test_a_trial_by_a_role_that_may_not_delegate_is_denied_in_every_step(reading: Remit) -> None:
    """Exit 4 and the reason; the same file tried by somebody else is not denied."""
    said = reading("mandate", "try", MANDATE, "--token", "administrator")
    assert (said.code, "beyond_role_ceiling" in said.out, "stays denied" in said.out) == (4, True, True)


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        (
            'exactly: "10.00 USD"',
            'exactly: "20.01 USD"',
            "20.01 USD each, and support_manager may delegate 20.00 USD",
        ),
        ('total: "300.00 USD"', 'total: "1000.01 USD"', "1,000.01 USD in total"),
        (
            "credit.issue: {count: 30",
            "credit.issue: {count: 101",
            "101 times, and support_manager may delegate 100",
        ),
    ],
)
def test_a_mandate_beyond_the_ceiling_of_the_role_is_not_granted(
    reading: Remit, tmp_path: Path, old: str, new: str, told: str
) -> None:
    """Nobody delegates more than the own role holds: each, in total, and how often."""
    text = Path(MANDATE).read_text().replace('    announces: "10.00 USD"\n', "")
    file = tmp_path / "changed.yaml"
    assert old in text
    file.write_text(text.replace(old, new))
    said = reading("mandate", "grant", str(file), "--token", "support-manager", "--yes")
    assert (said.code, told in said.errors) == (1, True), said
    assert reading.json("mandate", "list")["mandates"] == []


def test_overlapping_purposes_are_pointed_out(reading: Remit) -> None:
    """Customer 104 is in both incidents: whoever grants the second reads that both may credit the same people."""
    grant(reading)
    found = reading.json("mandate", "try", SECOND, "--token", "support-manager")
    assert {row["purpose"] for row in found["overlaps"]} == {"outage-0611"}
    assert "credit.issue" in {row["effect"] for row in found["overlaps"]}
    out = grant(reading, SECOND)
    assert "Another live mandate, outage-0611" in out
    assert reading.json("mandate", "try", MANDATE, "--token", "support-manager")["overlaps"] == [
        {**row, "purpose": "outage-0619", "hash": read_mandate(Path(SECOND)).hash}
        for row in found["overlaps"]
    ]
