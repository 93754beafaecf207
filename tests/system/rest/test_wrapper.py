"""A day's work with `lakefs`, the peer's library for Python."""

from __future__ import annotations

import lakefs
import pytest
from lakefs.client import Client
from lakefs.exceptions import (
    BadRequestException,
    ConflictException,
    ForbiddenException,
    NotAuthorizedException,
    NotFoundException,
    ObjectExistsException,
    ObjectNotFoundException,
    PermissionException,
    ServerException,
)
from lakefs.models import CommonPrefix, ObjectInfo
from rest_clients import now
from rest_server import RestServer

NOBODY = "nobody-of-this-name"


def paths(found: object) -> list[str]:
    return [each.path for each in found]  # type: ignore[attr-defined]


def changes(found: object) -> list[tuple[str, str]]:
    return [(each.type, each.path) for each in found]  # type: ignore[attr-defined]


def test_repositories(lake_server: RestServer, client: Client, repo: lakefs.Repository) -> None:
    assert repo.properties.id == repo.id
    assert repo.properties.default_branch == "main"
    assert abs(repo.properties.creation_date - now()) < 600
    namespace = repo.properties.storage_namespace
    assert repo.metadata == {}
    again = lakefs.Repository(repo.id, client)
    with pytest.raises(ConflictException):
        again.create(namespace)
    assert again.create(namespace, exist_ok=True).properties.storage_namespace == namespace
    prefix = lake_server.new_name("many")
    names = [f"{prefix}-{number}" for number in range(3)]
    for name in names:
        lakefs.Repository(name, client).create(f"{namespace}-{name}", default_branch="trunk")
    listed = lakefs.repositories(client, prefix=prefix, amount=2)
    assert [each.id for each in listed] == names
    after = lakefs.repositories(client, prefix=prefix, after=names[0])
    assert [each.id for each in after] == names[1:]
    other = lakefs.Repository(names[0], client)
    assert other.properties.default_branch == "trunk"
    assert [branch.id for branch in other.branches()] == ["trunk"]
    other.delete()  # lakeFS still answers for some seconds from its cache
    assert [each.id for each in lakefs.repositories(client, prefix=prefix)] == names[1:]
    with pytest.raises(NotFoundException) as caught:
        _ = lakefs.Repository(NOBODY, client).properties
    assert caught.value.status_code == 404
    assert caught.value.body["message"]


@pytest.mark.parametrize("name", ["UPPER", "a", "-lake", "la_ke"])
def test_a_name_that_is_none_is_a_bad_request(client: Client, name: str) -> None:
    from lakefs_sdk.exceptions import ApiException

    namespace = f"{client.storage_config.default_namespace_prefix}/{name}"
    body = {"name": name, "storage_namespace": namespace}
    with pytest.raises(ApiException) as caught:
        client.sdk_client.repositories_api.api_client.call_api(
            "/repositories", "POST", body=body, auth_settings=["basic_auth"]
        )
    assert caught.value.status == 400


def test_branches(main: lakefs.Branch, repo: lakefs.Repository) -> None:
    head = main.get_commit()
    made = [repo.branch(name).create("main") for name in ("dev", "exp-1", "exp-2")]
    assert [branch.head.id for branch in made] == [head.id] * 3
    with pytest.raises(ConflictException):
        repo.branch("dev").create("main")
    assert repo.branch("dev").create("main", exist_ok=True).head.id == head.id
    with pytest.raises(NotFoundException):
        repo.branch("of-nothing").create(NOBODY)
    with pytest.raises(BadRequestException):
        repo.branch("a/b").create("main")
    assert [each.id for each in repo.branches()] == ["dev", "exp-1", "exp-2", "main"]
    assert [each.id for each in repo.branches(prefix="exp-", amount=1)] == ["exp-1", "exp-2"]
    assert [each.id for each in repo.branches(after="exp-1", max_amount=1)] == ["exp-2"]
    made[0].delete()
    with pytest.raises(NotFoundException):
        _ = made[0].head
    with pytest.raises(NotFoundException):
        made[0].delete()
    of_a_commit = repo.branch("old").create(head.id)
    assert of_a_commit.head.id == head.id
    assert paths(of_a_commit.objects()) == ["raw/a", "raw/b", "z"]


def test_the_default_branch_stays(main: lakefs.Branch) -> None:
    with pytest.raises(ServerException) as caught:
        main.delete()
    assert caught.value.status_code == 403


@pytest.mark.uses("getObject")
def test_tags(main: lakefs.Branch, repo: lakefs.Repository) -> None:
    head = main.get_commit()
    tag = repo.tag("v1.0").create("main")
    repo.tag("v2").create(head.id)
    assert tag.get_commit().id == head.id
    with pytest.raises(ConflictException):
        repo.tag("v1.0").create("main")
    with pytest.raises(NotFoundException):
        repo.tag("v3").create(NOBODY)
    assert [each.id for each in repo.tags()] == ["v1.0", "v2"]
    assert [each.id for each in repo.tags(after="v1.0")] == ["v2"]
    assert [each.id for each in repo.tags(prefix="v2")] == ["v2"]
    main.object("z").upload("new", pre_sign=False)
    main.commit("change")
    assert tag.object("z").reader(pre_sign=False).read() == b"z"
    tag.delete()
    with pytest.raises(NotFoundException):
        tag.get_commit()
    with pytest.raises(NotFoundException):
        tag.delete()


def test_objects_are_written_and_read(main: lakefs.Branch, presigned: bool) -> None:
    path = "in/ü b+c%20.bin"
    data = bytes(range(256)) * 400
    written = main.object(path).upload(
        data, pre_sign=presigned, content_type="image/png", metadata={"color": "red"}
    )
    stat = written.stat()
    assert stat.path == path
    assert stat.size_bytes == len(data)
    assert stat.content_type == "image/png"
    assert stat.metadata == {"color": "red"}
    assert abs(stat.mtime - now()) < 600
    assert stat.checksum
    assert "://" in stat.physical_address
    with written.reader(pre_sign=presigned) as reader:
        assert reader.read(3) == data[:3]
        assert reader.read(3) == data[3:6]
        reader.seek(-5, 2)
        assert reader.read() == data[-5:]
        reader.seek(len(data) + 10)
        assert reader.read(4) == b""
        reader.seek(0)
        assert reader.read() == data
    text = main.object("in/text").upload("one\ntwo\n", pre_sign=presigned)
    assert list(text.reader("r", pre_sign=presigned)) == ["one\n", "two\n"]
    empty = main.object("in/empty").upload(b"", pre_sign=presigned)
    assert empty.stat().size_bytes == 0
    assert empty.reader(pre_sign=presigned).read() == b""
    assert written.exists()
    assert not main.object("in/nothing").exists()
    with pytest.raises(ObjectNotFoundException):
        main.object("in/nothing").reader(pre_sign=presigned).read()
    with pytest.raises(ObjectNotFoundException):
        main.object("in/nothing").stat()


def test_an_exclusive_write_finds_what_exists(main: lakefs.Branch, presigned: bool) -> None:
    fresh = main.object("only-once")
    with fresh.writer("x", pre_sign=presigned) as first:
        first.write("1")
        main.object("only-once").upload("0", pre_sign=presigned)
        with pytest.raises(ObjectExistsException):
            first.close()
    assert fresh.reader(pre_sign=presigned).read() == b"0"
    with pytest.raises(ObjectExistsException):
        main.object("raw/a").upload("2", "x", pre_sign=presigned)
    main.object("new").upload("3", "xb", pre_sign=presigned)


@pytest.mark.uses("getPhysicalAddress")
def test_a_presigned_address_is_a_link(main: lakefs.Branch) -> None:
    import urllib.request

    (linked,) = main.objects(prefix="z", presign=True)
    assert linked.physical_address.startswith("http")
    stat = main.object("z").stat(pre_sign=True)
    with urllib.request.urlopen(stat.physical_address, timeout=30) as answer:
        assert answer.read() == b"z"
    assert stat.physical_address_expiry is not None
    assert stat.physical_address_expiry > now()


@pytest.mark.uses("copyObject", "getObject")
def test_an_object_is_copied_and_deleted(main: lakefs.Branch, repo: lakefs.Repository) -> None:
    dev = repo.branch("dev").create("main")
    main.object("m").upload("1", pre_sign=False, content_type="a/b", metadata={"k": "v"})
    copy = main.object("m").copy("dev", "copies/m")
    stat = dev.object("copies/m").stat()
    assert (stat.content_type, stat.metadata, stat.size_bytes) == ("a/b", {"k": "v"}, 1)
    assert copy.reader(pre_sign=False).read() == b"1"
    with pytest.raises(NotFoundException):
        main.object("nothing").copy("dev", "copies/n")
    copy.delete()
    assert not copy.exists()
    copy.delete()
    with pytest.raises(ObjectNotFoundException):
        repo.branch(NOBODY).object("x").delete()
    dev.delete_objects(["raw/a", "raw/never-there"])
    dev.delete_objects(main.object("z"))
    assert paths(dev.objects()) == ["raw/b"]


def test_listings(main: lakefs.Branch, repo: lakefs.Repository) -> None:
    for path in ("raw/2024/x", "raw/2025/y", "raw-not"):
        main.object(path).upload("", pre_sign=False)
    everything = ["raw-not", "raw/2024/x", "raw/2025/y", "raw/a", "raw/b", "z"]
    assert paths(main.objects()) == everything
    assert paths(main.objects(amount=2)) == everything
    assert paths(main.objects(amount=2, max_amount=3)) == everything[:3]
    assert paths(main.objects(after="raw/2025/y")) == everything[3:]
    assert paths(main.objects(prefix="raw/")) == everything[1:5]
    by_folder = list(main.objects(prefix="raw/", delimiter="/", amount=2))
    assert paths(by_folder) == ["raw/2024/", "raw/2025/", "raw/a", "raw/b"]
    kinds = [type(each) for each in by_folder]
    assert kinds == [CommonPrefix, CommonPrefix, ObjectInfo, ObjectInfo]
    after = main.objects(prefix="raw/", delimiter="/", after="raw/2024/")
    assert paths(after) == ["raw/2025/", "raw/a", "raw/b"]
    assert paths(main.objects(prefix="none")) == []
    with pytest.raises(NotFoundException):
        list(repo.ref(NOBODY).objects())


def test_uncommitted_changes(main: lakefs.Branch, repo: lakefs.Repository) -> None:
    assert list(main.uncommitted()) == []
    main.object("raw/a").upload("changed", pre_sign=False)
    main.object("raw/c").upload("new", pre_sign=False)
    main.object("z").delete()
    expected = [("changed", "raw/a"), ("added", "raw/c"), ("removed", "z")]
    assert changes(main.uncommitted()) == expected
    assert changes(main.uncommitted(amount=1)) == expected
    assert changes(main.uncommitted(prefix="raw/", after="raw/a")) == expected[1:2]
    assert changes(main.uncommitted(delimiter="/")) == [
        ("prefix_changed", "raw/"),
        ("removed", "z"),
    ]
    (first, *_) = main.uncommitted()
    assert (first.path_type, first.size_bytes) == ("object", len("changed"))
    main.reset_changes("object", "raw/a")
    assert changes(main.uncommitted()) == expected[1:]
    main.reset_changes("common_prefix", "raw/")
    assert changes(main.uncommitted()) == expected[2:]
    main.reset_changes()
    assert changes(main.uncommitted()) == []
    with pytest.raises(NotFoundException):
        list(repo.branch(NOBODY).uncommitted())


def test_a_commit_has_the_date_of_its_author(main: lakefs.Branch) -> None:
    made = main.commit("old", date=1_700_000_000, allow_empty=True).get_commit()
    assert made.creation_date == 1_700_000_000


@pytest.mark.uses("getObject")
def test_commits(main: lakefs.Branch, repo: lakefs.Repository) -> None:
    first = main.get_commit()
    assert (first.message, first.metadata, len(first.id)) == ("load", {}, 64)
    assert abs(first.creation_date - now()) < 600
    assert first.committer
    with pytest.raises(BadRequestException) as caught:
        main.commit("nothing")
    assert "no changes" in caught.value.body["message"]
    main.object("z").upload("2", pre_sign=False)
    made = main.commit("change z", metadata={"job": "nightly", "run": "7"})
    commit = made.get_commit()
    assert (commit.message, commit.metadata) == ("change z", {"job": "nightly", "run": "7"})
    assert commit.parents == [first.id]
    empty = main.commit("nothing", allow_empty=True).get_commit()
    assert empty.parents == [commit.id]
    assert empty.meta_range_id == commit.meta_range_id
    log = list(main.log(amount=2))
    assert [each.id for each in log[:3]] == [empty.id, commit.id, first.id]
    assert len(log) == 4
    assert log[3].parents == []
    assert [each.id for each in main.log(max_amount=1)] == [empty.id]
    assert [each.id for each in main.log(objects=["z"])] == [commit.id, first.id]
    assert [each.id for each in main.log(prefixes=["raw/"])] == [first.id]
    expressions = {"main~1": commit.id, "main^1": commit.id, "main~2": first.id, "main@": empty.id}
    for expression, expected in {**expressions, commit.id[:16]: commit.id}.items():
        assert repo.ref(expression).get_commit().id == expected, expression
    main.object("z").upload("3", pre_sign=False)
    assert repo.ref("main").object("z").reader(pre_sign=False).read() == b"3"
    assert repo.ref("main@").object("z").reader(pre_sign=False).read() == b"2"
    for unknown in (NOBODY, "0" * 64):
        with pytest.raises(NotFoundException):
            repo.ref(unknown).get_commit()
    with pytest.raises(NotFoundException):
        list(repo.ref(NOBODY).log())


def test_differences(main: lakefs.Branch, repo: lakefs.Repository) -> None:
    dev = repo.branch("dev").create("main")
    assert list(main.diff(dev)) == []
    dev.object("raw/a").upload("dev", pre_sign=False)
    dev.object("raw/c").upload("dev", pre_sign=False)
    dev.object("z").delete()
    dev.commit("work")
    expected = [("changed", "raw/a"), ("added", "raw/c"), ("removed", "z")]
    assert changes(main.diff(dev)) == expected
    assert changes(main.diff(dev, amount=1)) == expected
    assert changes(main.diff(dev, after="raw/a", max_amount=1)) == expected[1:2]
    assert changes(main.diff(dev, prefix="raw/")) == expected[:2]
    assert changes(main.diff(dev, delimiter="/")) == [("prefix_changed", "raw/"), ("removed", "z")]
    main.object("raw/a").upload("main", pre_sign=False)
    main.object("y").upload("main", pre_sign=False)
    main.commit("other work")
    assert changes(main.diff(dev))[1:] == expected[1:]
    two_dots = [("changed", "raw/a"), ("added", "raw/c"), ("removed", "y"), ("removed", "z")]
    assert changes(main.diff(dev, type="two_dot")) == two_dots
    with pytest.raises(NotFoundException):
        list(main.diff(NOBODY))


def test_what_both_sides_did_alike_is_no_difference(
    main: lakefs.Branch, repo: lakefs.Repository
) -> None:
    dev = repo.branch("dev").create("main")
    for branch in (dev, main):
        branch.object("new").upload("the same", pre_sign=False)
        branch.commit("mine")
    assert changes(main.diff(dev)) == []


def test_what_both_sides_changed_is_a_conflict(
    main: lakefs.Branch, repo: lakefs.Repository
) -> None:
    dev = repo.branch("dev").create("main")
    for branch in (dev, main):
        branch.object("raw/a").upload(branch.id, pre_sign=False)
        branch.commit("mine")
    assert changes(main.diff(dev)) == [("conflict", "raw/a")]


def test_a_merge_tells_what_it_was(main: lakefs.Branch, repo: lakefs.Repository) -> None:
    dev = repo.branch("dev").create("main")
    dev.object("x").upload("dev", pre_sign=False)
    dev.commit("work")
    dev.merge_into(main, metadata={"by": "test"})
    commit = main.get_commit()
    assert commit.message == "Merge 'dev' into 'main'"
    assert commit.metadata == {"by": "test", ".lakefs.merge.strategy": "default"}


def test_merges(main: lakefs.Branch, repo: lakefs.Repository) -> None:
    dev = repo.branch("dev").create("main")
    with pytest.raises(BadRequestException):
        dev.merge_into(main)
    dev.object("raw/c").upload("dev", pre_sign=False)
    work = dev.commit("work").get_commit()
    before = main.get_commit()
    merged = dev.merge_into(main, message="take it", metadata={"by": "test"})
    head = main.get_commit()
    assert merged == head.id
    assert head.parents == [before.id, work.id]
    assert head.message == "take it"
    assert head.metadata["by"] == "test"
    assert main.object("raw/c").exists()
    dev.object("raw/d").upload("dev", pre_sign=False)
    dev.commit("more work")
    dev.merge_into("main", squash_merge=True)
    assert len(main.get_commit().parents) == 1
    main.object("uncommitted").upload("1", pre_sign=False)
    dev.object("raw/e").upload("dev", pre_sign=False)
    dev.commit("still more work")
    with pytest.raises(BadRequestException) as caught:
        dev.merge_into(main)
    assert "uncommitted" in caught.value.body["message"]


@pytest.mark.parametrize(("strategy", "content"), [("source-wins", b"dev"), ("dest-wins", b"main")])
@pytest.mark.uses("getObject")
def test_conflicts(
    main: lakefs.Branch, repo: lakefs.Repository, strategy: str, content: bytes
) -> None:
    dev = repo.branch("dev").create("main")
    for branch in (dev, main):
        branch.object("raw/a").upload(branch.id, pre_sign=False)
        branch.commit(f"{branch.id} decides")
    head = main.get_commit()
    with pytest.raises(ConflictException) as caught:
        dev.merge_into(main)
    assert caught.value.status_code == 409
    assert "reference" in caught.value.body
    assert main.get_commit().id == head.id
    merged = dev.merge_into(main, strategy=strategy)
    assert main.object("raw/a").reader(pre_sign=False).read() == content
    assert repo.commit(merged).get_commit().id == main.get_commit().id


@pytest.mark.uses("getObject")
def test_revert(main: lakefs.Branch, repo: lakefs.Repository) -> None:
    main.object("z").upload("2", pre_sign=False)
    bad = main.commit("bad")
    main.object("y").upload("1", pre_sign=False)
    good = main.commit("good").get_commit()
    reverted = main.revert(bad)
    assert reverted.parents == [good.id]
    assert main.object("z").reader(pre_sign=False).read() == b"z"
    assert main.object("y").exists()
    dev = repo.branch("dev").create("main")
    dev.object("x").upload("1", pre_sign=False)
    dev.commit("work")
    merged = dev.merge_into(main)
    main.revert(merged, parent_number=1)
    assert not main.object("x").exists()
    with pytest.raises(NotFoundException):
        main.revert(NOBODY)
    main.object("z").upload("3", pre_sign=False)
    main.commit("three")
    with pytest.raises(ConflictException):
        main.revert(bad)


def test_the_revert_of_a_merge_needs_a_parent(main: lakefs.Branch, repo: lakefs.Repository) -> None:
    dev = repo.branch("dev").create("main")
    dev.object("x").upload("1", pre_sign=False)
    dev.commit("work")
    merged = dev.merge_into(main)
    with pytest.raises(ConflictException):
        main.revert(merged)


def test_a_picked_commit_keeps_its_metadata(main: lakefs.Branch, repo: lakefs.Repository) -> None:
    dev = repo.branch("dev").create("main")
    dev.object("y").upload("1", pre_sign=False)
    wanted = dev.commit("this", metadata={"k": "2"}).get_commit()
    expected = {
        "k": "2",
        "cherry-pick-origin": wanted.id,
        "cherry-pick-committer": wanted.committer,
    }
    assert main.cherry_pick(wanted).metadata.items() >= expected.items()


def test_cherry_pick(main: lakefs.Branch, repo: lakefs.Repository) -> None:
    dev = repo.branch("dev").create("main")
    dev.object("x").upload("1", pre_sign=False)
    dev.commit("not this", metadata={"k": "1"})
    dev.object("y").upload("1", pre_sign=False)
    wanted = dev.commit("this", metadata={"k": "2"}).get_commit()
    head = main.get_commit()
    picked = main.cherry_pick(wanted)
    assert (picked.message, picked.parents) == ("this", [head.id])
    assert paths(main.objects()) == ["raw/a", "raw/b", "y", "z"]
    with pytest.raises(NotFoundException):
        main.cherry_pick(NOBODY)
    main.object("x").upload("main", pre_sign=False)
    main.commit("own x")
    with pytest.raises(ConflictException):
        main.cherry_pick("dev~1")


def test_a_transaction_merges_or_leaves_nothing(
    main: lakefs.Branch, repo: lakefs.Repository
) -> None:
    with main.transact(commit_message="all of it", tag="release") as transaction:
        transaction.object("t").upload("1", pre_sign=False)
        transaction.object("z").delete()
        assert not main.object("t").exists()
    assert paths(main.objects()) == ["raw/a", "raw/b", "t"]
    assert repo.tag("release").get_commit().id == main.get_commit().id
    with pytest.raises(ZeroDivisionError), main.transact() as transaction:  # noqa: PT012 - the block fails
        transaction.object("u").upload("1", pre_sign=False)
        raise ZeroDivisionError
    assert paths(main.objects()) == ["raw/a", "raw/b", "t"]
    assert [each.id for each in repo.branches()] == ["main"]


def test_who_is_not_known_is_not_authorized(
    lake_server: RestServer, repo: lakefs.Repository
) -> None:
    for key, secret in (
        (lake_server.access_key_id, "wrong" * 8),
        ("AKIAJNOBODYOFTHISNAQ", lake_server.secret_access_key),
    ):
        stranger = Client(host=lake_server.url, username=key, password=secret)
        with pytest.raises(NotAuthorizedException) as caught:
            list(lakefs.Repository(repo.id, stranger).branches())
        assert caught.value.status_code == 401
        with pytest.raises(PermissionException):
            lakefs.Repository(repo.id, stranger).branch("main").object("x").stat()
        with pytest.raises(NotAuthorizedException):
            _ = stranger.version


@pytest.mark.uses("setBranchProtectionRules", "uploadObject")
def test_a_protected_branch_takes_no_writes(repo: lakefs.Repository, client: Client) -> None:
    from lakefs_sdk.models import BranchProtectionRule

    client.sdk_client.repositories_api.set_branch_protection_rules(
        repo.id, [BranchProtectionRule(pattern="ma*")]
    )
    main = repo.branch("main")
    with pytest.raises(ForbiddenException):
        main.object("x").upload("1", pre_sign=False)
    with pytest.raises(PermissionException):
        main.object("z").delete()
    with pytest.raises(ForbiddenException):
        main.commit("nothing", allow_empty=True)
    dev = repo.branch("dev").create("main")
    dev.object("x").upload("1", pre_sign=False)
    dev.commit("work")
    dev.merge_into(main)
    assert main.object("x").exists()


def test_the_version_is_one_that_clients_compare(client: Client) -> None:
    assert [int(part) for part in client.version.split(".")] > [1, 0]
