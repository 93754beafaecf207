"""The page with the feed of a branch: what it shows without its script, and what the script gets."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from event_streams import watching
from rest_service import Rest, running_rest
from web_pages import NAMES, WebUser

from tarn.core.printable import printable

FEED = "/repositories/lake/feed?branch=main"


@pytest.fixture
async def user(tmp_path: Path) -> AsyncIterator[WebUser]:
    async with running_rest(tmp_path) as rest:
        person = WebUser(rest)
        assert (await person.sign_in()).status == 303
        yield person


async def commit(rest: Rest, path: str, message: str) -> None:
    await rest.service.stage(path, rest.service.entry(1))
    target = "/repositories/lake/branches/main/commits"
    assert (await rest.ask("POST", target, {"message": message})).status == 201


async def test_without_scripts_the_page_lists_what_happened(user: WebUser) -> None:
    await commit(user.rest, "a/b", "the first")
    await commit(user.rest, "a/c", "the second")
    await user.rest.service.stage("new", user.rest.service.entry(1))
    page = await user.page(FEED)
    assert page.status == 200
    lines = [" ".join(each.text_content().split()) for each in page.root.xpath("//li/bdi/..")]
    feed = [each for each in lines if "UTC" in each]
    assert [each.partition(": ")[2].partition(" (")[0] for each in feed[:2]] == [
        "the second",
        "the first",
    ]
    assert "root created the branch" in feed[-1]
    assert "1 added, 0 changed, 0 deleted" in page.text
    assert FEED in page.links, "the link that reloads it"
    [log] = page.root.xpath("//*[@role='log']")
    assert (log.get("aria-label"), log.get("tabindex")) == ("Events", "0")
    assert page.root.xpath("//*[@role='status']")
    assert page.foreign == []


async def test_the_script_gets_what_follows_the_page(user: WebUser) -> None:
    await commit(user.rest, "a", "on the page")
    page = await user.page(FEED)
    [log] = page.root.xpath("//*[@role='log']")
    await commit(user.rest, "b", "meanwhile")
    source = f"{log.get('data-source')}?after={log.get('data-after')}"
    headers = {"cookie": user.cookie, "sec-fetch-site": "same-origin"}
    async with watching(user.rest, source, caller=None, headers=headers) as stream:
        assert stream.status == 200
        assert [each["message"] for each in stream.events] == ["meanwhile"]
    policy = page.answer.headers["content-security-policy"]
    assert "connect-src 'self'" in policy
    [script] = page.root.xpath("//script")
    assert f"'nonce-{script.get('nonce')}'" in policy
    assert (await user.get(script.get("src"))).status == 200
    assert log.get("data-commits") == "/repositories/lake/commits"


@pytest.mark.parametrize("name", NAMES)
async def test_names_and_messages_are_text_in_the_page_and_in_events(
    user: WebUser, name: str
) -> None:
    rest = user.rest
    async with watching(rest) as stream:
        await rest.service.stage(name, rest.service.entry(1))
        [written] = await stream.until(1)
        assert printable(name.partition("/")[0]) in written["text"]
        assert written["folders"][0]["path"].rstrip("/") == name.partition("/")[0]
        await commit(rest, "x", name)
        [_, committed] = await stream.until(2)
        assert committed["message"] == name
        first_line = (name.splitlines() or [""])[0]
        assert f": {printable(first_line)}" in committed["text"]
        blocks = [each for each in stream.body.split(b"\n\n") if each not in (b":", b"")]
        assert len(blocks) == 3, "no line break of a user ends an event"
    page = await user.page(FEED)
    assert page.foreign == []
    assert printable(first_line) in page.root.xpath("string(//main)")


async def test_the_page_of_a_deleted_branch_leads_to_no_object(user: WebUser) -> None:
    rest = user.rest
    await rest.ask("POST", "/repositories/lake/branches", {"name": "side", "source": "main"})
    await rest.ask("DELETE", "/repositories/lake/branches/side")
    page = await user.page(FEED.replace("main", "side"))
    assert page.status == 200
    assert "deleted the branch" in page.text
    assert not [each for each in page.links if "objects?ref=side" in each]
    assert (await user.page(FEED.replace("main", "none"))).status == 404


async def test_the_page_needs_the_right_to_read_the_branch(user: WebUser) -> None:
    service = user.rest.service
    await service.auth.create_user(service.admin, "nobody", [])
    made = await service.auth.create_credential(service.admin, user_id="nobody")
    person = WebUser(user.rest)
    await person.sign_in(pair=(made.credential.access_key_id, made.secret_access_key))
    assert (await person.page(FEED)).status == 403


async def test_pages_lead_to_the_feed(user: WebUser) -> None:
    assert FEED in (await user.page("/repositories/lake/branches")).links
    assert FEED in (await user.page("/repositories/lake/objects?ref=main")).links
