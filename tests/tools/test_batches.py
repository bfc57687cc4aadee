"""Work per subject does not grow: reads are made in batches of at most 100, whatever the cohort (I11)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from remit.tools.accounts import ListAffectedAccounts
from remit.tools.answers import BATCH
from remit.tools.catalogue import credit_catalogue
from remit.tools.contracts import Sought, WriteTool
from remit.tools.states import Sight

if TYPE_CHECKING:
    from tests.tools.conftest import Bench

SNAPSHOT_CALLS = {
    "issue_credit": 2,
    "issue_credit_legacy": 2,
    "annotate_account": 1,
    "send_email": 2,
    "reverse_credit": 3,
    "remove_note": 1,
    "send_correction": 2,
}
"""HTTP calls for up to 100 subjects: accounts, and what else the decision relies on."""

SAID: dict[str, dict[str, Any]] = {
    "issue_credit": {"amount_minor": 1000, "currency": "USD"},
    "issue_credit_legacy": {"amount_minor": 1000, "currency": "USD"},
    "annotate_account": {"note": "Credited."},
    "send_email": {"template": "one_time_credit"},
    "reverse_credit": {"undoes": "r", "record": "cr-1", "amount_minor": 1000, "currency": "USD"},
    "remove_note": {"undoes": "r"},
    "send_correction": {"undoes": "r"},
}

TOOLS = credit_catalogue().writes()
EACH = pytest.mark.parametrize("tool", TOOLS, ids=lambda tool: str(tool.contract.name))


def _cohort(bench: Bench, tool: WriteTool, size: int) -> list[Sought]:
    said = dict(SAID[tool.contract.name])
    cohort = []
    for number in range(size):
        if "undoes" in said:
            said["undoes"] = f"r{number}"
        cohort.append(bench.sought(tool, f"customer:c-{number + 101}", **said))
    return cohort


@EACH
@pytest.mark.parametrize("size", [1, BATCH])
async def test_a_batch_of_snapshots_takes_the_same_calls_as_one(
    bench: Bench, tool: WriteTool, size: int
) -> None:
    """The calls do not depend on the number of subjects; each has its entry, known or not."""
    cohort = _cohort(bench, tool, size)
    snapshots = await tool.snapshot_many(bench.transport, cohort)
    assert bench.transport.calls == SNAPSHOT_CALLS[tool.contract.name]
    assert snapshots.keys() == {one.reference for one in cohort}
    exist = [snapshots[one.reference].values["exists"] for one in cohort]
    assert exist == [number < 30 or 100 <= number < 130 for number in range(size)]


@EACH
@pytest.mark.parametrize(("size", "calls"), [(0, 0), (1, 1), (BATCH, 1), (BATCH + 1, 2)])
async def test_verification_takes_one_call_for_each_hundred(
    bench: Bench, tool: WriteTool, size: int, calls: int
) -> None:
    """One sighting per reference, in order, with one call per batch."""
    cohort = _cohort(bench, tool, size)
    found = await tool.verify_many(bench.transport, cohort)
    assert bench.transport.calls == calls
    assert [(one.reference, one.sight) for one in found] == [(one.reference, Sight.ABSENT) for one in cohort]


@EACH
async def test_what_is_relied_on_is_in_every_snapshot(bench: Bench, tool: WriteTool) -> None:
    """An approval binds to these values, so none may be missing, for known and unknown subjects."""
    cohort = _cohort(bench, tool, 40)
    for snapshot in (await tool.snapshot_many(bench.transport, cohort)).values():
        assert set(tool.contract.relies_on) == set(snapshot.values)


async def test_one_failed_batch_leaves_the_others_readable(bench: Bench) -> None:
    """Unreadable is what was in the failed search, and nothing else."""
    tool = credit_catalogue().write("issue_credit")
    await bench.world.control.add_fault("payments", "html", "POST /credits/search", skip=1)
    found = await tool.verify_many(bench.transport, _cohort(bench, tool, 2 * BATCH + 1))
    sights = [one.sight for one in found]
    assert sights == [Sight.ABSENT] * BATCH + [Sight.UNREADABLE] * BATCH + [Sight.ABSENT]


async def test_a_cohort_is_read_in_pages(bench: Bench) -> None:
    """One call to know the incident, one for up to 100 accounts."""
    rows = await ListAffectedAccounts().read(
        bench.transport, ListAffectedAccounts.arguments.model_validate({"incident": "outage-0611"})
    )
    assert (len(rows), bench.transport.calls) == (24, 2)


async def test_several_pages_make_one_cohort(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """The pages are put together without a gap and without a double."""
    monkeypatch.setattr("remit.tools.accounts.BATCH", 5)
    rows = await ListAffectedAccounts().read(
        bench.transport, ListAffectedAccounts.arguments.model_validate({"incident": "outage-0611"})
    )
    assert len({row["subject"] for row in rows}) == len(rows) == 24
    assert bench.transport.calls == 1 + 5
