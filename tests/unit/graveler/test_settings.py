"""Changes of a repository's settings: versions, lost answers, limits, hidden branches and the default branch."""

import asyncio
from typing import Any, cast

import pytest
from graveler_service import Service, reason_of
from lake import Running, ended, reached
from lake_rules import ALL, WRITE, protect, with_dev

from tarn.core.dump import to_line
from tarn.core.errors import Kind, Reason, TarnError
from tarn.core.levels import ALL_FEATURES, LEVEL_FIRST, Feature, FeatureGate
from tarn.core.retention import KEEP_EVERYTHING, parse_retention
from tarn.core.rules import Settings
from tarn.kv.keys import InstallationKeys, RepositoryKeys
from tarn_graveler.handlers.requests import require_retention
from tarn_proto.graveler.v1 import settings_service_pb2 as pb

# ---- a repository that is created again


async def test_a_repository_that_is_created_again_has_no_rules(service: Service) -> None:
    await protect(service, pb.Protection(pattern="main", blocked=ALL))
    old = (await service.graveler.get_settings(service.admin, "lake")).etag
    await service.graveler.delete_repository(service.admin, "lake")
    await service.graveler.create_repository(service.admin, "lake")
    found = await service.graveler.get_settings(service.admin, "lake")
    assert not found.protections
    assert found.etag != old
    await service.put("a", 1)


async def test_the_etag_of_unchanged_settings_differs_between_two_lives(service: Service) -> None:
    old = (await service.graveler.get_settings(service.admin, "lake")).etag
    await service.graveler.delete_repository(service.admin, "lake")
    await service.graveler.create_repository(service.admin, "lake")
    late = service.graveler.set_metadata(service.admin, "lake", {}, if_match=old)
    assert await reason_of(late) is Reason.SETTINGS_CHANGED


# ---- changes of the settings


async def test_a_lost_update_is_refused(service: Service) -> None:
    graveler, admin = service.graveler, service.admin
    etag = (await graveler.get_settings(admin, "lake")).etag
    await graveler.set_metadata(admin, "lake", {"owner": "ann"}, if_match=etag)
    late = graveler.set_metadata(admin, "lake", {"owner": "bob"}, if_match=etag)
    assert await reason_of(late) is Reason.SETTINGS_CHANGED
    rules = graveler.set_rules(admin, "lake", protections=[], hidden_patterns=["*"], if_match=etag)
    assert await reason_of(rules) is Reason.SETTINGS_CHANGED
    off = graveler.set_read_only(admin, "lake", True, if_match=etag)
    assert await reason_of(off) is Reason.SETTINGS_CHANGED
    found = await graveler.get_settings(admin, "lake")
    assert dict(found.metadata) == {"owner": "ann"}
    assert not found.read_only


async def test_without_an_etag_rules_and_metadata_are_not_replaced(service: Service) -> None:
    graveler, admin = service.graveler, service.admin
    rules = graveler.set_rules(admin, "lake", protections=[], hidden_patterns=[], if_match="")
    assert await reason_of(rules) is Reason.INVALID_ARGUMENT
    metadata = graveler.set_metadata(admin, "lake", {}, if_match="")
    assert await reason_of(metadata) is Reason.INVALID_ARGUMENT


async def test_two_changes_at_the_same_time_are_never_both_made_from_one_version(
    service: Service,
) -> None:
    graveler, admin = service.graveler, service.admin
    etag = (await graveler.get_settings(admin, "lake")).etag
    work = [graveler.set_metadata(admin, "lake", {"n": str(n)}, if_match=etag) for n in range(8)]
    done = await asyncio.gather(*work, return_exceptions=True)  # noqa: TID251 - their errors are judged
    won = [n for n, each in enumerate(done) if isinstance(each, str)]
    assert len(won) == 1
    reasons = {each.reason for each in done if isinstance(each, TarnError)}
    assert reasons == {Reason.SETTINGS_CHANGED}
    found = await graveler.get_settings(admin, "lake")
    assert dict(found.metadata) == {"n": str(won[0])}


async def test_each_change_keeps_the_rest_of_the_settings(service: Service) -> None:
    graveler, admin = service.graveler, service.admin
    etag = await protect(service, pb.Protection(pattern="x", blocked=WRITE), hidden=["t*"])
    etag = await graveler.set_metadata(admin, "lake", {"a": "1"}, if_match=etag)
    etag = await graveler.set_read_only(admin, "lake", True, if_match=etag)
    found = await graveler.get_settings(admin, "lake")
    assert [each.pattern for each in found.protections] == ["x"]
    assert (list(found.hidden_patterns), found.read_only) == (["t*"], True)
    assert (dict(found.metadata), found.etag) == ({"a": "1"}, etag)
    await protect(service)
    found = await graveler.get_settings(admin, "lake")
    assert found.read_only
    assert dict(found.metadata) == {"a": "1"}


@pytest.mark.parametrize("applied", [True, False])
async def test_a_change_whose_answer_was_lost_is_made_once(service: Service, applied: bool) -> None:
    etag = (await service.graveler.get_settings(service.admin, "lake")).etag
    service.replicas.kv.lose("set_if", RepositoryKeys.SETTINGS, applied=applied)
    new = await service.graveler.set_metadata(service.admin, "lake", {"a": "1"}, if_match=etag)
    found = await service.graveler.get_settings(service.admin, "lake")
    assert (dict(found.metadata), found.etag) == ({"a": "1"}, new)


async def test_a_change_that_may_have_been_replaced_is_not_reported_as_refused(
    service: Service, running: Running
) -> None:
    """Its answer is lost although it was made; another change replaces it before it can look."""
    kv = service.replicas.kv
    etag = (await service.graveler.get_settings(service.admin, "lake")).etag
    kv.lose("set_if", RepositoryKeys.SETTINGS, applied=True)
    change = service.graveler.set_read_only(service.admin, "lake", True, if_match=etag)
    # The first read finds the version, the second one settles.
    first = kv.hold("get_many", RepositoryKeys.SETTINGS, after=True)
    work = running.start(change)
    await reached(first)
    second = kv.hold("get_many", RepositoryKeys.SETTINGS)
    first.open()
    await reached(second)
    async with service.another_replica() as other:
        await other.graveler.set_read_only(other.admin, "lake", False)
    second.open()
    assert await reason_of(work) is Reason.OUTCOME_UNKNOWN


async def test_settings_are_not_written_for_a_deleted_repository(service: Service) -> None:
    async with service.another_replica() as other:
        await other.graveler.get_settings(other.admin, "lake")
        await service.graveler.delete_repository(service.admin, "lake")
        change = other.graveler.set_read_only(other.admin, "lake", True)
        assert await reason_of(change) is Reason.REPOSITORY_NOT_FOUND


LIMITS: list[tuple[list[pb.Protection], list[str]]] = [
    ([pb.Protection(pattern=f"b{n}", blocked=WRITE) for n in range(101)], []),
    ([], [f"b{n}" for n in range(101)]),
    ([pb.Protection(pattern="a" * 257, blocked=WRITE)], []),
    ([], ["a" * 257]),
    ([pb.Protection(pattern="", blocked=WRITE)], []),
    ([], ["a\\"]),
    ([pb.Protection(pattern="a")], []),
    ([pb.Protection(pattern="a", blocked=[pb.CHANGE_KIND_UNSPECIFIED])], []),
    ([pb.Protection(pattern="a", blocked=WRITE), pb.Protection(pattern="a", blocked=ALL)], []),
    (
        [pb.Protection(pattern="a", blocked=WRITE, exempt_user_ids=[f"u{n}" for n in range(101)])],
        [],
    ),
]


@pytest.mark.parametrize("number", range(len(LIMITS)))
async def test_invalid_rules_are_refused(service: Service, number: int) -> None:
    protections, hidden = LIMITS[number]
    assert await reason_of(protect(service, *protections, hidden=hidden)) is Reason.INVALID_ARGUMENT


async def test_the_limits_themselves_are_allowed(service: Service) -> None:
    protections = [pb.Protection(pattern=f"b{n}", blocked=ALL) for n in range(99)]
    protections.append(pb.Protection(pattern="a" * 256, blocked=WRITE))
    await protect(service, *protections, hidden=[f"h{n}" for n in range(100)])
    etag = (await service.graveler.get_settings(service.admin, "lake")).etag
    metadata = {f"{n:0256d}": "" for n in range(10)} | {"v": "x" * (16 * 1024 - 2561)}
    await service.graveler.set_metadata(service.admin, "lake", metadata, if_match=etag)


async def test_metadata_are_limited(service: Service) -> None:
    etag = (await service.graveler.get_settings(service.admin, "lake")).etag
    for metadata, reason in (
        ({str(n): "" for n in range(101)}, Reason.INVALID_ARGUMENT),
        ({"": "a"}, Reason.INVALID_ARGUMENT),
        ({"a" * 257: ""}, Reason.INVALID_ARGUMENT),
        ({"a": "x" * 16 * 1024}, Reason.METADATA_TOO_LARGE),
    ):
        change = service.graveler.set_metadata(service.admin, "lake", metadata, if_match=etag)
        assert await reason_of(change) is reason


async def test_the_record_as_a_whole_is_limited(service: Service) -> None:
    await service.as_user("a" * 128, "Analyst")
    protections = [
        pb.Protection(pattern=f"{n:0256d}", blocked=ALL, exempt_user_ids=["a" * 128])
        for n in range(100)
    ]
    await protect(service, *protections)
    long = [f"{n:0256d}" for n in range(100)]
    assert await reason_of(protect(service, *protections, hidden=long)) is Reason.METADATA_TOO_LARGE


# ---- hidden branches


async def shown(service: Service, *, include_hidden: bool = False) -> list[str]:
    page = await service.graveler.list_branches(
        service.admin, "lake", include_hidden=include_hidden
    )
    return [each.branch_id for each in page.branches]


async def test_a_hidden_branch_is_not_listed_and_can_be_used(service: Service) -> None:
    await with_dev(service)
    await protect(service, hidden=["d*", "main"])
    assert await shown(service) == ["main"]  # the default branch is never hidden
    assert await shown(service, include_hidden=True) == ["dev", "main"]
    await service.put("a", 1, "dev")
    assert await service.size("dev", "a") == 1
    await service.graveler.set_default_branch(service.admin, "lake", "dev")
    assert await shown(service) == ["dev"]


async def test_pages_of_branches_go_on_behind_hidden_ones(service: Service) -> None:
    for name in ("a1", "a2", "z"):
        await service.graveler.create_branch(service.admin, "lake", name, "main")
    await protect(service, hidden=["a?"])
    names: list[str] = []
    token = ""
    while True:
        page = await service.graveler.list_branches(
            service.admin, "lake", page_size=1, page_token=token
        )
        names += [each.branch_id for each in page.branches]
        token = page.next_page_token
        if not token:
            break
    assert names == ["main", "z"]


# ---- the default branch


async def test_the_default_branch_can_be_changed_and_not_deleted(service: Service) -> None:
    await with_dev(service)
    graveler, admin = service.graveler, service.admin
    async with service.another_replica() as other:
        await other.graveler.get_repository(admin, "lake")
        assert await graveler.set_default_branch(admin, "lake", "dev") == "main"
        # The other replica's cached record is old; the deletion reads it afresh.
        with pytest.raises(TarnError, match="default branch") as raised:
            await other.graveler.delete_branch(admin, "lake", "dev")
        assert raised.value.kind is Kind.FAILED_PRECONDITION
        await other.graveler.delete_branch(admin, "lake", "main")
    assert (await graveler.get_settings(admin, "lake")).default_branch_id == "dev"
    assert (await graveler.get_repository(admin, "lake")).default_branch_id == "dev"
    await graveler.create_branch(admin, "lake", "new", "")


async def test_the_default_branch_must_exist_and_be_the_expected_one(service: Service) -> None:
    graveler, admin = service.graveler, service.admin
    service.replicas.kv.calls.clear()
    absent = graveler.set_default_branch(admin, "lake", "absent")
    assert await reason_of(absent) is Reason.BRANCH_NOT_FOUND
    assert "set_if" not in {operation for operation, _ in service.replicas.kv.calls}
    await with_dev(service)
    late = graveler.set_default_branch(admin, "lake", "dev", expected_branch_id="other")
    assert await reason_of(late) is Reason.SETTINGS_CHANGED
    assert (await graveler.get_settings(admin, "lake")).default_branch_id == "main"
    await graveler.set_default_branch(admin, "lake", "dev", expected_branch_id="main")


@pytest.mark.parametrize("applied", [True, False])
async def test_a_default_branch_whose_answer_was_lost_is_settled(
    service: Service, applied: bool
) -> None:
    await with_dev(service)
    key = InstallationKeys.repository("lake")
    service.replicas.kv.lose("set_if", key, applied=applied)
    assert await service.graveler.set_default_branch(service.admin, "lake", "dev") == "main"
    found = await service.graveler.get_settings(service.admin, "lake")
    assert found.default_branch_id == "dev"


async def test_a_deletion_that_began_before_the_branch_became_the_default_fails(
    service: Service, running: Running
) -> None:
    await with_dev(service)
    held = service.replicas.kv.hold("delete_if", RepositoryKeys.branch("dev"))
    deletion = running.start(service.graveler.delete_branch(service.admin, "lake", "dev"))
    await reached(held)
    await service.graveler.set_default_branch(service.admin, "lake", "dev")
    held.open()
    with pytest.raises(TarnError, match="default branch"):
        await deletion
    await service.graveler.get_branch(service.admin, "lake", "dev")


async def test_a_branch_that_is_deleted_before_it_is_the_default_is_not(
    service: Service, running: Running
) -> None:
    await with_dev(service)
    deleting = service.replicas.kv.hold("delete_if", RepositoryKeys.branch("dev"))
    deletion = running.start(service.graveler.delete_branch(service.admin, "lake", "dev"))
    await reached(deleting)
    touching = service.replicas.kv.hold("set_if", RepositoryKeys.branch("dev"))
    change = running.start(service.graveler.set_default_branch(service.admin, "lake", "dev"))
    await reached(touching)
    deleting.open()
    await ended(deletion)
    assert deletion.exception() is None
    touching.open()
    assert await reason_of(change) is Reason.BRANCH_NOT_FOUND
    found = await service.graveler.get_settings(service.admin, "lake")
    assert found.default_branch_id == "main"


# ---- levels

RETENTION = '{"branches": [{"match": "*", "except": ["tmp"], "keep_days": 7}]}'


async def test_retention_waits_for_the_level_also_when_it_comes_with_a_dump(
    service: Service,
) -> None:
    """A replica of the first level would drop the rules, and not see which commits have expired."""
    graveler, admin = service.graveler, service.admin
    place = (await graveler.create_repository(admin, "other")).storage_namespace
    await graveler.delete_repository(admin, "other")
    await graveler.begin_restore(admin, "other", place, default_branch_id="main", restore_id="1")
    line = to_line(Settings(retention=parse_retention(RETENTION)))
    etag = (await graveler.get_retention(admin, "lake")).etag

    async def refused() -> set[Reason]:
        restore = graveler.restore_records(admin, "other", "1", [line])
        change = graveler.set_retention(admin, "lake", RETENTION, if_match=etag)
        return {await reason_of(restore), await reason_of(change)}

    at_level(service, FeatureGate.at(LEVEL_FIRST))
    assert await refused() == {Reason.FEATURE_LEVEL}
    at_level(service, ALL_FEATURES)
    await graveler.restore_records(admin, "other", "1", [line])
    await graveler.set_retention(admin, "lake", RETENTION, if_match=etag)
    found = (await graveler.get_retention(admin, "lake")).rules_json
    assert parse_retention(found) == parse_retention(RETENTION)


def at_level(service: Service, features: FeatureGate) -> None:
    for endpoint in service.endpoints:
        if hasattr(endpoint.handler, "SetRetention") or hasattr(endpoint.handler, "RestoreRecords"):
            cast("Any", endpoint.handler)._features = features


def test_exceptions_of_rules_have_a_feature_of_their_own() -> None:
    asked: list[Feature] = []

    class Gate(FeatureGate):
        def require(self, feature: Feature) -> None:
            asked.append(feature)

    gate = Gate(lambda: 0)
    require_retention(gate, KEEP_EVERYTHING)
    assert asked == []
    require_retention(gate, parse_retention('{"detached": {"keep_days": 7}}'))
    assert asked == [Feature.NEW_FIELDS]
    require_retention(gate, parse_retention(RETENTION))
    assert Feature.RETENTION_EXCEPTIONS in asked
