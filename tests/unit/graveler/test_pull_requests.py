"""Pull requests, as callers of graveler's services see them."""

from dataclasses import replace

import pytest
from graveler_service import Service, reason_of, running_service
from lake import Running, reached
from lake_rules import ALL, protect

from tarn.core.errors import Kind, Reason, TarnError
from tarn.core.pull_request import EVENTS_MAX, MERGE_ID, OPEN_MAX, PULL_REQUEST
from tarn.kv.keys import RepositoryKeys
from tarn.kv.mem import MemKv
from tarn.rpc.wire.call import Call
from tarn.testing.faults.gates import GatedKv
from tarn_proto.graveler.v1 import pull_request_service_pb2 as pb
from tarn_proto.graveler.v1 import settings_service_pb2 as settings_pb

APPROVE = pb.REVIEW_VERDICT_APPROVE
REQUEST_CHANGES = pb.REVIEW_VERDICT_REQUEST_CHANGES


async def changed(service: Service, path: str = "a", size: int = 1, branch: str = "dev") -> str:
    """Commits one object; returns the new head."""
    await service.put(path, size, branch)
    made = await service.graveler.create_commit(service.admin, "lake", branch, f"change {path}")
    return made.commit.commit_id


async def opened(service: Service, branch: str = "dev", call: Call | None = None) -> str:
    """Opens a pull request of a new branch with one change; returns its id."""
    await service.graveler.create_branch(service.admin, "lake", branch, "main")
    await changed(service, f"of-{branch}", 1, branch)
    made = await service.graveler.create_pull_request(
        call or service.admin, "lake", branch, "main", f"Merge {branch}"
    )
    return made.pull_request_id


async def reviewed(
    service: Service, call: Call, pull_id: str, verdict: pb.ReviewVerdict = APPROVE
) -> pb.PullRequest:
    found = (await service.graveler.get_pull_request(call, "lake", pull_id)).pull_request
    return await service.graveler.review_pull_request(
        call, "lake", pull_id, verdict, found.source_commit_id
    )


async def merges_of(service: Service, pull_id: str) -> list[str]:
    """The commits of main that say that they merge a pull request."""
    page = await service.graveler.list_commits(service.admin, "lake", "main", first_parent=True)
    return [each.commit_id for each in page.commits if each.metadata.get(PULL_REQUEST) == pull_id]


async def with_rule(service: Service, rule: settings_pb.ReviewRule) -> None:
    await protect(service, settings_pb.Protection(pattern="main", blocked=ALL, review=rule))


async def test_a_pull_request_is_opened_reviewed_and_merged(service: Service) -> None:
    ann = await service.as_user("ann", "Developer")
    pull_id = await opened(service, call=ann)
    assert pull_id == "1"
    await reviewed(service, service.admin, pull_id)
    made = await service.graveler.merge_pull_request(ann, "lake", pull_id)
    assert made.pull_request.state == pb.PULL_REQUEST_STATE_MERGED
    assert made.pull_request.merge_commit_id == made.commit.commit_id
    assert await service.size("main", "of-dev") == 1
    assert len(made.commit.parent_ids) == 2
    events = await service.graveler.list_pull_request_events(ann, "lake", pull_id)
    assert [each.kind for each in events.events] == [
        pb.PULL_REQUEST_EVENT_KIND_APPROVE,
        pb.PULL_REQUEST_EVENT_KIND_MERGE,
    ]


async def test_a_merge_that_is_repeated_is_told_as_done(service: Service) -> None:
    pull_id = await opened(service)
    first = await service.graveler.merge_pull_request(service.admin, "lake", pull_id)
    await changed(service, "later", 2)
    again = await service.graveler.merge_pull_request(service.admin, "lake", pull_id)
    assert again.commit.commit_id == first.commit.commit_id
    assert await merges_of(service, pull_id) == [first.commit.commit_id]


async def test_a_squash_has_one_parent(service: Service) -> None:
    pull_id = await opened(service)
    made = await service.graveler.merge_pull_request(service.admin, "lake", pull_id, squash=True)
    assert len(made.commit.parent_ids) == 1


async def test_a_second_open_request_of_the_same_branches_is_refused_with_the_id_of_the_first(
    service: Service,
) -> None:
    pull_id = await opened(service)
    again = service.graveler.create_pull_request(service.admin, "lake", "dev", "main", "Again")
    with pytest.raises(TarnError) as refused:
        await again
    assert refused.value.reason is Reason.PULL_REQUEST_EXISTS
    assert refused.value.metadata["pull_request"] == pull_id
    await service.graveler.close_pull_request(service.admin, "lake", pull_id)
    made = await service.graveler.create_pull_request(service.admin, "lake", "dev", "main", "Again")
    assert made.pull_request_id == "2"
    reopening = service.graveler.reopen_pull_request(service.admin, "lake", pull_id)
    assert await reason_of(reopening) is Reason.PULL_REQUEST_EXISTS


async def test_a_closed_request_is_not_merged_until_it_is_opened_again(service: Service) -> None:
    pull_id = await opened(service)
    closed = await service.graveler.close_pull_request(service.admin, "lake", pull_id)
    assert closed.state == pb.PULL_REQUEST_STATE_CLOSED
    merging = service.graveler.merge_pull_request(service.admin, "lake", pull_id)
    assert await reason_of(merging) is Reason.PULL_REQUEST_NOT_OPEN
    again = await service.graveler.close_pull_request(service.admin, "lake", pull_id)
    assert again.event_count == 1
    await service.graveler.reopen_pull_request(service.admin, "lake", pull_id)
    await service.graveler.merge_pull_request(service.admin, "lake", pull_id)
    for call in (
        service.graveler.close_pull_request(service.admin, "lake", pull_id),
        service.graveler.reopen_pull_request(service.admin, "lake", pull_id),
    ):
        assert await reason_of(call) is Reason.PULL_REQUEST_NOT_OPEN


async def test_lists_have_filters_and_pages(service: Service) -> None:
    ann = await service.as_user("ann", "Developer")
    await opened(service, "b1")
    await opened(service, "b2", ann)
    await opened(service, "b3")
    await service.graveler.close_pull_request(service.admin, "lake", "3")
    await service.graveler.merge_pull_request(service.admin, "lake", "1")

    async def ids(**filters: object) -> list[str]:
        page = await service.graveler.list_pull_requests(service.admin, "lake", **filters)  # type: ignore[arg-type]
        return [each.pull_request_id for each in page.pull_requests]

    assert await ids() == ["3", "2", "1"]
    assert await ids(states=[pb.PULL_REQUEST_STATE_OPEN]) == ["2"]
    assert await ids(states=[pb.PULL_REQUEST_STATE_CLOSED]) == ["3"]
    assert await ids(states=[pb.PULL_REQUEST_STATE_MERGED]) == ["1"]
    assert await ids(author="ann") == ["2"]
    assert await ids(from_branch="b3") == ["3"]
    assert await ids(into_branch="b3") == []
    assert await ids(after="3") == ["2", "1"]
    first = await service.graveler.list_pull_requests(service.admin, "lake", page_size=2)
    assert [each.pull_request_id for each in first.pull_requests] == ["3", "2"]
    assert await ids(page_size=2, page_token=first.next_page_token) == ["1"]


async def test_an_approval_of_a_commit_that_has_moved_on_is_refused(service: Service) -> None:
    pull_id = await opened(service)
    old = (await service.graveler.get_pull_request(service.admin, "lake", pull_id)).pull_request
    await changed(service, "more", 2)
    late = service.graveler.review_pull_request(
        service.admin, "lake", pull_id, APPROVE, old.source_commit_id
    )
    assert await reason_of(late) is Reason.REF_MOVED
    merging = service.graveler.merge_pull_request(
        service.admin, "lake", pull_id, source_commit_id=old.source_commit_id
    )
    assert await reason_of(merging) is Reason.REF_MOVED
    await changed(service, "other", 2, "main")
    merging = service.graveler.merge_pull_request(
        service.admin, "lake", pull_id, destination_commit_id=old.destination_commit_id
    )
    assert await reason_of(merging) is Reason.REF_MOVED
    assert await merges_of(service, pull_id) == []


async def test_a_branch_that_was_made_again_is_another_one(service: Service) -> None:
    pull_id = await opened(service)
    await service.graveler.delete_branch(service.admin, "lake", "dev")
    merging = service.graveler.merge_pull_request(service.admin, "lake", pull_id)
    assert await reason_of(merging) is Reason.BRANCH_NOT_FOUND
    await service.graveler.create_branch(service.admin, "lake", "dev", "main")
    await changed(service, "evil", 3)
    merging = service.graveler.merge_pull_request(service.admin, "lake", pull_id)
    assert await reason_of(merging) is Reason.BRANCH_NOT_FOUND
    reviewing = service.graveler.review_pull_request(
        service.admin, "lake", pull_id, APPROVE, "0" * 64
    )
    assert await reason_of(reviewing) is Reason.BRANCH_NOT_FOUND
    found = await service.graveler.get_pull_request(service.admin, "lake", pull_id)
    assert "made again" in found.blockers[0]
    await service.graveler.close_pull_request(service.admin, "lake", pull_id)


@pytest.mark.parametrize(
    ("title", "body"),
    [
        ("", ""),
        (" ", ""),
        ("two\nlines", ""),
        ("a" * 257, ""),
        ("fine", "\x1b[2J"),
        ("fine", "\u202eabc"),
        ("fine", "a" * (16 * 1024 + 1)),
    ],
)
async def test_texts_that_could_deceive_or_are_too_long_are_refused(
    service: Service, title: str, body: str
) -> None:
    await service.graveler.create_branch(service.admin, "lake", "dev", "main")
    making = service.graveler.create_pull_request(service.admin, "lake", "dev", "main", title, body)
    assert await reason_of(making) is Reason.INVALID_ARGUMENT


async def test_comments_are_on_the_request_or_on_a_path(service: Service) -> None:
    pull_id = await opened(service)
    comment = service.graveler.comment_pull_request
    await comment(service.admin, "lake", pull_id, "One\r\ntwo")
    await comment(service.admin, "lake", pull_id, "Folder", path="raw/")
    page = await service.graveler.list_pull_request_events(
        service.admin, "lake", pull_id, page_size=1
    )
    assert [each.body for each in page.events] == ["One\ntwo"]
    page = await service.graveler.list_pull_request_events(
        service.admin, "lake", pull_id, page_token=page.next_page_token
    )
    assert [(each.body, each.path) for each in page.events] == [("Folder", "raw/")]
    assert await reason_of(comment(service.admin, "lake", pull_id, "")) is Reason.INVALID_ARGUMENT
    assert (
        await reason_of(comment(service.admin, "lake", "9", "x")) is Reason.PULL_REQUEST_NOT_FOUND
    )


async def test_the_number_and_the_size_of_comments_are_bounded(service: Service) -> None:
    pull_id = await opened(service)
    repository = await service.replica.repositories.get("lake")  # type: ignore[arg-type]
    pulls = service.replica.pulls
    await pulls.change(repository, 1, lambda now: replace(now, event_count=EVENTS_MAX - 1))
    comment = service.graveler.comment_pull_request
    await comment(service.admin, "lake", pull_id, "the last one")
    assert await reason_of(comment(service.admin, "lake", pull_id, "no")) is Reason.QUOTA_EXCEEDED
    await pulls.change(
        repository, 1, lambda now: replace(now, event_count=1, text_bytes=256 * 1024 - 3)
    )
    assert await reason_of(comment(service.admin, "lake", pull_id, "four")) is Reason.QUOTA_EXCEEDED
    await pulls.change(repository, 1, lambda now: replace(now, event_count=EVENTS_MAX))
    await service.graveler.merge_pull_request(service.admin, "lake", pull_id)


async def test_only_the_author_and_administrators_change_the_texts(service: Service) -> None:
    ann = await service.as_user("ann", "Developer")
    bob = await service.as_user("bob", "Developer")
    pull_id = await opened(service, call=ann)
    update = service.graveler.update_pull_request
    assert await reason_of(update(bob, "lake", pull_id, title="Mine")) is Reason.ACCESS_DENIED
    assert (await update(ann, "lake", pull_id, title="Better")).title == "Better"
    assert (await update(service.admin, "lake", pull_id, description="x")).title == "Better"


async def test_analysts_read_and_change_nothing(service: Service) -> None:
    eve = await service.as_user("eve", "Analyst")
    pull_id = await opened(service)
    await service.graveler.get_pull_request(eve, "lake", pull_id)
    graveler = service.graveler
    for call in (
        graveler.create_pull_request(eve, "lake", "dev", "main", "x"),
        graveler.comment_pull_request(eve, "lake", pull_id, "x"),
        graveler.review_pull_request(eve, "lake", pull_id, APPROVE, "0" * 64),
        graveler.close_pull_request(eve, "lake", pull_id),
        graveler.merge_pull_request(eve, "lake", pull_id),
        graveler.dismiss_pull_request_review(eve, "lake", pull_id, "root"),
    ):
        assert await reason_of(call) is Reason.ACCESS_DENIED


@pytest.mark.parametrize("number", ["0", "01", "-1", "x", "1" * 9, "²", "../1"])
async def test_what_is_no_number_is_no_request(service: Service, number: str) -> None:
    found = service.graveler.get_pull_request(service.admin, "lake", number)
    assert await reason_of(found) is Reason.PULL_REQUEST_NOT_FOUND
