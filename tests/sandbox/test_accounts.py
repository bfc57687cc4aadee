"""Accounts: reads, conditional changes, history."""

from __future__ import annotations

from typing import Any

from remit.sandbox.worlds import World

REF = "inst:outage-0611/annotate/customer:c-104/1"


async def _patch(world: World, changes: dict[str, str], **more: Any) -> Any:
    body = {"changes": changes, "reference": more.pop("reference", None)}
    return await world.ask("accounts", "PATCH", "/accounts/c-104", body, **more)


async def test_an_account_shows_all_its_fields_and_its_version(world: World) -> None:
    """The fields are those of the interface, and the ETag is the version."""
    reply = await world.ask("accounts", "GET", "/accounts/c-104")
    assert reply.headers["ETag"] == '"1"'
    assert reply.body == {
        "id": "c-104",
        "name": "Customer 104",
        "email": "c-104@example.test",
        "plan": "standard",
        "renewal_date": "2027-03-04",
        "notes": [],
        "affected_by": ["outage-0611", "outage-0619"],
        "version": 1,
    }


async def test_the_world_has_sixty_customers_of_whom_24_and_12_are_affected(world: World) -> None:
    """The incidents name the company's own remedies, and 104 and 205 are among the affected."""
    everybody = (await world.ask("accounts", "GET", "/accounts")).body
    assert (len(everybody["accounts"]), everybody["next"]) == (60, None)
    for incident, size, amount, among in (
        ("outage-0611", 24, 1000, {"c-104", "c-205"}),
        ("outage-0619", 12, 500, {"c-104"}),
    ):
        found = (await world.ask("accounts", "GET", f"/incidents/{incident}")).body
        assert found["remedy"] == {"amount_minor": amount, "currency": "USD", "template": "one_time_credit"}
        assert len(found["affected"]) == size
        assert among <= set(found["affected"])
        listed = (await world.ask("accounts", "GET", f"/accounts?affected_by={incident}")).body
        assert [account["id"] for account in listed["accounts"]] == found["affected"]


async def test_pages_together_list_each_account_once(world: World) -> None:
    """`next` of one page is `after` of the following one."""
    seen: list[str] = []
    path: str | None = "/accounts?affected_by=outage-0611&limit=10"
    while path is not None:
        page = (await world.ask("accounts", "GET", path)).body
        seen += [account["id"] for account in page["accounts"]]
        following = page["next"]
        path = f"/accounts?affected_by=outage-0611&limit=10&after={following}" if following else None
    assert len(seen) == len(set(seen)) == 24


async def test_a_batch_names_what_it_does_not_find(world: World) -> None:
    """Unknown ids are listed as missing, not left out silently."""
    reply = await world.ask("accounts", "POST", "/accounts/batch", {"ids": ["c-205", "c-999", "c-104"]})
    assert [account["id"] for account in reply.body["accounts"]] == ["c-104", "c-205"]
    assert reply.body["missing"] == ["c-999"]


async def test_unknown_accounts_and_incidents_are_not_found(world: World) -> None:
    """Each read and the change say so in the same code."""
    change = {"changes": {"plan": "basic"}}
    calls = (
        ("GET", "/accounts/c-999", None),
        ("GET", "/accounts/c-999/history", None),
        ("GET", "/incidents/none", None),
        ("PATCH", "/accounts/c-999", change),
    )
    for method, path, body in calls:
        reply = await world.ask("accounts", method, path, body)
        assert (reply.status, reply.body["code"]) == (404, "not_found")


async def test_every_field_can_be_changed_and_is_one_version_together(world: World) -> None:
    """The call technically takes everything, subscription dates too."""
    changes = {
        "name": "Customer 104 A",
        "email": "a@example.test",
        "plan": "premium",
        "renewal_date": "2027-07-11",
        "notes": "moved",
    }
    reply = await _patch(world, changes, reference=REF)
    assert (reply.status, reply.headers["ETag"], reply.body["version"]) == (200, '"2"', 2)
    assert {name: reply.body[name] for name in changes if name != "notes"} == {
        name: value for name, value in changes.items() if name != "notes"
    }
    history = (await world.ask("accounts", "GET", "/accounts/c-104/history")).body["changes"]
    assert {change["field"]: (change["old"], change["new"]) for change in history} == {
        "name": ("Customer 104", "Customer 104 A"),
        "email": ("c-104@example.test", "a@example.test"),
        "plan": ("standard", "premium"),
        "renewal_date": ("2027-03-04", "2027-07-11"),
        "notes": (None, "moved"),
    }
    assert {(c["version"], c["actor"], c["reference"]) for c in history} == {(2, "agent", REF)}


async def test_a_change_of_nothing_makes_no_version(world: World) -> None:
    """Writing the value that is there leaves no trace in the history."""
    reply = await _patch(world, {"plan": "standard"})
    assert (reply.status, reply.body["version"]) == (200, 1)
    assert (await world.ask("accounts", "GET", "/history")).body["changes"] == []


async def test_if_match_lets_only_the_current_version_be_changed(world: World) -> None:
    """A writer that has not seen the latest change is told so, and changes nothing."""
    first = await _patch(world, {"plan": "basic"}, headers={"If-Match": '"1"'})
    assert first.headers["ETag"] == '"2"'
    for stale in ('"1"', "2", 'W/"2"', "nonsense"):
        late = await _patch(world, {"plan": "premium"}, headers={"If-Match": stale})
        assert (late.status, late.body["code"]) == (412, "version_mismatch")
    assert (await _patch(world, {"plan": "premium"}, headers={"If-Match": "*"})).body["version"] == 3


async def test_a_note_is_appended_and_removed_by_its_reference(world: World) -> None:
    """The history keeps both, and the note of another reference stays."""
    await _patch(world, {"notes": "one"}, reference=REF)
    await _patch(world, {"notes": "two"}, reference="other")
    reply = await _patch(world, {"remove_note": REF}, reference="undo")
    assert [(note["text"], note["reference"]) for note in reply.body["notes"]] == [("two", "other")]
    found = (await world.ask("accounts", "POST", "/history/search", {"references": ["undo", REF]})).body
    assert [(c["old"], c["new"]) for c in found["changes"]] == [(None, "one"), ("one", None)]


async def test_history_can_be_asked_for_by_actor_and_time(world: World) -> None:
    """The employee's changes and the agent's are told apart, and `since` is inclusive."""
    await _patch(world, {"plan": "basic"})
    await world.control.edit("c-104", {"plan": "premium"})
    by = {
        actor: (await world.ask("accounts", "GET", f"/history?actor={actor}")).body["changes"]
        for actor in ("agent", "employee")
    }
    assert [change["new"] for change in by["agent"]] == ["basic"]
    assert [change["new"] for change in by["employee"]] == ["premium"]
    since = await world.ask("accounts", "GET", f"/history?since={by['employee'][0]['at']}")
    assert since.body["changes"] == by["employee"]


async def test_history_comes_in_pages(world: World) -> None:
    """`next` continues where the page ended."""
    await _patch(world, {"name": "A", "plan": "basic", "notes": "n"})
    first = (await world.ask("accounts", "GET", "/history?limit=2")).body
    rest = (await world.ask("accounts", "GET", f"/history?limit=2&after={first['next']}")).body
    fields = [change["field"] for change in (*first["changes"], *rest["changes"])]
    assert fields == ["name", "plan", "notes"]
    assert rest["next"] is None
