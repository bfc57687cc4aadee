"""A manager's YAML: what it compiles to, and for each mistake the line and what to do."""

import re
from pathlib import Path

import pytest

from remit.policies import in_words, parse_mandate, read_mandate
from remit.policies.data import read_settings
from remit.policies.yaml_nodes import MAX_BYTES
from remit.tools.errors import Refused
from remit.tools.mandates import AskAbove, Limit, Mandate, Money, Step, Who

from .cases import MANDATES, copied, policy_data, with_data

TEXT = """\
mandate: 1
purpose: outage-0611
why: The outage of 11 June.
agent: credit-agent
who: {affected_by: outage-0611, at_most: 30}
valid: {from: 2026-06-11T00:00:00Z, until: 2026-06-30T00:00:00+02:00}
steps:
  - {name: credit, effect: credit.issue, exactly: "10.00 USD"}
  - {name: annotate, effect: account.annotate, fields: [notes], after: [credit]}
  - {name: notify, effect: email.send, template: one_time_credit, promise: one_time_credit, after: [credit]}
never: [subscription.change, {field: renewal_date}]
ask_above: {count: 10, total: "100.00 USD"}
limits:
  credit.issue: {count: 30, total: "300.00 USD"}
  account.annotate: {count: 60}
  email.send: {count: 30}
"""
CREDIT_LINE = '{name: credit, effect: credit.issue, exactly: "10.00 USD"}'
NOTIFY_LINE = "template: one_time_credit, promise: one_time_credit, after: [credit]}"
LIMITS = TEXT[TEXT.index("limits:") :]


MESSAGE = "with the template one_time_credit, which may promise one_time_credit and nothing else"
THRESHOLD = "more than 10 actions or more than 100.00 USD"


def compiled(text: str) -> Mandate:
    return parse_mandate("m.yaml", text.encode())


@pytest.mark.parametrize(
    ("written", "minor"),
    [("500 JPY", 500), ("1.250 KWD", 1250), ("11.85 USD", 1185), ("5.00 JPY", None), ("1.25 KWD", None)],
)
def test_each_currency_has_its_own_digits(tmp_path: Path, written: str, minor: int | None) -> None:
    """(F52) Yen have no cents, dinars a thousand fils: whole minor units, and nothing that needs rounding."""
    data = policy_data()
    data["remit"]["settings"]["currencies"].update({"JPY": 0, "KWD": 3})
    settings = read_settings(with_data(copied(tmp_path), data) / "boundary" / "data.json")
    text = TEXT
    for usual in ("300.00 USD", "100.00 USD", "10.00 USD"):
        text = text.replace(usual, written)
    if minor is None:
        with pytest.raises(Refused, match="digits after the point"):
            parse_mandate("m.yaml", text.encode(), settings=settings)
        return
    mandate = parse_mandate("m.yaml", text.encode(), settings=settings)
    assert mandate.steps[0].exactly == Money(amount_minor=minor, currency=written[-3:])
    assert written in " ".join(in_words(mandate))


def test_the_manager_s_form_compiles_to_the_mandate() -> None:
    """Amounts in minor units, times in seconds, the never-list as plain text."""
    assert compiled(TEXT) == Mandate(
        purpose="outage-0611",
        why="The outage of 11 June.",
        agent="credit-agent",
        who=Who(affected_by="outage-0611", at_most=30),
        valid_from=1_781_136_000,
        valid_until=1_782_770_400,
        steps=(
            Step(name="credit", effect="credit.issue", exactly=Money(amount_minor=1_000, currency="USD")),
            Step(name="annotate", effect="account.annotate", fields=("notes",), after=("credit",)),
            Step(
                name="notify",
                effect="email.send",
                template="one_time_credit",
                promise="one_time_credit",
                after=("credit",),
            ),
        ),
        never=("subscription.change", "field:renewal_date"),
        ask_above=AskAbove(count=10, money=Money(amount_minor=10_000, currency="USD")),
        limits=(
            Limit(effect="credit.issue", count=30, money=Money(amount_minor=30_000, currency="USD")),
            Limit(effect="account.annotate", count=60),
            Limit(effect="email.send", count=30),
        ),
    )


WRONG = [
    # what stands there, what is written instead, the line, what the message says
    ("mandate: 1\n", "", 1, "`mandate` is missing"),
    ("mandate: 1", "mandate: 2", 1, "2 is not from 1 to 1"),
    ("mandate: 1", 'mandate: "1"', 1, "A whole number is expected here, not text"),
    ("why: The", "reason: x\nwhy: The", 3, "`reason` is not known here"),
    ("agent: credit-agent", "agent: credit-agent\nagent: other", 5, "`agent` stands twice"),
    ("purpose: outage-0611", "purpose: Outage 0611", 2, "Outage 0611 is not a purpose"),
    ("purpose: outage-0611", "purpose: 611", 2, "Text is expected here, not a whole number"),
    ("why: The outage of 11 June.", 'why: "  "', 3, "This is empty"),
    ("why: The outage of 11 June.", "why:", 3, "Text is expected here, not nothing"),
    ("agent: credit-agent", "agent: no", 4, "Text is expected here, not yes/no"),
    (", at_most: 30}", "}", 5, "The cohort has no bound"),
    ("at_most: 30", "at_most: 0", 5, "0 is not from 1 to 100000"),
    ("at_most: 30", "at_most: -1", 5, "-1 is not from 1"),
    ("affected_by: outage-0611, ", "", 5, "It must be one of affected_by and subjects"),
    ("affected_by: outage-0611,", "affected_by: x, subjects: [customer:c-1],", 5, "It must be one of"),
    ("affected_by: outage-0611", "subjects: [c-104]", 5, "c-104 is not a subject such as customer:c-104"),
    ("affected_by: outage-0611", "subjects: [customer:c-1, customer:c-1]", 5, "named twice"),
    ("affected_by: outage-0611", "subjects: []", 5, "none, too many or named twice"),
    ("2026-06-11T00:00:00Z", "2026-06-11T00:00:00", 6, "names no time zone"),
    ("2026-06-11T00:00:00Z", "2026-06-11", 6, "names no time zone"),
    ("2026-06-11T00:00:00Z", "tomorrow", 6, "tomorrow is no time"),
    ("2026-06-11T00:00:00Z", "2026-06-11T00:00:00.5Z", 6, "is not a whole second"),
    ("2026-06-11T00:00:00Z", "[2026]", 6, "One value is expected here"),
    ("2026-06-11T00:00:00Z", "2026-07-11T00:00:00Z", 6, "It ends before it begins"),
    ("effect: credit.issue", "effect: credit.give", 8, "credit.give is not an effect"),
    ("name: credit,", "name: Credit,", 8, "Credit is not a name"),
    ('exactly: "10.00 USD"', "exactly: 10.00", 8, "Text is expected here, not a number with a point"),
    ('exactly: "10.00 USD"', "exactly: 10", 8, "Text is expected here, not a whole number"),
    ('exactly: "10.00 USD"', 'exactly: "10.00"', 8, "10.00 is no amount with its currency"),
    ('exactly: "10.00 USD"', 'exactly: "1,000.00 USD"', 8, "is no amount with its currency"),
    ('exactly: "10.00 USD"', 'exactly: "-10.00 USD"', 8, "is no amount with its currency"),
    ('exactly: "10.00 USD"', 'exactly: "10.5 USD"', 8, "USD has 2 digits after the point"),
    ('exactly: "10.00 USD"', 'exactly: "10.000 USD"', 8, "USD has 2 digits after the point"),
    ('exactly: "10.00 USD"', 'exactly: "0.00 USD"', 8, "The amount is nothing or too large"),
    ('exactly: "10.00 USD"', 'exactly: "10.00 CHF"', 8, "CHF is not used here"),
    (NOTIFY_LINE, NOTIFY_LINE.replace("after", 'announces: "9.00 USD", after'), 10, "No step that comes before"),
    ("fields: [notes], after", 'fields: [notes], announces: "10.00 USD", after', 9, "Only a message announces"),
    (', exactly: "10.00 USD"}', "}", 8, "credit.issue needs `exactly`"),
    ("fields: [notes],", "fields: [notes], template: x,", 9, "account.annotate has no `template`"),
    ("fields: [notes]", "fields: [renewal_date]", 9, "renewal_date is not a field of this effect"),
    ("fields: [notes]", "fields: []", 9, "No field is named"),
    ("fields: [notes]", "fields: notes", 9, "A list is expected here"),
    (", promise: one_time_credit", "", 10, "email.send needs `promise`"),
    (NOTIFY_LINE, NOTIFY_LINE.replace("[credit]", "[payment]"), 10, "payment is not an earlier step"),
    (CREDIT_LINE, CREDIT_LINE.replace("}", ", after: [notify]}"), 8, "notify is not an earlier step"),
    ("name: annotate", "name: credit", 9, "The step credit stands twice"),
    ("[subscription.change,", "[subscription.changes,", 11, "subscription.changes is not an effect"),
    ("{field: renewal_date}", "{field: renewaldate}", 11, "renewaldate is not a field of any effect"),
    ("[subscription.change,", "[email.send,", 11, "email.send is wanted by a step and never allowed"),
    ("{field: renewal_date}", "{field: notes}", 11, "field:notes is wanted by a step"),
    ("ask_above: {count: 10", "ask_above: {count: ten", 12, "A whole number is expected here, not text"),
    ('total: "100.00 USD"', 'total: "100.00 EUR"', 12, "No step moves this currency"),
    ("  email.send: {count: 30}\n", "", 14, "email.send has no limit"),
    (LIMITS, "", 1, "`limits` is missing"),
    ("  account.annotate: {count: 60}", "  account.annotate: {}", 15, "`count` is missing"),
    (', total: "300.00 USD"', "", 14, "`total` is missing"),
    ('"300.00 USD"', '"9.99 USD"', 14, "It does not cover one credit"),
    ('"300.00 USD"', '"300.00 EUR"', 14, "It does not cover one credit"),
    ("{count: 60}", '{count: 60, total: "1.00 USD"}', 15, "No money moves here"),
    ("{count: 60}", "{count: 60.0}", 15, "A whole number is expected here, not a number with a point"),
    ("  account.annotate: {count: 60}", "  account.annotate: {count: 1}\n  account.annotate: {count: 60}", 16, "twice"),
    ("  email.send: {count: 30}", "  email.send: {count: 30}\n  subscription.change: {count: 1}", 17, "No step has"),
    ("  email.send: {count: 30}", "  email.send: {count: 30}\n  5: {count: 1}", 17, "Text is expected here"),
    ("who: {", "who: &who {", 5, "Anchors and aliases hide"),
    ("agent: credit-agent", "agent: credit-agent\nx: *a", 5, "Anchors and aliases hide"),
    ("agent: credit-agent", "agent: !agent credit-agent", 4, "Text is expected here, not !agent"),
    ("agent: credit-agent", "agent: [credit-agent", 5, "This is no YAML"),
    ("mandate: 1\n", "mandate: 1\n---\n", 2, "This is no YAML"),
    (TEXT, "", 1, "The file is empty"),
    (TEXT, "- mandate", 1, "Names with values are expected here"),
    (TEXT, "mandate: \x00", 1, "This is no YAML"),
    (TEXT, "#" * (MAX_BYTES + 1), 1, "The file is longer"),
]  # fmt: skip


@pytest.mark.parametrize(("right", "wrong", "line", "message"), WRONG)
def test_each_mistake_names_its_line_and_what_to_do(right: str, wrong: str, line: int, message: str) -> None:
    """`FILE:LINE: what is wrong. What to do.`"""
    assert TEXT.count(right) >= 1
    with pytest.raises(Refused) as refused:
        compiled(TEXT.replace(right, wrong, 1))
    assert re.match(rf"m\.yaml:{line}: .*\. .+\.$", str(refused.value), re.DOTALL), str(refused.value)
    assert message in str(refused.value)
    assert (refused.value.code, refused.value.details["line"]) == ("mandate_invalid", line)


def test_a_file_that_is_no_text_is_refused() -> None:
    """Bytes that are not UTF-8 are not guessed."""
    with pytest.raises(Refused, match=r"m\.yaml:1: The file is not UTF-8"):
        parse_mandate("m.yaml", b"why: \xff")


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    """A wrong path is the user's mistake, told without a traceback."""
    with pytest.raises(Refused, match="cannot be read") as refused:
        read_mandate(tmp_path / "none.yaml")
    assert refused.value.code == "mandate_invalid"


def test_optional_parts_may_be_left_out() -> None:
    """Nothing need be on the never-list, and a mandate may set no threshold of its own."""
    short = compiled(re.sub(r"(?m)^(never|ask_above):.*\n", "", TEXT))
    assert (short.never, short.ask_above) == ((), AskAbove())


def test_subjects_may_be_listed() -> None:
    """A list is a cohort too, as long as its bound."""
    mandate = compiled(TEXT.replace("affected_by: outage-0611", "subjects: [customer:c-104, customer:c-205]"))
    assert mandate.who == Who(subjects=("customer:c-104", "customer:c-205"), at_most=30)


@pytest.mark.parametrize("file", sorted(MANDATES.glob("*.yaml")), ids=lambda file: file.stem)
def test_every_example_compiles(file: Path) -> None:
    """What is handed out to start from is right, and named for its purpose."""
    mandate = read_mandate(file)
    assert file.stem.startswith(mandate.purpose)


def test_the_corrected_example_keeps_the_purpose_and_is_another_mandate() -> None:
    """A correction supersedes under the same purpose, so that nothing is done twice."""
    first, corrected = (read_mandate(MANDATES / f"outage-0611{part}.yaml") for part in ("", "-corrected"))
    assert corrected.purpose == first.purpose
    assert corrected.hash != first.hash
    assert [step.name for step in corrected.steps] == [step.name for step in first.steps]


def test_a_mandate_reads_back_in_plain_words() -> None:
    """Who, whom, what, how much each and in total, in which order, never what, when it asks, until when."""
    assert in_words(compiled(TEXT)) == [
        "credit-agent may act for outage-0611: The outage of 11 June.",
        "For whom: everybody affected by outage-0611, 30 subjects at most.",
        "credit: once per subject, credit.issue, exactly 10.00 USD.",
        "annotate: once per subject, account.annotate, writing only notes, only after credit is completed.",
        f"notify: once per subject, email.send, {MESSAGE}, only after credit is completed.",
        "At most 30 times credit.issue, and 300.00 USD in total, over all runs.",
        "At most 60 times account.annotate, over all runs.",
        "At most 30 times email.send, over all runs.",
        "Never: subscription.change and the field renewal_date, or anything that is not named above.",
        f"A person is asked first where all of credit together, with what is under way, is {THRESHOLD}.",
        "Valid from 2026-06-11 00:00 UTC until 2026-06-29 22:00 UTC, unless revoked earlier.",
    ]


def test_words_say_what_a_short_mandate_leaves_open() -> None:
    """No threshold, no never-list and a cohort of one are said as such."""
    text = re.sub(r"(?m)^(never|ask_above):.*\n", "", TEXT).replace(
        "affected_by: outage-0611, at_most: 30", "subjects: [customer:c-104], at_most: 1"
    )
    words = in_words(compiled(text))
    assert "For whom: customer:c-104, and nobody else." in words
    assert "Never: anything that is not named above." in words
    assert "A person is asked first only where policy says so." in words


def test_a_message_announces_what_a_step_before_it_gives() -> None:
    """An announced amount is compiled, and read back in words."""
    text = TEXT.replace(", after: [credit]}\nnever", ', announces: "10.00 USD", after: [credit]}\nnever')
    mandate = parse_mandate("m.yaml", text.encode())
    assert mandate.step("notify").announces == Money(amount_minor=1_000, currency="USD")
    assert any("naming 10.00 USD" in line for line in in_words(mandate))
