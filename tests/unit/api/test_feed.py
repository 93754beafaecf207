"""The events of a branch as a stream, on real services."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack, suppress
from pathlib import Path

import pytest
from event_streams import EVENTS, watching
from rest_service import Rest, basic, running_rest
from web_pages import WebUser

from tarn.core.errors import Kind, Reason, TarnError
from tarn_api.feed.feeds import FeedLimits
from tarn_api.feed.looking import BranchView
from tarn_api.feed.viewers import Caller
from tarn_api.http import HttpBounds, HttpServer

LAKE = "/repositories/lake"


async def commit(rest: Rest, message: str, branch: str = "main") -> str:
    answer = await rest.ask("POST", f"{LAKE}/branches/{branch}/commits", {"message": message})
    assert answer.status == 201, answer.body
    found: str = answer.json["id"]
    return found


async def put(rest: Rest, path: str, size: int = 1, branch: str = "main") -> None:
    await rest.service.stage(path, rest.service.entry(size), branch)


async def test_everything_that_happens_is_told_in_order_and_once(rest: Rest) -> None:
    async with watching(rest) as stream:
        assert stream.status == 200
        assert stream.headers["content-type"].startswith("text/event-stream")
        assert stream.headers["cache-control"] == "no-store"
        for number in range(3):
            await put(rest, f"events/{number}")
        await put(rest, "top")
        [written] = await stream.until(1)
        assert written["kind"] == "changes"
        assert written["folders"] == [
            {"path": "events/", "writes": 3, "deletes": 0, "undone": 0},
            {"path": "top", "writes": 1, "deletes": 0, "undone": 0},
        ]
        first = await commit(rest, "the first")
        committed = (await stream.until(2))[-1]
        assert (committed["kind"], committed["user"]) == ("commit", "root")
        assert (committed["commit_id"], committed["message"]) == (first, "the first")
        assert committed["folders"][0]["writes"] == 3
        answer = await rest.ask("DELETE", f"{LAKE}/branches/main/objects?path=events/0")
        assert answer.status == 204
        deleted = (await stream.until(3))[-1]
        assert deleted["folders"] == [{"path": "events/", "writes": 0, "deletes": 1, "undone": 0}]
        answer = await rest.ask("PUT", f"{LAKE}/branches/main", {"type": "reset"})
        assert answer.status == 204
        undone = (await stream.until(4))[-1]
        assert undone["folders"] == [{"path": "events/", "writes": 0, "deletes": 0, "undone": 1}]
        for _ in range(20):
            await stream.later(1)
        assert stream.kinds == ["changes", "commit", "changes", "changes"]
        assert len({each["id"] for each in stream.events}) == 4


async def test_merges_moves_deletions_and_restores_are_told(rest: Rest) -> None:
    await put(rest, "a")
    first = await commit(rest, "one")
    await rest.ask("POST", f"{LAKE}/branches", {"name": "side", "source": "main"})
    await put(rest, "b", branch="side")
    await commit(rest, "two", "side")
    async with watching(rest) as stream, watching(rest, EVENTS.replace("main", "side")) as side:
        answer = await rest.ask("POST", f"{LAKE}/refs/side/merge/main", {"message": "both"})
        assert answer.status == 200, answer.body
        await stream.until(1)
        answer = await rest.ask("PUT", f"{LAKE}/branches/main/hard_reset?ref={first}")
        assert answer.status == 204, answer.body
        await stream.until(2)
        assert stream.kinds == ["merge", "moved"]
        assert stream.events[1]["commit_id"] == first
        assert (await rest.ask("DELETE", f"{LAKE}/branches/side")).status == 204
        await side.until(1)
        await rest.service.graveler.restore_branch(rest.service.admin, "lake", "side")
        await side.until(2)
        assert side.kinds == ["deleted", "restored"]
        assert not side.task.done()


async def test_who_connects_again_gets_what_it_missed_once(rest: Rest) -> None:
    async with watching(rest) as stream:
        await commit_of(rest, "a")
        await stream.until(1)
        last = stream.last_id
        async with watching(rest) as other:
            await commit_of(rest, "b")
            await put(rest, "c")
            await other.until(2)
            missed = other.events
    async with watching(rest, headers={"last-event-id": last}) as again:
        assert again.events == missed, "with the same ids"
        await commit_of(rest, "d")
        assert [each["kind"] for each in await again.until(3)] == ["commit", "changes", "commit"]
    async with watching(rest, f"{EVENTS}?after={missed[0]['id']}") as again:
        assert again.kinds == ["changes", "commit"]
    async with watching(rest, headers={"last-event-id": again.last_id}) as again:
        assert again.events == []


async def commit_of(rest: Rest, name: str) -> None:
    await put(rest, name)
    await commit(rest, name)


async def test_another_process_knows_the_changes_of_the_head_and_says_what_it_does_not(
    rest: Rest,
) -> None:
    async with watching(rest) as stream:
        await commit_of(rest, "a")
        await stream.until(1)
    last = stream.last_id
    await commit_of(rest, "b")
    await commit_of(rest, "c")
    for _ in range(80):
        await stream.later(1)  # the channel is forgotten
    async with watching(rest, headers={"last-event-id": last}) as again:
        assert again.kinds == ["missed", "commit", "commit"]
        assert [each.get("message") for each in again.events] == [None, "b", "c"]
        assert "not shown" in again.events[0]["text"]
    # An answer that broke off in the middle of that.
    async with watching(rest, headers={"last-event-id": again.events[1]["id"]}) as third:
        assert [each.get("message") for each in third.events] == ["c"]


@pytest.mark.parametrize("place", ["nonsense", "1", "99999999999999999", "1-00000000-5"])
async def test_a_place_that_nobody_knows_is_said_to_be_one(rest: Rest, place: str) -> None:
    await commit_of(rest, "a")
    async with watching(rest, headers={"last-event-id": place}) as stream:
        is_known = place == "1"  # before the first change of the head, which is known
        assert ("missed" in stream.kinds) is not is_known
        await commit_of(rest, "b")
        await stream.until(len(stream.events) + 1)
        assert stream.events[-1]["message"] == "b"


async def test_more_than_some_changes_of_the_head_are_not_told_later(rest: Rest) -> None:
    async with watching(rest) as stream:
        for number in range(25):
            await commit_of(rest, f"{number}")
        told = (await stream.until(25))[-1]
        assert told["kind"] == "commit"
        before = stream.events[0]["id"].partition("-")[0]
        async with watching(rest, f"{EVENTS}?after={before}") as late:
            assert late.kinds == ["missed", *["commit"] * 20]
            assert [each.get("message") for each in late.events[1:]] == [
                f"{number}" for number in range(5, 25)
            ]
            assert late.last_id == told["id"].partition("-")[0]


async def test_a_stream_ends_soon_after_its_caller_lost_the_right(rest: Rest) -> None:
    service = rest.service
    await service.auth.create_user(service.admin, "reads", ["Analyst"])
    made = await service.auth.create_credential(service.admin, user_id="reads")
    caller = basic(made.credential.access_key_id, made.secret_access_key)
    async with watching(rest, caller=caller) as stream, watching(rest) as admin:
        await stream.later(1)
        assert not stream.task.done()
        await service.auth.update_user_roles(service.admin, "reads", [])
        began = service.clock.monotonic()
        await stream.until_end()
        assert service.clock.monotonic() - began <= 12
        assert stream.is_whole
        await commit_of(rest, "secret")
        await admin.until(1)
        assert b"secret" not in stream.body
    async with watching(rest, caller=caller) as again:
        assert again.status == 403


async def test_a_stream_ends_soon_after_its_session(rest: Rest) -> None:
    user = WebUser(rest)
    await user.sign_in()
    headers = {"cookie": user.cookie, "sec-fetch-site": "same-origin"}
    async with watching(rest, caller=None, headers=headers) as stream:
        for _ in range(30):
            await stream.later(1)
        assert not stream.task.done()
        await user.post("/sign-out", {})
        began = rest.service.clock.monotonic()
        await stream.until_end()
        assert rest.service.clock.monotonic() - began <= 10
    async with watching(rest, caller=None, headers=headers) as again:
        assert again.status == 401


async def test_nothing_is_sent_by_an_old_check(rest: Rest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Auth hangs, so no check ends, while graveler still answers."""
    async with watching(rest) as stream:
        await stream.later(1)

        async def hangs(*_: object, **__: object) -> None:
            await asyncio.Event().wait()

        monkeypatch.setattr(Caller, "check", hangs)
        stream.rest.service.clock.advance(11)
        await commit_of(rest, "late")
        await stream.until_end()
        assert stream.events == []


async def test_strangers_and_wrong_methods_get_no_stream(rest: Rest) -> None:
    async with watching(rest, caller=None) as stream:
        assert stream.status == 401
    async with watching(rest, caller="Basic bm86bm8=") as stream:
        assert stream.status == 401
    for method in ("HEAD", "POST", "DELETE"):
        async with watching(rest, method=method) as stream:
            assert (stream.status, stream.headers["allow"]) == (405, "GET")
    for target in (EVENTS.replace("main", "none"), EVENTS.replace("/lake/", "/none/")):
        async with watching(rest, target) as stream:
            assert stream.status == 404
    async with watching(rest, EVENTS.replace("main", "a%2Fb")) as stream:
        assert stream.status == 400
    assert rest.feeds.streams == 0


@pytest.mark.parametrize(
    ("limits", "status"),
    [
        (FeedLimits(of_user=2), 429),
        (FeedLimits(of_address=2), 429),
        (FeedLimits(streams=2), 503),
        (FeedLimits(branches=1), 503),
    ],
)
async def test_streams_are_bounded(tmp_path: Path, limits: FeedLimits, status: int) -> None:
    async with running_rest(tmp_path, feed_limits=limits) as rest:
        await rest.ask("POST", f"{LAKE}/branches", {"name": "side", "source": "main"})
        side = EVENTS.replace("main", "side")
        async with watching(rest) as first, watching(rest):
            async with watching(rest, side) as third:
                assert third.status == status
                assert third.headers["retry-after"]
            assert first.status == 200
            answer = await rest.ask("GET", "/healthcheck", caller=None)
            assert answer.status == 204
        assert rest.feeds.streams == 0
        async with watching(rest) as again:
            assert again.status == 200, "places are given back"


async def test_branches_that_nobody_watches_any_more_make_room(tmp_path: Path) -> None:
    async with running_rest(tmp_path, feed_limits=FeedLimits(branches=1)) as rest:
        await rest.ask("POST", f"{LAKE}/branches", {"name": "side", "source": "main"})
        for _ in range(3):
            for branch in ("main", "side"):
                async with watching(rest, EVENTS.replace("main", branch)) as stream:
                    await put(rest, f"{stream.rest.service.clock.monotonic()}", branch=branch)
                    await stream.until(1)


async def test_streams_take_no_places_of_requests(tmp_path: Path) -> None:
    async with running_rest(tmp_path, requests_max=2) as rest:
        async with watching(rest), watching(rest), watching(rest):
            assert (await rest.ask("GET", LAKE)).status == 200
        assert (await rest.ask("GET", LAKE)).status == 200


async def test_a_client_that_takes_nothing_is_cut_off_and_fills_no_memory(
    rest: Rest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tarn_api.feed.channels._FRAMES_MAX", 3)
    async with watching(rest) as stuck, watching(rest) as taking:
        stuck.is_stuck = True
        for number in range(6):
            await commit_of(rest, f"{number}")
            await taking.until(number + 1)
        await stuck.until_end()
        assert not stuck.is_whole
        assert not taking.task.done()
        assert rest.feeds.streams == 1
        last = taking.events[0]["id"]
    async with watching(rest, headers={"last-event-id": last}) as again:
        assert again.kinds == ["missed", *["commit"] * 5], "those of the head are known"


async def test_one_look_serves_all_viewers(rest: Rest, monkeypatch: pytest.MonkeyPatch) -> None:
    looks = 0
    real = BranchView.heads

    async def counted(self: BranchView, *args: object) -> object:
        nonlocal looks
        looks += 1
        return await real(self, *args)  # type: ignore[arg-type]

    monkeypatch.setattr(BranchView, "heads", counted)
    async with AsyncExitStack() as stack:
        streams = [await stack.enter_async_context(watching(rest)) for _ in range(10)]
        await streams[0].later(5)
        before = looks
        for _ in range(10):
            await streams[0].later(1)
        assert looks - before <= 11
        await commit_of(rest, "a")
        for each in streams:
            await each.until(1)
    for _ in range(60):
        await streams[0].later(1)
    before = looks
    for _ in range(10):
        await streams[0].later(1)
    assert looks == before, "nobody watches"


async def test_streams_live_for_a_while_and_have_heartbeats(tmp_path: Path) -> None:
    limits = FeedLimits(life_s=60, beat_s=5)
    async with running_rest(tmp_path, feed_limits=limits) as rest, watching(rest) as stream:
        await stream.until_end()
        assert stream.is_whole
        assert 8 <= stream.body.count(b":\n\n") <= 12
        assert stream.body.startswith(b"retry: ")


async def test_streams_end_when_the_server_stops(rest: Rest) -> None:
    async with watching(rest) as stream:
        rest.feeds.end()
        await asyncio.wait([stream.task], timeout=5)
        assert stream.is_whole
    async with watching(rest) as again:
        assert again.status == 503


async def test_a_client_that_goes_gives_its_place_back(rest: Rest) -> None:
    async with watching(rest) as stream:
        assert rest.feeds.streams == 1
        stream.gone.set()
        await asyncio.wait([stream.task], timeout=5)
        assert rest.feeds.streams == 0


async def test_looks_go_on_after_a_failure_and_with_another_viewer(
    rest: Rest, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with watching(rest) as first, watching(rest) as second:
        graveler = rest.service.graveler
        real, failures = graveler.list_reflog, [Kind.UNAVAILABLE, Kind.DENIED]

        async def fails(*args: object, **named: object) -> object:
            if failures:
                raise TarnError(failures.pop(0), Reason.UNAVAILABLE, "no")
            return await real(*args, **named)  # type: ignore[arg-type]

        monkeypatch.setattr(graveler, "list_reflog", fails)
        await first.until_end()
        await commit_of(rest, "a")
        await second.until(1)
        assert first.events == []


async def test_a_deleted_repository_ends_its_streams(rest: Rest) -> None:
    async with watching(rest) as stream:
        assert (await rest.ask("DELETE", f"{LAKE}?force=true")).status == 204
        await stream.until_end()


async def test_a_server_that_stops_completes_its_answers(rest: Rest) -> None:
    """Over a socket: an open stream keeps no stop waiting, and its answer is complete."""
    server = HttpServer(rest.endpoint, HttpBounds(idle_timeout_s=0.1, head_timeout_s=1))
    async with server:
        port = await server.listen("127.0.0.1", 0, tls=None, reuse_port=False)
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        head = f"GET {EVENTS} HTTP/1.1\r\nHost: tarn.example\r\nAuthorization: {rest.admin}\r\n\r\n"
        writer.write(head.encode())
        answer = await reader.readuntil(b"\r\n\r\n")
        assert b"transfer-encoding: chunked" in answer
        await commit_of(rest, "a")
        while b'"kind":"commit"' not in answer:
            rest.service.clock.advance(0.5)
            with suppress(TimeoutError):
                async with asyncio.timeout(0.05):
                    answer += await reader.readuntil(b"\n\n\r\n")
        rest.feeds.end()
        await server.drain(30)
        rest_of_it = await reader.read()
        assert rest_of_it.endswith(b"0\r\n\r\n")
        writer.close()
