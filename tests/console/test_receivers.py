"""`remit receivers`, and the line about a closed door over every listing."""

from __future__ import annotations

import asyncio
import json

import pytest

from remit.checkpoints import Database, Ledger, open_pool
from remit.checkpoints.embedded_access import Urls
from remit.tools.doors import Met
from tests.console.conftest import Remit


@pytest.fixture
def closed(reading: Remit, database: Urls) -> Remit:
    """An installation in which payments refused the credential."""

    async def close() -> None:
        async with open_pool(database.app_url) as pool:
            ledger = await Ledger.open(Database(pool))
            await ledger.note("payments", Met.CREDENTIAL, "payments refused the credential with 401")

    asyncio.run(close())
    return reading


def test_without_trouble_all_are_open(remit: Remit) -> None:
    """Every receiver of the catalogue is listed, whether or not anybody called it yet."""
    said = json.loads(remit("receivers", "--json").out)
    assert [(row["name"], row["state"]) for row in said["receivers"]] == [
        ("accounts", "open"),
        ("mail", "open"),
        ("payments", "open"),
    ]
    assert "All are open." in remit("receivers").out


def test_a_closed_door_is_listed_with_why_since_when_and_the_next_try(closed: Remit) -> None:
    """The JSON has every column; what is open beside it is not mixed up with it."""
    said = json.loads(closed("receivers", "--json").out)
    (row,) = [row for row in said["receivers"] if row["state"] != "open"]
    assert (row["name"], row["state"], row["reason"], row["waiting"]) == (
        "payments",
        "closed",
        "credential",
        0,
    )
    assert row["detail"] == "payments refused the credential with 401"
    assert row["since"] < row["next_probe"]


@pytest.mark.parametrize("words", [["receivers"], ["runs"], ["status"], ["holds"]])
def test_a_refused_credential_is_told_over_every_listing(closed: Remit, words: list[str]) -> None:
    """A person learns which receiver it is and what to do, wherever a person looks first."""
    out = closed(*words).out
    assert "payments refuses our credential" in out
    assert "Put a working credential in its place, then `remit resume`" in out


@pytest.mark.parametrize("words", [["runs"], ["status"]])
def test_json_of_a_listing_names_the_closed_doors(closed: Remit, words: list[str]) -> None:
    """Whoever reads by machine finds the same under `closed`."""
    (door,) = json.loads(closed(*words, "--json").out)["closed"]
    assert (door["name"], door["closed"]) == ("payments", "credential")
