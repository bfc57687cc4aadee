"""What people see: other people's text is quoted and cannot act on the screen."""

import unicodedata
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remit.console.render import amounts, many, moment, money, quoted, safe, span, subject_of
from remit.console.screen import complain, print_json, say, table

ESCAPE, BELL, OVERRIDE, ZERO_WIDTH, FILLER = "\x1b", "\x07", "\u202e", "\u200b", "\u3164"


@pytest.mark.parametrize(
    ("sign", "shown"),
    [
        (ESCAPE, "<U+001B>"),
        (BELL, "<U+0007>"),
        ("\n", "<U+000A>"),
        ("\r", "<U+000D>"),
        ("\x9b", "<U+009B>"),
        (OVERRIDE, "<U+202E>"),
        (ZERO_WIDTH, "<U+200B>"),
        (FILLER, "<U+3164>"),
        ("\u2028", "<U+2028>"),
        ("\ufe0f", "<U+FE0F>"),
        ("\ud800", "<U+D800>"),
    ],
)
def test_what_cannot_be_seen_is_shown_by_its_number(sign: str, shown: str) -> None:
    """Escapes, direction marks, line breaks and blanks of every kind."""
    assert safe(f"a{sign}b") == f"a{shown}b"


def test_ordinary_text_of_any_language_stays() -> None:
    """Only what hides is touched."""
    text = "Crédito de 10 €, 返金 — возврат [ok] {x} :smile:"
    assert safe(text) == text


@given(st.text())
def test_nothing_invisible_is_left(text: str) -> None:
    """Whatever was written, each sign that is left shows itself."""
    assert all(
        unicodedata.category(sign) not in {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"} for sign in safe(text)
    )


def test_quoted_text_cannot_end_its_own_quotation() -> None:
    """A name such as `x" approved by "y` stays one name."""
    assert quoted('x" approved by "y') == "\"x' approved by 'y\""


def test_long_text_is_cut_and_says_so() -> None:
    """Nobody's note fills the screen."""
    assert quoted("a" * 200, 10) == '"aaaaaaaaaa" ... (+190 characters)'


def test_markup_is_text(capsys: pytest.CaptureFixture[str]) -> None:
    """A record that holds markup or an escape colours nothing and hides nothing."""
    say(f"[bold red]paid[/bold red] :warning: {ESCAPE}[2K")
    assert capsys.readouterr().out == "[bold red]paid[/bold red] :warning: <U+001B>[2K\n"


def test_a_cell_is_text(capsys: pytest.CaptureFixture[str]) -> None:
    """As in a sentence, so in a table."""
    table(("who", "count"), [(f"[link]{OVERRIDE}{ESCAPE}]8;;", 3), (None, 12)])
    out = capsys.readouterr().out
    assert "[link]<U+202E><U+001B>]8;;" in out
    assert ESCAPE not in out


def test_an_error_is_text(capsys: pytest.CaptureFixture[str]) -> None:
    """A message may quote a file's name."""
    complain(f"bad {ESCAPE}]0;title{BELL}\nnext line")
    assert capsys.readouterr().err == "bad <U+001B>]0;title<U+0007>\nnext line\n"


def test_json_is_ascii(capsys: pytest.CaptureFixture[str]) -> None:
    """A terminal that shows a document is not driven by it either."""
    print_json(
        {"name": f"{ESCAPE}{OVERRIDE}é", "at": datetime(2026, 6, 11, tzinfo=UTC), "for": timedelta(minutes=1)}
    )
    out = capsys.readouterr().out
    assert out.isascii()
    assert ESCAPE not in out
    assert '"2026-06-11T00:00:00+00:00"' in out
    assert '"for": 60.0' in out


@pytest.mark.parametrize(
    ("amount", "currency", "text"),
    [
        (24_000, "USD", "240.00 USD"),
        (5, "EUR", "0.05 EUR"),
        (1_234_500, "USD", "12,345.00 USD"),
        (1_000, "JPY", "1,000 JPY"),
        (1_250, "KWD", "1.250 KWD"),
    ],
)
def test_money_has_the_decimals_of_its_currency(amount: int, currency: str, text: str) -> None:
    """Minor units are whole numbers; no float is on the way."""
    assert money(amount, currency) == text


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("24000 USD of credit.issue", "240.00 USD of credit.issue"),
        ("1000 JPY, 1234500 USD of it", "1,000 JPY, 12,345.00 USD of it"),
        ("24 of credit.issue", "24 of credit.issue"),
        ("12 VIP of 10.50 USD, c-104 USD, 5 USDX", "12 VIP of 10.50 USD, c-104 USD, 5 USDX"),
    ],
)
def test_policy_s_minor_units_are_shown_as_money(text: str, shown: str) -> None:
    """An approver never sees a hundredfold amount; whatever is no amount of a currency stays."""
    assert amounts(text) == shown


def test_times_are_utc() -> None:
    """Whatever zone the database answers in."""
    east = datetime.fromisoformat("2026-06-11T02:30:00+02:00")
    assert moment(east) == "2026-06-11 00:30:00 UTC"


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (1, "1 second"),
        (90, "90 seconds"),
        (150, "2 minutes"),
        (7_300, "2 hours"),
        (3 * 86_400, "3 days"),
        (-5, "0 seconds"),
    ],
)
def test_a_span_is_told_in_the_unit_that_fits(seconds: float, text: str) -> None:
    """Seconds where they matter, days where they do."""
    assert span(seconds) == text
    assert span(timedelta(seconds=seconds)) == text


def test_one_and_many() -> None:
    """Sentences read as sentences."""
    assert (many(1, "action"), many(2, "action"), many(2, "entry", "entries")) == (
        "1 action",
        "2 actions",
        "2 entries",
    )


@pytest.mark.parametrize("text", ["104", "c-104", "customer:c-104"])
def test_a_customer_may_be_written_as_people_do(text: str) -> None:
    """Three ways, one subject."""
    assert subject_of(text) == "customer:c-104"
