"""Pull requests, as callers of graveler's services see them."""

from dataclasses import replace
from typing import Any, cast

import pytest
from graveler_service import Service, reason_of
from lake import Running, reached
from lake_rules import ALL, protect

from tarn.core.errors import Kind, Reason, TarnError
from tarn.core.levels import LEVEL_FIRST, FeatureGate
from tarn.core.pull_request import EVENTS_MAX, PULL_REQUEST
from tarn.kv.keys import RepositoryKeys
from tarn.rpc.wire.call import Call
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
    assert made.pull_request.author == "ann"
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
    repository = await service.replica.repositories.get("lake")
    pulls = service.replica.pulls
    await pulls.change(repository, 1, lambda now: replace(now, event_count=EVENTS_MAX - 1))
    comment = service.graveler.comment_pull_request
    await comment(service.admin, "lake", pull_id, "the last one")
    assert await reason_of(comment(service.admin, "lake", pull_id, "no")) is Reason.QUOTA_EXCEEDED
    await pulls.change(
        repository, 1, lambda now: replace(now, event_count=1, text_bytes=256 * 1024 - 3)
    )
    assert await reason_of(comment(service.admin, "lake", pull_id, "four")) is Reason.QUOTA_EXCEEDED
    await comment(service.admin, "lake", pull_id, "all")
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


# ---- once


@pytest.mark.parametrize("squash", [False, True])
async def test_two_merges_at_once_make_one(
    service: Service, running: Running, squash: bool
) -> None:
    pull_id = await opened(service)
    gate = service.replicas.kv.hold("set_if", RepositoryKeys.branch("main"))
    merge = service.graveler.merge_pull_request
    first = running.start(merge(service.admin, "lake", pull_id, squash=squash))
    await reached(gate)
    async with service.another_replica() as other:
        second = await other.graveler.merge_pull_request(
            service.admin, "lake", pull_id, squash=squash
        )
        gate.open()
        assert (await first).commit.commit_id == second.commit.commit_id
    assert await merges_of(service, pull_id) == [second.commit.commit_id]


@pytest.mark.parametrize("squash", [False, True])
async def test_a_merge_whose_record_was_not_written_is_found_by_the_next_call(
    service: Service, monkeypatch: pytest.MonkeyPatch, squash: bool
) -> None:
    pull_id = await opened(service)
    merges = service.replica.pull_merges

    async def killed(*_: object) -> None:
        raise TarnError(Kind.UNKNOWN_OUTCOME, Reason.OUTCOME_UNKNOWN, "killed")

    with monkeypatch.context() as patched:
        patched.setattr(merges, "_finish", killed)
        lost = service.graveler.merge_pull_request(service.admin, "lake", pull_id, squash=squash)
        assert await reason_of(lost) is Reason.OUTCOME_UNKNOWN
    (made,) = await merges_of(service, pull_id)
    await changed(service, "later", 5, "main")
    found = await service.graveler.get_pull_request(service.admin, "lake", pull_id)
    assert found.pull_request.state == pb.PULL_REQUEST_STATE_MERGED
    closing = service.graveler.close_pull_request(service.admin, "lake", pull_id)
    assert await reason_of(closing) is Reason.PULL_REQUEST_NOT_OPEN
    again = await service.graveler.merge_pull_request(service.admin, "lake", pull_id, squash=squash)
    assert again.commit.commit_id == made
    assert await merges_of(service, pull_id) == [made]


@pytest.mark.parametrize("applied", [True, False])
@pytest.mark.parametrize("row", ["record", "index", "branch", "event"])
async def test_lost_answers_of_single_writes_do_no_harm(
    service: Service, row: str, applied: bool
) -> None:
    pull_id = await opened(service)
    key = {
        "record": RepositoryKeys.pull(1),
        "index": RepositoryKeys.PULL_INDEX,
        "branch": RepositoryKeys.branch("main"),
        "event": RepositoryKeys.pull_event(1, 1),
    }[row]
    service.replicas.kv.lose("set_if", key, applied=applied)
    made = await service.graveler.merge_pull_request(service.admin, "lake", pull_id)
    assert await merges_of(service, pull_id) == [made.commit.commit_id]
    events = await service.graveler.list_pull_request_events(service.admin, "lake", pull_id)
    assert [each.kind for each in events.events] == [pb.PULL_REQUEST_EVENT_KIND_MERGE]
    # The pair of branches is free.
    await changed(service, "later", 2)
    await service.graveler.create_pull_request(service.admin, "lake", "dev", "main", "Next")


async def test_a_closing_beside_a_merge_that_lands_loses(
    service: Service, running: Running
) -> None:
    pull_id = await opened(service)
    gate = service.replicas.kv.hold("set_if", RepositoryKeys.branch("main"))
    merging = running.start(service.graveler.merge_pull_request(service.admin, "lake", pull_id))
    await reached(gate)
    closed = await service.graveler.close_pull_request(service.admin, "lake", pull_id)
    assert closed.state == pb.PULL_REQUEST_STATE_CLOSED
    gate.open()
    assert (await merging).pull_request.state == pb.PULL_REQUEST_STATE_MERGED
    found = await service.graveler.get_pull_request(service.admin, "lake", pull_id)
    assert found.pull_request.state == pb.PULL_REQUEST_STATE_MERGED


async def test_a_merge_that_loses_its_race_is_made_again_only_while_the_request_is_open(
    service: Service, running: Running
) -> None:
    pull_id = await opened(service)
    gate = service.replicas.kv.hold("set_if", RepositoryKeys.branch("main"))
    merging = running.start(service.graveler.merge_pull_request(service.admin, "lake", pull_id))
    await reached(gate)
    async with service.another_replica() as other:
        await changed(other, "beside", 5, "main")
    await service.graveler.close_pull_request(service.admin, "lake", pull_id)
    gate.open()
    assert await reason_of(merging) is Reason.PULL_REQUEST_NOT_OPEN
    assert await merges_of(service, pull_id) == []


async def test_two_creations_at_once_make_one_open_request(
    service: Service, running: Running
) -> None:
    """The second one comes before the record of the first one is written: that one is given up, and made again or
    refused."""
    await service.graveler.create_branch(service.admin, "lake", "dev", "main")
    create = service.graveler.create_pull_request
    gate = service.replicas.kv.hold("set_if", RepositoryKeys.pull(1))
    first = running.start(create(service.admin, "lake", "dev", "main", "First"))
    await reached(gate)
    second = await create(service.admin, "lake", "dev", "main", "Second")
    gate.open()
    assert await reason_of(first) is Reason.PULL_REQUEST_EXISTS
    page = await service.graveler.list_pull_requests(service.admin, "lake")
    assert [each.pull_request_id for each in page.pull_requests] == [second.pull_request_id]


async def test_opening_again_beside_a_creation_leaves_one_open_request(
    service: Service, running: Running
) -> None:
    """The creation finds the entry of a request whose record is not open yet."""
    pull_id = await opened(service)
    await service.graveler.close_pull_request(service.admin, "lake", pull_id)
    gate = service.replicas.kv.hold("set_if", RepositoryKeys.pull(1))
    reopening = running.start(service.graveler.reopen_pull_request(service.admin, "lake", pull_id))
    await reached(gate)
    await service.graveler.create_pull_request(service.admin, "lake", "dev", "main", "New")
    gate.open()
    assert await reason_of(reopening) is Reason.PULL_REQUEST_EXISTS
    page = await service.graveler.list_pull_requests(
        service.admin, "lake", states=[pb.PULL_REQUEST_STATE_OPEN]
    )
    assert [each.title for each in page.pull_requests] == ["New"]


async def test_a_request_that_is_merged_while_it_is_opened_again_stays_merged(
    service: Service, running: Running
) -> None:
    pull_id = await opened(service)
    await service.graveler.close_pull_request(service.admin, "lake", pull_id)
    gate = service.replicas.kv.hold("set_if", RepositoryKeys.PULL_INDEX)
    reopening = running.start(service.graveler.reopen_pull_request(service.admin, "lake", pull_id))
    await reached(gate)
    async with service.another_replica() as other:
        await other.graveler.reopen_pull_request(service.admin, "lake", pull_id)
        made = await other.graveler.merge_pull_request(service.admin, "lake", pull_id)
    gate.open()
    assert await reason_of(reopening) is Reason.PULL_REQUEST_NOT_OPEN
    found = (await service.graveler.get_pull_request(service.admin, "lake", pull_id)).pull_request
    assert found.state == pb.PULL_REQUEST_STATE_MERGED
    assert found.merge_commit_id == made.commit.commit_id


# ---- rules


async def test_a_rule_lets_only_pull_requests_with_approvals_change_the_branch(
    service: Service,
) -> None:
    ann = await service.as_user("ann", "Developer")
    bob = await service.as_user("bob", "Developer")
    pull_id = await opened(service, call=ann)
    await with_rule(service, settings_pb.ReviewRule(approval_count=2))
    graveler = service.graveler
    head = (await graveler.get_branch(service.admin, "lake", "main")).commit_id
    for way in (
        graveler.merge(service.admin, "lake", "main", "dev"),
        graveler.create_commit(service.admin, "lake", "main", "x", allow_empty=True),
        graveler.revert(service.admin, "lake", "main", "dev"),
        graveler.cherry_pick(service.admin, "lake", "main", "dev"),
        graveler.reset_branch(service.admin, "lake", "main"),
        graveler.move_branch(service.admin, "lake", "main", "dev", expected_commit_id=head),
        graveler.delete_branch(service.admin, "lake", "main"),
        service.put("direct", 1),
    ):
        assert await reason_of(way) is Reason.BRANCH_PROTECTED
    merge = graveler.merge_pull_request
    assert await reason_of(merge(ann, "lake", pull_id)) is Reason.PULL_REQUEST_BLOCKED
    await reviewed(service, ann, pull_id)  # her own does not count
    await reviewed(service, bob, pull_id)
    await reviewed(service, bob, pull_id)  # twice is once
    assert await reason_of(merge(ann, "lake", pull_id)) is Reason.PULL_REQUEST_BLOCKED
    found = await graveler.get_pull_request(ann, "lake", pull_id)
    assert ["1 more approval" in each for each in found.blockers] == [True]
    await reviewed(service, service.admin, pull_id)
    assert (await graveler.get_pull_request(ann, "lake", pull_id)).blockers == []
    await merge(ann, "lake", pull_id)
    assert await service.size("main", "of-dev") == 1


async def test_a_protection_without_a_review_rule_blocks_pull_requests_too(
    service: Service,
) -> None:
    pull_id = await opened(service)
    await protect(service, settings_pb.Protection(pattern="main", blocked=ALL))
    merging = service.graveler.merge_pull_request(service.admin, "lake", pull_id)
    assert await reason_of(merging) is Reason.BRANCH_PROTECTED
    found = await service.graveler.get_pull_request(service.admin, "lake", pull_id)
    assert len(found.blockers) == 1


async def test_a_read_only_repository_merges_nothing(service: Service) -> None:
    pull_id = await opened(service)
    await service.graveler.set_read_only(service.admin, "lake", True)
    merging = service.graveler.merge_pull_request(service.admin, "lake", pull_id)
    assert await reason_of(merging) is Reason.REPOSITORY_READ_ONLY


async def test_the_author_s_approval_counts_if_the_rule_says_so(service: Service) -> None:
    ann = await service.as_user("ann", "Developer")
    pull_id = await opened(service, call=ann)
    await with_rule(service, settings_pb.ReviewRule(approval_count=1, author_counts=True))
    await reviewed(service, ann, pull_id)
    await service.graveler.merge_pull_request(ann, "lake", pull_id)


async def test_a_user_who_was_made_again_is_another_one(service: Service) -> None:
    """Neither does the new one's approval count as that of the author's friend, nor is it the author's own."""
    await service.as_user("bob", "Developer")
    rule = settings_pb.ReviewRule(
        approval_count=0, owners=[settings_pb.OwnerRule(prefix="of-", user_ids=["bob"])]
    )
    pull_id = await opened(service)
    await with_rule(service, rule)
    await service.auth.delete_user(service.admin, "bob")
    bob = await service.as_user("bob", "Developer")
    await reviewed(service, bob, pull_id)
    merging = service.graveler.merge_pull_request(service.admin, "lake", pull_id)
    assert await reason_of(merging) is Reason.PULL_REQUEST_BLOCKED
    await with_rule(service, settings_pb.ReviewRule())  # bob's own approval is one
    await service.graveler.merge_pull_request(service.admin, "lake", pull_id)


@pytest.mark.parametrize(
    ("stale", "counts_later", "counts_again"),
    [
        (settings_pb.STALE_APPROVALS_KEEP, True, True),
        (settings_pb.STALE_APPROVALS_IGNORE, False, True),
        (settings_pb.STALE_APPROVALS_DISMISS, False, False),
    ],
)
async def test_an_approval_counts_for_later_commits_as_the_rule_says(
    service: Service, stale: settings_pb.StaleApprovals, counts_later: bool, counts_again: bool
) -> None:
    bob = await service.as_user("bob", "Developer")
    pull_id = await opened(service)
    await with_rule(service, settings_pb.ReviewRule(approval_count=1, stale=stale))
    approved = (await reviewed(service, bob, pull_id)).source_commit_id
    graveler = service.graveler

    async def counts() -> bool:
        return not (await graveler.get_pull_request(bob, "lake", pull_id)).blockers

    assert await counts()
    later = await changed(service, "sneaked-in", 6)
    assert await counts() is counts_later
    if not counts_later:
        merging = graveler.merge_pull_request(service.admin, "lake", pull_id)
        assert await reason_of(merging) is Reason.PULL_REQUEST_BLOCKED
    await graveler.move_branch(service.admin, "lake", "dev", approved, expected_commit_id=later)
    assert await counts() is counts_again
    # A destination that moves changes nothing, unless the rule says so.
    rule = settings_pb.ReviewRule(approval_count=1, stale=stale, covers_destination=True)
    await protect(service)
    await changed(service, "beside", 1, "main")
    await reviewed(service, bob, pull_id)
    await changed(service, "beside", 2, "main")
    await with_rule(service, settings_pb.ReviewRule(approval_count=1, stale=stale))
    assert await counts()
    await with_rule(service, rule)
    assert await counts() is counts_later


async def test_a_source_that_moves_during_the_merge_is_not_merged(
    service: Service, running: Running
) -> None:
    """The reviewed commit lands, whatever the branch holds by then."""
    bob = await service.as_user("bob", "Developer")
    pull_id = await opened(service)
    await with_rule(service, settings_pb.ReviewRule(approval_count=1))
    await reviewed(service, bob, pull_id)
    gate = service.replicas.kv.hold("set_if", RepositoryKeys.branch("main"))
    merging = running.start(service.graveler.merge_pull_request(service.admin, "lake", pull_id))
    await reached(gate)
    await changed(service, "sneaked-in", 6)
    gate.open()
    await merging
    assert await service.size("main", "of-dev") == 1
    assert await reason_of(service.size("main", "sneaked-in")) is Reason.ENTRY_NOT_FOUND


async def test_requested_changes_block_until_the_reviewer_approves_or_is_dismissed(
    service: Service,
) -> None:
    bob = await service.as_user("bob", "Developer")
    pull_id = await opened(service)
    await with_rule(service, settings_pb.ReviewRule())
    graveler, merge = service.graveler, service.graveler.merge_pull_request
    await reviewed(service, bob, pull_id, REQUEST_CHANGES)
    assert await reason_of(merge(service.admin, "lake", pull_id)) is Reason.PULL_REQUEST_BLOCKED
    dismiss = graveler.dismiss_pull_request_review
    assert await reason_of(dismiss(bob, "lake", pull_id, "bob")) is Reason.ACCESS_DENIED
    assert await reason_of(dismiss(service.admin, "lake", pull_id, "ann")) is Reason.USER_NOT_FOUND
    made = await dismiss(service.admin, "lake", pull_id, "bob")
    assert [each.dismissed_by for each in made.reviews] == ["root"]
    await merge(service.admin, "lake", pull_id)


async def test_owners_approve_what_is_below_their_prefix(service: Service) -> None:
    ann = await service.as_user("ann", "Developer")
    bob = await service.as_user("bob", "Developer")
    pull_id = await opened(service)
    await changed(service, "raw/a", 1)
    owners = [
        settings_pb.OwnerRule(prefix="raw/", user_ids=["bob"]),
        settings_pb.OwnerRule(prefix="untouched/", user_ids=["ann"]),
    ]
    await with_rule(service, settings_pb.ReviewRule(approval_count=1, owners=owners))
    await reviewed(service, ann, pull_id)
    merge = service.graveler.merge_pull_request
    assert await reason_of(merge(service.admin, "lake", pull_id)) is Reason.PULL_REQUEST_BLOCKED
    await reviewed(service, bob, pull_id)
    await merge(service.admin, "lake", pull_id)


async def test_an_exempt_user_merges_without_approvals(service: Service) -> None:
    pull_id = await opened(service)
    await protect(
        service,
        settings_pb.Protection(
            pattern="main",
            blocked=ALL,
            review=settings_pb.ReviewRule(),
            exempt_roles=["Admin"],
        ),
    )
    await service.graveler.merge_pull_request(service.admin, "lake", pull_id)


@pytest.mark.parametrize(
    "rule",
    [
        settings_pb.ReviewRule(approval_count=11),
        settings_pb.ReviewRule(approval_count=-1),
        settings_pb.ReviewRule(owners=[settings_pb.OwnerRule(prefix="a")]),
        settings_pb.ReviewRule(owners=[settings_pb.OwnerRule(prefix="a", user_ids=["root"])] * 2),
        settings_pb.ReviewRule(
            owners=[settings_pb.OwnerRule(prefix="a" * 1025, user_ids=["root"])]
        ),
    ],
)
async def test_senseless_review_rules_are_refused(
    service: Service, rule: settings_pb.ReviewRule
) -> None:
    assert await reason_of(with_rule(service, rule)) is Reason.INVALID_ARGUMENT


async def test_a_review_rule_blocks_every_way_around_it(service: Service) -> None:
    weak = settings_pb.Protection(
        pattern="main",
        blocked=[settings_pb.CHANGE_KIND_WRITE],
        review=settings_pb.ReviewRule(),
    )
    assert await reason_of(protect(service, weak)) is Reason.INVALID_ARGUMENT


# ---- lives of repositories, and the feature level


async def test_a_repository_that_is_made_again_has_no_pull_requests(service: Service) -> None:
    await opened(service)
    await service.graveler.delete_repository(service.admin, "lake")
    await service.graveler.create_repository(
        service.admin, "lake", storage_namespace="local://lake-2"
    )
    page = await service.graveler.list_pull_requests(service.admin, "lake")
    assert list(page.pull_requests) == []
    assert await opened(service) == "1"


async def test_entries_of_requests_that_are_not_open_make_room(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A closing whose last step was lost leaves an entry."""
    await opened(service, "b1")
    repository = await service.replica.repositories.get("lake")
    pulls = service.replica.pulls

    async def lost(*_: object) -> None:
        return

    with monkeypatch.context() as patched:
        patched.setattr(pulls, "leave", lost)
        await service.graveler.close_pull_request(service.admin, "lake", "1")
    monkeypatch.setattr("tarn.core.pull_request.OPEN_MAX", 1)
    assert await opened(service, "b2") == "2"
    assert await reason_of(opened(service, "b3")) is Reason.QUOTA_EXCEEDED
    page = await pulls.page(repository, lambda _: True, 0, 10, open_only=True)
    assert [each.number for each in page.pulls] == [2]


async def test_below_the_feature_level_nothing_is_written(service: Service) -> None:
    await service.graveler.create_branch(service.admin, "lake", "dev", "main")
    for endpoint in service.endpoints:
        if endpoint.name.endswith(("PullRequestService", "SettingsService")):
            cast("Any", endpoint.handler)._features = FeatureGate.at(LEVEL_FIRST)
    made = service.graveler.create_pull_request(service.admin, "lake", "dev", "main", "t")
    assert await reason_of(made) is Reason.FEATURE_LEVEL
    assert await reason_of(with_rule(service, settings_pb.ReviewRule())) is Reason.FEATURE_LEVEL
    page = await service.graveler.list_pull_requests(service.admin, "lake")
    assert list(page.pull_requests) == []
