"""Pages of history on real services: the log, commits and what is made of them, heads, conflicts, differences."""

from __future__ import annotations

import asyncio
from typing import Any
from urllib.parse import urlencode

import pytest
from rest_service import Answer
from slowness import scaled
from web_pages import WebPage, WebUser

from tarn.core.errors import Kind, Reason, TarnError
from tarn.core.printable import printable
from tarn_api.web.links import to_repository
from tarn_proto.graveler.v1 import diff_service_pb2 as pb

LAKE = "/repositories/lake"
NAMES = [
    "<script>alert(1)</script>",
    "\"'><img src=x onerror=alert(1)>",
    "{{ 7 * 7 }}{% raw %}",
    "a\u202ecod*.exe",
    "a\nb\tc\u200bd?",
    "&amp;%2e%2e\\?x=1#y",
]


async def put(user: WebUser, path: str, content: bytes, branch: str = "main") -> None:
    target = to_repository("lake", "upload", branch=branch)
    answer = await user.upload(target, "f", content, path=path, replace="1")
    assert answer.status == 303, answer.body


async def commit(user: WebUser, message: str, branch: str = "main") -> str:
    """Commits, and returns the id."""
    answer = await user.post(f"{LAKE}/commit", {"branch": branch, "message": message})
    assert answer.status == 303, answer.body
    return answer.headers["location"].rpartition("/")[2].partition("?")[0]


async def sent(user: WebUser, page: WebPage, button: str, **changed: str) -> WebPage:
    """Sends the form of a button, and opens the page that it leads to."""
    fields = page.form_of(button) | changed
    answer = await user.post(fields.pop("action"), fields)
    assert answer.status == 303, answer.body
    return await user.page(answer.headers["location"])


async def read(user: WebUser, path: str, ref: str = "main") -> bytes:
    answer = await user.get(to_repository("lake", "download", ref=ref, path=path))
    return answer.body if answer.status == 200 else b""


async def head_of(user: WebUser, branch: str = "main") -> str:
    found = await user.rest.ask("GET", f"/repositories/lake/branches/{branch}")
    commit_id: str = found.json["commit_id"]
    return commit_id


async def diverged(user: WebUser, *paths: str) -> None:
    """Makes a branch `dev`, and changes paths on it and on main, each differently."""
    for path in paths:
        await put(user, path, b"base\n")
    await commit(user, "base")
    await user.post(f"{LAKE}/branches", {"name": "dev", "source": "main"})
    for branch in ("dev", "main"):
        for path in paths:
            await put(user, path, f"{branch}\n".encode(), branch)
        await commit(user, f"on {branch}", branch)


async def test_the_log_has_its_lines_and_filters(user: WebUser) -> None:
    await diverged(user, "raw/a")
    await put(user, "other", b"x")
    await commit(user, "Another SUBJECT\n\nwith a needle inside")
    page = await user.page(f"{LAKE}/merge?source=dev&destination=main")
    await sent(user, page, "Merge into main", side="source")
    page = await user.page(f"{LAKE}/commits?ref=main")
    subjects = [row[2] for row in page.rows()]
    assert subjects[:2] == ["Merge 'dev' into 'main' merge", "Another SUBJECT"]
    assert (sorted(subjects[2:4]), subjects[4]) == (["on dev", "on main"], "base")
    drawings = page.root.xpath("//td[@class='lanes']/svg[@class='lines']")
    assert len(drawings) == len(page.rows())
    assert {each.get("width") for each in drawings} == {"28"}, "two lines beside each other"
    assert page.foreign == []

    async def found_by(**filters: str) -> list[str]:
        found = await user.page(to_repository("lake", "commits", ref="main", **filters))
        assert found.status == 200, found.text
        assert not found.root.xpath("//main//svg"), "what is filtered is not connected"
        return [row[1] if len(row) > 1 else row[0] for row in found.rows()]

    assert await found_by(text="NEEDLE") == ["Another SUBJECT"]
    assert sorted(await found_by(path="raw/a")) == ["base", "on dev", "on main"]
    assert await found_by(prefix="oth") == ["Another SUBJECT"]
    assert "Merge 'dev' into 'main' merge" not in await found_by(merges="hide")
    assert await found_by(author="nobody") == ["No commit fits the filters."]
    assert await found_by(since="9998-01-01") == ["No commit fits the filters."]
    assert await found_by(until="1971-01-01") == ["No commit fits the filters."]
    assert (await found_by(since="1971-01-01", until="9998-12-31"))[-2:-1] == ["base"]


async def test_a_day_of_the_log_is_included(user: WebUser) -> None:
    commit_id = await commit_of(user, "now")
    page = await user.page(f"{LAKE}/commits/{commit_id}")
    day = page.root.xpath("string(//time/@datetime)")[:10]
    page = await user.page(to_repository("lake", "commits", ref="main", since=day, until=day))
    assert page.rows()[0][1] == "now"
    page = await user.page(
        to_repository("lake", "commits", ref="main", until=f"{day}T00:00:00.000Z")
    )
    assert page.rows() == [["No commit fits the filters."]]


async def commit_of(user: WebUser, message: str, branch: str = "main") -> str:
    await put(user, "a", message.encode(), branch)
    return await commit(user, message, branch)


@pytest.mark.parametrize("day", ["yesterday", "2 days ago", "2026-13-01", "3", "9999-12-31"])
async def test_a_filter_that_is_no_day_is_refused(user: WebUser, day: str) -> None:
    page = await user.page(to_repository("lake", "commits", ref="main", until=day))
    assert page.status == 400
    assert "“Until”" in page.text


async def test_a_search_goes_on_with_the_next_page(
    user: WebUser, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Few commits fit: a page costs a bounded number of calls, and keeps its filters."""
    monkeypatch.setattr("tarn_api.web.pages.history.PAGE_SIZE", 2)
    monkeypatch.setattr("tarn_api.web.pages.history._CALLS_MAX", 1)
    for message in ("needle", "b", "c", "d"):
        await commit_of(user, message)
    target = to_repository("lake", "commits", ref="main", text="needle", merges="hide")
    page = await user.page(target)
    assert "the search goes on with the next one" in page.rows()[0][0]
    seen = []
    for _ in range(4):
        page = await user.page(target)
        seen += [row[1] for row in page.rows() if len(row) > 1]
        if found := page.root.xpath("//a[text()='Next page']/@href"):
            [target] = found
            assert "text=needle" in target
            assert "merges=hide" in target
    assert seen == ["needle"]


async def test_a_commit_is_counted_by_folder(user: WebUser) -> None:
    await put(user, "raw/1/a", b"12345")
    await put(user, "raw/b", b"1")
    await put(user, "top", b"22")
    first = await commit(user, "first")
    await put(user, "raw/b", b"333")
    await user.post(to_repository("lake", "objects", "delete", branch="main", path="top"), {})
    second = await commit(user, "second")
    page = await user.page(f"{LAKE}/commits/{first}")
    assert page.rows("Changes by folder") == [
        ["raw/", "2", "0", "0", "6 B", "0 B"],
        ["top", "1", "0", "0", "2 B", "0 B"],
    ]
    page = await user.page(to_repository("lake", "commits", first, prefix="raw/"))
    assert page.rows("Changes by folder")[0] == ["raw/1/", "1", "0", "0", "5 B", "0 B"]
    assert [row[1] for row in page.rows("Changes")] == ["raw/1/a", "raw/b"]
    page = await user.page(f"{LAKE}/commits/{second}")
    assert page.rows("Changes by folder") == [
        ["raw/", "0", "1", "0", "3 B", "1 B"],
        ["top", "0", "0", "1", "0 B", "2 B"],
    ]
    [target] = [each for each in page.links if "/difference?" in each]
    assert "- 1" in (await user.page(target)).text
    page = await user.page(to_repository("lake", "compare", left=first, right=second))
    [target] = page.root.xpath("//a[.='raw/']/@href")
    assert [row[1] for row in (await user.page(target)).rows("Changes")] == ["raw/b"]
    page = await user.page(to_repository("lake", "commits", second, parent="2"))
    assert (page.status, "the commit has 1 parents" in page.text) == (400, True)


async def test_counts_end_after_some_folders(
    user: WebUser, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tarn_api.web.changes.PAGE_SIZE", 2)
    for folder in range(5):
        await put(user, f"{folder}/a", b"x")
    page = await user.page(f"{LAKE}/commits/{await commit(user, 'm')}")
    assert [row[0] for row in page.rows("Changes by folder")] == ["0/", "1/"]
    assert [row[1] for row in page.rows("Changes")] == ["0/a", "1/a"]
    assert "counts of the first folders" in page.text
    [target] = page.root.xpath("//a[text()='Next page']/@href")
    page = await user.page(target)
    assert [row[1] for row in page.rows("Changes")] == ["2/a", "3/a"]
    assert page.rows("Changes by folder") == []


@pytest.mark.parametrize(("seconds", "count"), [(3.0, 10), (0.0, 1)])
async def test_counts_end_after_some_calls_or_seconds(
    user: WebUser, monkeypatch: pytest.MonkeyPatch, seconds: float, count: int
) -> None:
    """Pages of counts may be empty, one after the other."""
    monkeypatch.setattr("tarn_api.web.changes._SECONDS_MAX", seconds)
    commit_id = await commit_of(user, "m")
    calls = []

    async def endless(*given: object, **_: object) -> pb.SummarizeDiffResponse:
        calls.append(given)
        return pb.SummarizeDiffResponse(next_page_token="more")

    monkeypatch.setattr(user.rest.service.graveler, "summarize_diff", endless)
    page = await user.page(f"{LAKE}/commits/{commit_id}")
    assert (page.status, len(calls)) == (200, count)
    assert "counts of the first folders" in page.text


async def test_a_merge_is_compared_with_each_parent(user: WebUser) -> None:
    await diverged(user, "a")
    page = await user.page(f"{LAKE}/merge?source=dev&destination=main")
    page = await sent(user, page, "Merge into main", side="source")
    [target] = page.root.xpath("//a[text()='Changes to parent 2']/@href")
    assert (await user.page(target)).rows("Changes") == []
    assert page.rows("Changes")[0][:2] == ["changed", "a"]


async def ends(user: WebUser, answer: Answer, branch: str = "main") -> WebPage:
    """The page of the task to which a form has led, once the task has ended."""
    assert answer.status == 303
    target = answer.headers["location"]
    assert target.startswith(f"{LAKE}/task?task=")
    service, task = user.rest.service, target.partition("=")[2]
    await service.graveler.wait_task(service.admin, "lake", task, timeout_ms=10_000)
    page = await user.page(target)
    assert "succeeded" in page.text
    assert page.root.xpath(f"//a[contains(@href, '{await head_of(user, branch)}')]")
    # Whoever left it finds it again.
    assert target in (await user.page(f"{LAKE}/tasks")).links
    return page


async def test_work_that_takes_long_leads_to_its_task(
    user: WebUser, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It goes on without the page, which shows how far it is, and then its commit."""
    await diverged(user, "a")
    monkeypatch.setattr("tarn_api.web.starting._WAIT_MS", 0)
    page = await user.page(f"{LAKE}/merge?source=dev&destination=main")
    fields = page.form_of("Merge into main") | {"side": "source"}
    assert "Kindmerge" in (await ends(user, await user.post(fields.pop("action"), fields))).text
    assert await read(user, "a") == b"dev\n"
    await put(user, "b", b"x")
    fields = {"branch": "main", "message": "Slow"}
    assert "Kindcommit" in (await ends(user, await user.post(f"{LAKE}/commit", fields))).text
    await user.post(f"{LAKE}/branches", {"name": "asked", "source": "main"})
    await put(user, "c", b"x", "asked")
    monkeypatch.undo()
    await commit(user, "c", "asked")
    monkeypatch.setattr("tarn_api.web.starting._WAIT_MS", 0)
    fields = {"source": "asked", "destination": "main", "title": "C"}
    request = (await user.post(f"{LAKE}/pulls", fields)).headers["location"]
    action, fields = (await user.page(request)).form("Merge into main")
    page = await ends(user, await user.post(action, fields))
    assert "Kindmerge of a pull request" in page.text
    assert "Merged by" in (await user.page(request)).text


@pytest.mark.parametrize("kind", ["revert", "cherry-pick"])
async def test_a_revert_and_a_pick_that_take_long_lead_to_their_task(
    user: WebUser, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """With the conflicts that the preview let the person decide."""
    await commit_of(user, "1")
    second = await commit_of(user, "2")
    await user.post(f"{LAKE}/branches", {"name": "dev", "source": "main~1"})
    branch = "main" if kind == "revert" else "dev"
    await commit_of(user, "3", branch)
    monkeypatch.setattr("tarn_api.web.starting._WAIT_MS", 0)
    page = await preview_of(user, second, f"Preview the {kind}", branch=branch)
    fields = page.form_of(kind.capitalize()) | {"winner:a": "source"}
    page = await ends(user, await user.post(fields.pop("action"), fields), branch)
    assert f"Kind{kind}" in page.text
    assert await read(user, "a", branch) == (b"1" if kind == "revert" else b"2")


@pytest.mark.parametrize("kind", ["revert", "cherry_pick"])
async def test_a_start_whose_answer_is_lost_makes_one_commit(
    user: WebUser, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """The service sends it again; so does a person, who is told that the branch has another commit by now."""
    await commit_of(user, "1")
    second = await commit_of(user, "2")
    await user.post(f"{LAKE}/branches", {"name": "dev", "source": "main~1"})
    branch, button = ("main", "Revert") if kind == "revert" else ("dev", "Cherry-pick")
    page = await preview_of(user, second, f"Preview the {button.lower()}", branch=branch)
    before = await head_of(user, branch)
    start = getattr(user.rest.service.graveler, f"start_{kind}")
    ids: list[str] = []
    is_lost = asyncio.Event()

    async def losing(*given: Any, **options: Any) -> Any:
        task = await start(*given, **options)
        ids.append(options["task_id"])
        if len(ids) == 1:
            is_lost.set()
            raise TarnError(Kind.UNKNOWN_OUTCOME, Reason.OUTCOME_UNKNOWN, "the answer was lost")
        return task

    monkeypatch.setattr(user.rest.service.graveler, f"start_{kind}", losing)
    async with asyncio.timeout(scaled(10)), asyncio.TaskGroup() as group:
        group.create_task(sent(user, page, button))
        await is_lost.wait()
        user.rest.service.clock.advance(1)  # its pause before the second attempt
    assert (len(ids), len(set(ids))) == (2, 1)
    fields = page.form_of(button)
    assert (await user.post(fields.pop("action"), fields)).status == 409
    log = (await user.page(f"{LAKE}/commits?ref={branch}")).rows()
    assert len(log) == (4 if kind == "revert" else 3), "and the first commit of the repository"
    page = await user.page(f"{LAKE}/commits/{await head_of(user, branch)}")
    assert page.root.xpath(f"//dd/a[contains(@href, '{before}')]"), (
        "it follows the head of the preview"
    )


async def test_branches_and_tags_are_made_at_a_commit(user: WebUser) -> None:
    first = await commit_of(user, "1")
    await commit_of(user, "2")
    page = await user.page(f"{LAKE}/commits/{first}")
    await sent(user, page, "Create the branch", name="old")
    await sent(user, page, "Create the tag", name="v1")
    assert [await read(user, "a", ref) for ref in ("old", "v1", "main")] == [b"1", b"1", b"2"]


async def preview_of(user: WebUser, commit_id: str, button: str, **fields: str) -> WebPage:
    """The preview to which the page of a commit leads."""
    page = await user.page(f"{LAKE}/commits/{commit_id}")
    asked = page.form_of(button) | fields
    return await user.page(f"{asked.pop('action')}?{urlencode(asked)}")


async def test_a_commit_is_reverted_and_picked_after_a_preview(user: WebUser) -> None:
    first = await commit_of(user, "1")
    second = await commit_of(user, "2")
    await user.post(f"{LAKE}/branches", {"name": "dev", "source": first})
    page = await preview_of(user, second, "Preview the cherry-pick", branch="dev")
    assert "Added0 Changed1 Deleted0 Bytes1 B new, 1 B gone" in page.text
    assert page.rows("Changes") == [["changed", "a", "1 B", "1 B"]]
    assert await read(user, "a", "dev") == b"1", "a preview changes nothing"
    made = await sent(user, page, "Cherry-pick")
    assert await read(user, "a", "dev") == b"2"
    assert second in made.text, "its metadata tell where it comes from"
    page = await user.page(f"{LAKE}/commits/{second}")
    assert page.form_of("Preview the revert")["branch"] == "main", "the default branch is proposed"
    page = await preview_of(user, second, "Preview the revert")
    fields = page.form_of("Revert")
    await sent(user, page, "Revert")
    assert await read(user, "a") == b"1"
    # Again: there is nothing left to undo, and the preview says so, without a button.
    page = await preview_of(user, second, "Preview the revert")
    assert "main lacks these changes already" in page.text
    assert not page.root.xpath("//button[text()='Revert']")
    answer = await user.post(fields.pop("action"), fields | {"head": await head_of(user)})
    assert answer.status == 400
    fields["parent"] = "x"
    answer = await user.post(f"{LAKE}/revert", fields)
    assert b"the parent must be a number" in answer.body


@pytest.mark.parametrize("kind", ["revert", "cherry-pick"])
async def test_a_head_that_moved_since_the_preview_is_refused(user: WebUser, kind: str) -> None:
    await commit_of(user, "1")
    second = await commit_of(user, "2")
    await user.post(f"{LAKE}/branches", {"name": "dev", "source": "main~1"})
    branch = "main" if kind == "revert" else "dev"
    page = await preview_of(user, second, f"Preview the {kind}", branch=branch)
    fields = page.form_of(kind.capitalize())
    await put(user, "b", b"x", branch)
    await commit(user, "between", branch)
    answer = await user.post(fields.pop("action"), fields)
    assert (answer.status, b"look at the preview again" in answer.body) == (409, True)
    fields.pop("head")
    assert (await user.post(f"{LAKE}/{kind}", fields)).status == 400


async def test_a_conflict_of_a_revert_is_refused_or_decided(user: WebUser) -> None:
    await commit_of(user, "1")
    second = await commit_of(user, "2")
    await commit_of(user, "3")
    page = await preview_of(user, second, "Preview the revert")
    assert "Conflicts: 1" in page.text
    assert page.rows("Conflicts")[0][:3] == ["a", "1 B", "1 B"]
    fields = page.form_of("Revert")
    action = fields.pop("action")
    answer = await user.post(action, fields)
    assert (answer.status, await read(user, "a")) == (409, b"3")
    answer = await user.post(action, fields | {"side": "both"})
    assert answer.status == 400
    await sent(user, page, "Revert", **{"winner:a": "source"})
    assert await read(user, "a") == b"1"


async def test_a_merge_is_reverted_to_the_parent_that_is_named(user: WebUser) -> None:
    await put(user, "base", b"x")
    await commit(user, "base")
    await user.post(f"{LAKE}/branches", {"name": "dev", "source": "main"})
    await put(user, "new", b"dev", "dev")
    await commit(user, "dev", "dev")
    await commit_of(user, "main")
    page = await user.page(f"{LAKE}/merge?source=dev&destination=main")
    await sent(user, page, "Merge into main")
    made = await head_of(user)
    page = await preview_of(user, made, "Preview the revert", parent="1")
    assert [row[:3] for row in page.rows("Changes")] == [["deleted", "new", "3 B"]]
    await sent(user, page, "Revert")
    assert (await read(user, "new"), await read(user, "a")) == (b"", b"main")
    page = await user.page(f"{LAKE}/revert?branch=main&commit={made}")
    assert (page.status, "is a merge of 2 parents" in page.text) == (400, True)
    page = await user.page(f"{LAKE}/revert?branch=main&commit={made}&parent=3")
    assert (page.status, "no parent 3" in page.text) == (400, True)


async def test_a_move_shows_what_it_loses_and_the_reflog_leads_back(user: WebUser) -> None:
    first = await commit_of(user, "1")
    lost = await commit_of(user, "2")
    page = await user.page(to_repository("lake", "move", branch="main", ref=first))
    assert [row[0] for row in page.rows("Commits")] == [lost[:12]]
    assert "Changed1 Deleted0 Bytes1 B new, 1 B gone" in page.text
    button = f"Move main to {first[:12]}"
    await sent(user, page, button)
    assert (await head_of(user), await read(user, "a")) == (first, b"1")
    # The reflog leads back to what was lost.
    page = await user.page(f"{LAKE}/reflog?branch=main")
    assert [row[1] for row in page.rows()[:3]] == ["moved", "commit", "commit"]
    assert page.rows()[0][5] == "here"
    [target] = [each for each in page.links if f"ref={lost}" in each]
    page = await user.page(target)
    assert page.rows("Commits")[0][0] == lost[:12]
    assert "None." in page.text, "nothing is lost on the way back"
    await sent(user, page, f"Move main to {lost[:12]}")
    assert (await head_of(user), await read(user, "a")) == (lost, b"2")
    page = await user.page(to_repository("lake", "move", branch="main", ref=lost))
    assert "nothing to move" in page.text


async def test_a_move_from_another_head_is_refused(user: WebUser) -> None:
    first = await commit_of(user, "1")
    await commit_of(user, "2")
    page = await user.page(to_repository("lake", "move", branch="main", ref=first))
    third = await commit_of(user, "3")
    fields = page.form_of(f"Move main to {first[:12]}")
    answer = await user.post(fields.pop("action"), fields)
    assert answer.status == 409
    assert b"Look at the branch again" in answer.body
    assert await head_of(user) == third
    fields.pop("expected")
    answer = await user.post(f"{LAKE}/move", fields)
    assert b"the head that you saw is missing" in answer.body
    assert await head_of(user) == third


async def test_uncommitted_changes_refuse_a_move_unless_they_are_discarded(user: WebUser) -> None:
    first = await commit_of(user, "1")
    await commit_of(user, "2")
    await put(user, "fresh", b"x")
    page = await user.page(to_repository("lake", "move", branch="main", ref=first))
    assert page.rows("Changes")[0][:2] == ["added", "fresh"]
    fields = page.form_of(f"Move main to {first[:12]}")
    assert fields.pop("force") == ""
    answer = await user.post(fields.pop("action"), fields)
    assert (answer.status, await read(user, "fresh")) == (400, b"x")
    await sent(user, page, f"Move main to {first[:12]}", force="1")
    assert (await read(user, "fresh"), await read(user, "a")) == (b"", b"1")


async def test_a_deleted_branch_comes_back(user: WebUser) -> None:
    await commit_of(user, "1")
    await user.post(f"{LAKE}/branches", {"name": "dev", "source": "main"})
    await user.post(f"{LAKE}/branches/delete", {"name": "dev"})
    page = await user.page(f"{LAKE}/branches/deleted")
    assert page.rows()[0][0] == "dev"
    page = await sent(user, page, "Restore dev")
    assert (page.status, await read(user, "a", "dev")) == (200, b"1")
    assert "dev" not in (await user.page(f"{LAKE}/branches/deleted")).rows()[0]
    await user.post(f"{LAKE}/branches/delete", {"name": "dev"})
    page = await user.page(f"{LAKE}/reflog?branch=dev")
    assert page.rows()[0][1] == "deleted"
    assert "Go back" not in page.text
    await sent(user, page, "Restore it, without its uncommitted changes")
    assert await read(user, "a", "dev") == b"1"
    answer = await user.post(f"{LAKE}/branches/restore", {"name": "dev"})
    assert answer.status == 409
    assert (await user.page(f"{LAKE}/reflog?branch=never")).status == 404


async def test_conflicts_are_decided_path_by_path(user: WebUser) -> None:
    """Stars and question marks of a path are no pattern: each choice is of one path."""
    await diverged(user, "a*", "ab", "a?", "a\nb")
    page = await user.page(f"{LAKE}/merge?source=dev&destination=main")
    fields = page.form_of("Merge into main")
    action = fields.pop("action")
    assert sorted(name for name in fields if name.startswith("winner:")) == [
        "winner:a%0Ab", "winner:a%2A", "winner:a%3F", "winner:ab",
    ]  # fmt: skip
    assert all(name.isascii() and name.isprintable() for name in fields)
    answer = await user.post(action, fields | {"winner:a%2A": "source", "winner:a%3F": "source"})
    assert answer.status == 409, "two paths are undecided"
    answer = await user.post(action, fields | {"winner:ab": "both"})
    assert answer.status == 400
    answer = await user.post(action, fields | {"winner:%FF": "source"})
    assert answer.status == 400
    chosen = {"winner:a%2A": "source", "winner:a%0Ab": "source", "side": "destination"}
    answer = await user.post(action, fields | chosen)
    assert answer.status == 303, answer.body
    assert await read(user, "a*") == b"dev\n"
    assert await read(user, "a\nb") == b"dev\n"
    assert [await read(user, path) for path in ("ab", "a?")] == [b"main\n", b"main\n"]


async def test_a_merge_into_another_head_than_that_of_the_preview_is_refused(
    user: WebUser,
) -> None:
    """What was decided was decided about what the preview showed."""
    await diverged(user, "a")
    page = await user.page(f"{LAKE}/merge?source=dev&destination=main")
    fields = page.form_of("Merge into main") | {"winner:a": "source"}
    third = await commit_of(user, "third")
    answer = await user.post(fields.pop("action"), fields)
    assert answer.status == 409
    assert b"since the preview" in answer.body
    assert (await head_of(user), await read(user, "a")) == (third, b"third")


async def test_many_conflicts_fit_their_form(user: WebUser) -> None:
    paths = [f"n/{number:02}" for number in range(45)]
    await diverged(user, *paths)
    page = await user.page(f"{LAKE}/merge?source=dev&destination=main")
    fields = page.form_of("Merge into main")
    assert sum(name.startswith("winner:") for name in fields) == 40
    assert "more conflicts than a form decides" in page.text
    chosen = {name: "source" for name in fields if name.startswith("winner:")}
    await sent(user, page, "Merge into main", **chosen, side="destination", squash="1")
    assert [await read(user, path) for path in (paths[39], paths[40])] == [b"dev\n", b"main\n"]


@pytest.mark.parametrize("name", NAMES)
async def test_names_and_messages_of_users_are_text(user: WebUser, name: str) -> None:
    await put(user, f"{name}/in", b"x")
    await commit(user, name)
    await diverged(user, name)
    await put(user, name, b"uncommitted")
    first = to_repository("lake", "commits", ref="main", path=name)
    pages = [
        await user.page(f"{LAKE}/commits?ref=main"),
        await user.page(first),
        await user.page(to_repository("lake", "commits", "main~2")),
        await user.page(to_repository("lake", "commits", ref="main", text=name, prefix=name)),
        await user.page(to_repository("lake", "move", branch="main", ref="main~2")),
        await user.page(to_repository("lake", "difference", left="dev", right="main", path=name)),
        await user.page(f"{LAKE}/merge?source=dev&destination=main"),
        # Where there is no such name.
        await user.page(to_repository("lake", "commits", ref="main", author=name, since=name)),
        await user.page(to_repository("lake", "branches", "deleted", prefix=name)),
        await user.page(to_repository("lake", "reflog", branch=name)),
        await user.page(to_repository("lake", "move", branch="main", ref=name)),
        await user.page(to_repository("lake", "difference", left=name, right=name, path=name)),
        await user.page(
            to_repository("lake", "difference", left="dev", right="dev", path="?" + name)
        ),
    ]
    assert [page.status for page in pages[:7]] == [200] * 7
    assert {page.status for page in pages[9:]} <= {400, 404}
    for page in pages:
        assert page.foreign == []
        assert not set("\u202e\u200b") & set(page.text)
    assert "- dev + uncommitted" in pages[5].text
    [target] = {each for each in pages[6].links if "/difference?" in each}
    assert "- main + dev" in (await user.page(target)).text
    shown = printable(name.splitlines()[0]).replace("\\", "")
    assert shown in pages[0].text.replace("\\", "")


async def test_only_two_texts_are_compared_line_by_line(user: WebUser) -> None:
    await put(user, "a", b"1\n2\n")
    await put(user, "binary", b"\0\1")
    first = await commit(user, "first")
    await put(user, "a", b"1\n<b>\n")
    await put(user, "new", b"n\n")
    await put(user, "binary", b"\0\2")

    async def text_of(path: str) -> str:
        page = await user.page(
            to_repository("lake", "difference", left=first, right="main", path=path)
        )
        assert page.status == 200, page.text
        assert not page.root.xpath("//main//b[not(starts-with(., '@ lines'))]")
        return page.text

    assert "@ lines -1,2 +1,2 1 - 2 + <b>" in await text_of("a")
    assert f"{first} has no such object" in await text_of("new")
    assert "+ n" in await text_of("new")
    assert "no text that pages compare" in await text_of("binary")
    page = await user.page(to_repository("lake", "difference", left=first, right=first, path="a"))
    assert "the same bytes" in page.text


async def test_a_difference_reads_the_beginning_only(user: WebUser) -> None:
    await put(user, "a", b"a\n")
    first = await commit(user, "first")
    await put(user, "a", b"b\n" * 100_000)
    page = await user.page(to_repository("lake", "difference", left=first, right="main", path="a"))
    assert page.status == 200
    assert "The beginnings are compared only" in page.text
    assert len(page.answer.body) < 1024 * 1024
