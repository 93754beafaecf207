"""A day's work with `lakefs-sdk`, the peer's generated library: what the wrapper does not offer."""

from __future__ import annotations

import json
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import lakefs
import lakefs_sdk
import pytest
from lakefs_sdk import models
from lakefs_sdk.client import LakeFSClient
from lakefs_sdk.exceptions import (
    ApiException,
    ForbiddenException,
    NotFoundException,
    UnauthorizedException,
)
from rest_clients import now, sdk_of
from rest_server import RestServer
from s3_stores import client as bucket_client
from slowness import scaled


def refused(status: int, call: Callable[..., Any], *arguments: Any, **more: Any) -> Any:
    """Returns the body of a refusal, which has this status and a message."""
    with pytest.raises(ApiException) as caught:
        call(*arguments, **more)
    assert caught.value.status == status, caught.value
    body = json.loads(caught.value.body)
    assert body["message"]
    return body


def test_the_configuration_says_what_the_server_can_do(sdk: LakeFSClient) -> None:
    config = sdk.config_api.get_config()
    assert config.version_config.version
    storage = config.storage_config
    assert storage.blockstore_type in ("s3", "local")
    assert storage.blockstore_namespace_example
    assert storage.blockstore_namespace_validity_regex
    assert sdk.health_check_api.health_check() is None
    # hadoop-lakefs asks in the old way.
    with pytest.warns(DeprecationWarning, match="/config/storage"):
        assert sdk.internal_api.get_storage_config() == storage


def test_errors_have_a_status_and_a_message(lake_server: RestServer, main: lakefs.Branch) -> None:
    sdk = sdk_of(lake_server)
    repository = main.repo_id
    refused(404, sdk.repositories_api.get_repository, "nobody-knows-it")
    refused(404, sdk.branches_api.get_branch, repository, "nobody-knows-it")
    refused(404, sdk.commits_api.get_commit, repository, "0" * 64)
    refused(404, sdk.objects_api.stat_object, repository, "main", "nothing")
    refused(404, sdk.objects_api.list_objects, repository, "nobody-knows-it")
    refused(404, sdk.tags_api.get_tag, repository, "nobody-knows-it")
    creation = models.BranchCreation(name="main", source="main")
    refused(409, sdk.branches_api.create_branch, repository, creation)
    refused(400, sdk.commits_api.commit, repository, "main", models.CommitCreation(message="no"))
    with pytest.raises(NotFoundException):
        sdk.objects_api.head_object(repository, "main", "nothing")


@pytest.mark.parametrize(
    "keys",
    [
        {"password": "wrong" * 8},
        {"username": "AKIAJNOBODYOFTHISNAQ"},
        {"access_token": "no.such.token"},
    ],
)
def test_who_is_not_known_is_unauthorized(lake_server: RestServer, keys: dict[str, str]) -> None:
    stranger = sdk_of(lake_server, **keys)
    with pytest.raises(UnauthorizedException):
        stranger.repositories_api.list_repositories()


def test_a_token_is_as_good_as_a_key(lake_server: RestServer, sdk: LakeFSClient) -> None:
    login = models.LoginInformation(
        access_key_id=lake_server.access_key_id, secret_access_key=lake_server.secret_access_key
    )
    token = sdk.auth_api.login(login)
    assert token.token_expiration > now()
    by_token = LakeFSClient(
        lakefs_sdk.Configuration(host=lake_server.url, access_token=token.token)
    )
    mine = by_token.auth_api.get_current_user().user
    assert mine == sdk.auth_api.get_current_user().user
    assert mine.id
    wrong = models.LoginInformation(
        access_key_id=lake_server.access_key_id, secret_access_key="wrong"
    )
    refused(401, sdk.auth_api.login, wrong)


@pytest.mark.uses("uploadObject", "getObject")
def test_objects_pass_as_bodies_and_as_forms(
    lake_server: RestServer, sdk: LakeFSClient, repo: lakefs.Repository, tmp_path: Path
) -> None:
    file = tmp_path / "file"
    file.write_bytes(bytes(range(256)) * 1000)
    as_form = sdk.objects_api.upload_object(repo.id, "main", "form", content=str(file))
    assert (as_form.path, as_form.path_type) == ("form", "object")
    assert as_form.size_bytes == 256_000
    assert bytes(sdk.objects_api.get_object(repo.id, "main", "form")) == file.read_bytes()
    part = sdk.objects_api.get_object_with_http_info(repo.id, "main", "form", range="bytes=0-9")
    assert part.status_code == 206
    assert bytes(part.data) == bytes(range(10))
    assert part.headers["Content-Range"] == "bytes 0-9/256000"
    whole = sdk.objects_api.get_object_with_http_info(repo.id, "main", "form")
    etag = whole.headers["ETag"]
    assert as_form.checksum in etag
    with pytest.raises(ApiException) as caught:
        sdk.objects_api.get_object(repo.id, "main", "form", if_none_match=etag)
    assert caught.value.status == 304
    with pytest.raises(ApiException) as caught:
        sdk.objects_api.get_object(repo.id, "main", "form", range="bytes=300000-")
    assert caught.value.status == 416
    refused(
        412,
        sdk.objects_api.upload_object,
        repo.id,
        "main",
        "form",
        content=str(file),
        if_none_match="*",
    )
    head = sdk.objects_api.head_object_with_http_info(repo.id, "main", "form")
    assert head.headers["Content-Length"] == "256000"


def test_many_objects_are_deleted_at_once(sdk: LakeFSClient, main: lakefs.Branch) -> None:
    done = sdk.objects_api.delete_objects(
        main.repo_id, "main", models.PathList(paths=["raw/a", "raw/b", "never-there"])
    )
    assert done.errors in (None, [])
    assert [each.path for each in main.objects()] == ["z"]
    too_many = models.PathList(paths=[f"{number}" for number in range(1001)])
    refused(400, sdk.objects_api.delete_objects, main.repo_id, "main", too_many)


def test_a_page_says_where_the_next_one_begins(sdk: LakeFSClient, main: lakefs.Branch) -> None:
    page = sdk.objects_api.list_objects(main.repo_id, "main", amount=2)
    assert [each.path for each in page.results] == ["raw/a", "raw/b"]
    assert (page.pagination.has_more, page.pagination.results) == (True, 2)
    assert page.pagination.max_per_page == 1000
    rest = sdk.objects_api.list_objects(
        main.repo_id, "main", amount=2, after=page.pagination.next_offset
    )
    assert [each.path for each in rest.results] == ["z"]
    assert (rest.pagination.has_more, rest.pagination.next_offset) == (False, "")
    (stat,) = sdk.objects_api.list_objects(main.repo_id, "main", prefix="z").results
    assert (stat.path_type, stat.size_bytes, len(stat.checksum)) == ("object", 1, 32)
    folders = sdk.objects_api.list_objects(main.repo_id, "main", delimiter="/", amount=1)
    assert [(each.path, each.path_type) for each in folders.results] == [("raw/", "common_prefix")]
    assert folders.pagination.has_more


@pytest.mark.uses("getPhysicalAddress", "linkPhysicalAddress", "getObject")
def test_an_address_is_staged_by_its_owner(sdk: LakeFSClient, main: lakefs.Branch) -> None:
    """What lakectl, hadoop-lakefs and the wrapper do with presigned links."""
    place = sdk.staging_api.get_physical_address(main.repo_id, "main", "direct", presign=True)
    assert place.presigned_url_expiry > now()
    request = urllib.request.Request(place.presigned_url, b"12345", method="PUT")
    request.add_header("Content-Type", "application/octet-stream")
    with urllib.request.urlopen(request, timeout=30) as answer:
        etag = answer.headers["ETag"].strip('"')
    metadata = models.StagingMetadata(
        staging=place,
        checksum=etag,
        size_bytes=5,
        user_metadata={"k": "v"},
        content_type="text/plain",
    )
    stat = sdk.staging_api.link_physical_address(main.repo_id, "main", "direct", metadata)
    assert (stat.path, stat.size_bytes, stat.checksum) == ("direct", 5, etag)
    assert (stat.content_type, stat.metadata) == ("text/plain", {"k": "v"})
    assert bytes(sdk.objects_api.get_object(main.repo_id, "main", "direct")) == b"12345"


@pytest.mark.uses("getPhysicalAddress", "linkPhysicalAddress")
def test_a_linked_object_keeps_its_time(sdk: LakeFSClient, main: lakefs.Branch) -> None:
    place = sdk.staging_api.get_physical_address(main.repo_id, "main", "old", presign=True)
    request = urllib.request.Request(place.presigned_url, b"1", method="PUT")
    with urllib.request.urlopen(request, timeout=30) as answer:
        etag = answer.headers["ETag"].strip('"')
    metadata = models.StagingMetadata(
        staging=place, checksum=etag, size_bytes=1, mtime=1_700_000_000
    )
    stat = sdk.staging_api.link_physical_address(main.repo_id, "main", "old", metadata)
    assert stat.mtime == 1_700_000_000


@pytest.mark.uses("getPhysicalAddress")
def test_an_address_is_given_without_a_link(sdk: LakeFSClient, main: lakefs.Branch) -> None:
    """What hadoop-lakefs asks for before it writes to the block store itself (access mode simple)."""
    place = sdk.staging_api.get_physical_address(main.repo_id, "main", "simple")
    assert "://" in place.physical_address
    assert place.presigned_url is None
    other = sdk.staging_api.get_physical_address(main.repo_id, "main", "simple")
    assert other.physical_address != place.physical_address


@pytest.mark.beyond_the_peer
@pytest.mark.uses("getPhysicalAddress", "linkPhysicalAddress")
def test_an_address_is_good_for_one_object(sdk: LakeFSClient, main: lakefs.Branch) -> None:
    place = sdk.staging_api.get_physical_address(main.repo_id, "main", "once", presign=True)
    request = urllib.request.Request(place.presigned_url, b"1", method="PUT")
    with urllib.request.urlopen(request, timeout=30) as answer:
        etag = answer.headers["ETag"].strip('"')
    metadata = models.StagingMetadata(staging=place, checksum=etag, size_bytes=1)
    link = sdk.staging_api.link_physical_address
    link(main.repo_id, "main", "once", metadata)
    refused(400, link, main.repo_id, "main", "elsewhere", metadata)
    for address in ("s3://of-others/secret", f"{place.physical_address}x"):
        foreign = models.StagingLocation(physical_address=address)
        other = models.StagingMetadata(staging=foreign, checksum=etag, size_bytes=1)
        refused(400, link, main.repo_id, "main", "elsewhere", other)


@pytest.mark.uses(
    "createPresignMultipartUpload",
    "completePresignMultipartUpload",
    "abortPresignMultipartUpload",
    "getObject",
)
def test_parts_are_uploaded_by_presigned_links(sdk: LakeFSClient, main: lakefs.Branch) -> None:
    api = sdk.experimental_api
    upload = api.create_presign_multipart_upload(main.repo_id, "main", "large", parts=2)
    bodies = (b"x" * (5 << 20), b"end")
    parts = []
    for number, (url, body) in enumerate(zip(upload.presigned_urls, bodies, strict=True), 1):
        request = urllib.request.Request(url, body, method="PUT")
        with urllib.request.urlopen(request, timeout=60) as answer:
            parts.append(models.UploadPart(part_number=number, etag=answer.headers["ETag"]))
    done = api.complete_presign_multipart_upload(
        main.repo_id,
        "main",
        upload.upload_id,
        "large",
        complete_presign_multipart_upload=models.CompletePresignMultipartUpload(
            physical_address=upload.physical_address,
            parts=parts,
            user_metadata={"k": "v"},
            content_type="a/b",
        ),
    )
    assert (done.size_bytes, done.content_type) == ((5 << 20) + 3, "a/b")
    assert bytes(sdk.objects_api.get_object(main.repo_id, "main", "large", range="bytes=-4")) == (
        b"xend"
    )
    other = api.create_presign_multipart_upload(main.repo_id, "main", "gone", parts=1)
    api.abort_presign_multipart_upload(
        main.repo_id,
        "main",
        other.upload_id,
        "gone",
        abort_presign_multipart_upload=models.AbortPresignMultipartUpload(
            physical_address=other.physical_address
        ),
    )


@pytest.mark.uses("updateObjectUserMetadata")
def test_the_user_metadata_of_an_object_is_replaced(sdk: LakeFSClient, main: lakefs.Branch) -> None:
    main.object("m").upload("1", pre_sign=False, metadata={"old": "1"})
    sdk.experimental_api.update_object_user_metadata(
        main.repo_id, "main", "m", models.UpdateObjectUserMetadata(set={"new": "2"})
    )
    stat = sdk.objects_api.stat_object(main.repo_id, "main", "m")
    assert stat.metadata == {"new": "2"}


@pytest.mark.uses("setBranchProtectionRules", "getBranchProtectionRules")
def test_a_protected_branch_takes_no_changes(sdk: LakeFSClient, repo: lakefs.Repository) -> None:
    repositories = sdk.repositories_api
    rules = [models.BranchProtectionRule(pattern="main"), models.BranchProtectionRule(pattern="v*")]
    repositories.set_branch_protection_rules(repo.id, rules)
    got = repositories.get_branch_protection_rules_with_http_info(repo.id)
    assert sorted(each.pattern for each in got.data) == ["main", "v*"]
    etag = got.headers["ETag"]
    refused(
        412,
        repositories.set_branch_protection_rules,
        repo.id,
        rules[:1],
        if_match="bm90IHRoYXQgb25l",
    )
    commit = models.CommitCreation(message="no", allow_empty=True)
    refused(403, sdk.commits_api.commit, repo.id, "main", commit)
    with pytest.raises(ForbiddenException):
        sdk.objects_api.delete_object(repo.id, "main", "z")
    repositories.set_branch_protection_rules(repo.id, [], if_match=etag)
    assert repositories.get_branch_protection_rules(repo.id) == []


@pytest.mark.uses("getGCRules", "setGCRules", "deleteGCRules")
def test_garbage_collection_rules(sdk: LakeFSClient, repo: lakefs.Repository) -> None:
    repositories = sdk.repositories_api
    refused(404, repositories.get_gc_rules, repo.id)
    for days in (28, 7):
        rules = models.GarbageCollectionRules(
            default_retention_days=21,
            branches=[models.GarbageCollectionRule(branch_id="main", retention_days=days)],
        )
        repositories.set_gc_rules(repo.id, rules)
        assert repositories.get_gc_rules(repo.id) == rules
    repositories.delete_gc_rules(repo.id)
    refused(404, repositories.get_gc_rules, repo.id)


def test_a_merge_base_is_found(sdk: LakeFSClient, main: lakefs.Branch) -> None:
    base = main.get_commit().id
    lakefs.Branch(main.repo_id, "dev", main._client).create("main")
    main.object("x").upload("1", pre_sign=False)
    head = main.commit("ahead").id
    found = sdk.refs_api.find_merge_base(main.repo_id, "dev", "main")
    # lakeFS answers these two the other way round.
    assert {found.source_commit_id, found.destination_commit_id} == {base, head}
    assert found.base_commit_id == base


def test_a_conflict_has_a_body_of_its_own(sdk: LakeFSClient, main: lakefs.Branch) -> None:
    dev = lakefs.Branch(main.repo_id, "dev", main._client).create("main")
    for branch in (dev, main):
        branch.object("raw/a").upload(branch.id, pre_sign=False)
        branch.commit("mine")
    with pytest.raises(ApiException) as caught:
        sdk.refs_api.merge_into_branch(main.repo_id, "dev", "main")
    assert caught.value.status == 409
    models.MergeResult(**json.loads(caught.value.body))


@pytest.mark.uses("hardResetBranch")
def test_a_hard_reset_moves_a_branch(sdk: LakeFSClient, main: lakefs.Branch) -> None:
    before = main.get_commit().id
    main.object("x").upload("1", pre_sign=False)
    main.commit("wrong")
    sdk.experimental_api.hard_reset_branch(main.repo_id, "main", before)
    assert main.get_commit().id == before
    assert not main.object("x").exists()


@pytest.mark.beyond_the_peer
@pytest.mark.uses("createCredentials", "listUserCredentials", "getCredentials", "deleteCredentials")
def test_keys_are_created_used_and_deleted(lake_server: RestServer, sdk: LakeFSClient) -> None:
    me = sdk.auth_api.get_current_user().user.id
    before = {each.access_key_id for each in sdk.auth_api.list_user_credentials(me).results}
    assert lake_server.access_key_id in before
    made = sdk.auth_api.create_credentials(me)
    assert made.access_key_id not in before
    assert made.secret_access_key
    assert abs(made.creation_date - now()) < 600
    again = sdk_of(lake_server, username=made.access_key_id, password=made.secret_access_key)
    assert again.auth_api.get_current_user().user.id == me
    shown = sdk.auth_api.get_credentials(me, made.access_key_id)
    assert shown.access_key_id == made.access_key_id
    sdk.auth_api.delete_credentials(me, made.access_key_id)
    refused(404, sdk.auth_api.get_credentials, me, made.access_key_id)


@pytest.mark.beyond_the_peer
@pytest.mark.uses("createUser", "getUser", "deleteUser", "listUsers", "createCredentials")
def test_users(lake_server: RestServer, sdk: LakeFSClient) -> None:
    name = lake_server.new_name("user")
    made = sdk.auth_api.create_user(models.UserCreation(id=name))
    assert made.id == name
    assert sdk.auth_api.get_user(name).id == name
    refused(409, sdk.auth_api.create_user, models.UserCreation(id=name))
    keys = sdk.auth_api.create_credentials(name)
    theirs = sdk_of(lake_server, username=keys.access_key_id, password=keys.secret_access_key)
    assert theirs.auth_api.get_current_user().user.id == name
    with pytest.raises(ForbiddenException):
        theirs.auth_api.create_user(models.UserCreation(id=f"{name}-2"))
    listed = sdk.auth_api.list_users(prefix=name)
    assert [each.id for each in listed.results] == [name]
    sdk.auth_api.delete_user(name)
    refused(404, sdk.auth_api.get_user, name)


@pytest.mark.uses(
    *("createPullRequest", "getPullRequest", "listPullRequests"),
    *("updatePullRequest", "mergePullRequest"),
)
def test_a_pull_request(sdk: LakeFSClient, main: lakefs.Branch) -> None:
    pulls, repository = sdk.pulls_api, main.repo_id
    dev = lakefs.Branch(repository, "dev", main._client).create("main")
    dev.object("pulled").upload("1", pre_sign=False)
    dev.commit("m")
    creation = models.PullRequestCreation(
        title="Merge dev", source_branch="dev", destination_branch="main"
    )
    pull_id = pulls.create_pull_request(repository, creation).id
    pulls.update_pull_request(
        repository, pull_id, models.PullRequestBasic(title="Better", description="why")
    )
    found = pulls.get_pull_request(repository, pull_id)
    assert (found.status, found.title, found.description) == ("open", "Better", "why")
    assert (found.source_branch, found.destination_branch) == ("dev", "main")
    assert abs(found.creation_date.timestamp() - now()) < 600
    (listed,) = pulls.list_pull_requests(repository, status="open").results
    assert listed.id == pull_id
    made = pulls.merge_pull_request(repository, pull_id)
    merged = pulls.get_pull_request(repository, pull_id)
    assert (merged.status, merged.merged_commit_id) == ("merged", made.reference)
    assert main.object("pulled").exists()
    assert pulls.list_pull_requests(repository, status="open").results == []
    refused(404, pulls.get_pull_request, repository, "nobody-knows-it")


@pytest.mark.uses("createSymlinkFile")
def test_a_manifest_leads_to_the_bytes_of_the_objects_of_a_directory(
    lake_server: RestServer, sdk: LakeFSClient, main: lakefs.Branch
) -> None:
    bucket = bucket_client(lake_server.bucket_endpoint)

    def read(address: str) -> str:
        name, _, key = address.removeprefix("s3://").partition("/")
        text: str = bucket.get_object(Bucket=name, Key=key)["Body"].read().decode()
        return text

    def manifest(location: str) -> list[str]:
        made = sdk.internal_api.create_symlink_file(main.repo_id, "main", location=location)
        lines = read(f"{made.location}/{main.repo_id}/main/raw/symlink.txt").splitlines()
        return [read(line) for line in lines]

    assert manifest("raw/") == ["raw/a", "raw/b"]
    main.object("raw/a").delete()
    main.object("raw/c").upload("raw/c", pre_sign=False)
    main.commit("others")
    assert manifest("raw/") == ["raw/b", "raw/c"]
    refused(404, sdk.internal_api.create_symlink_file, main.repo_id, "nobody-knows-it")


@pytest.mark.uses("getUsageReportSummary")
def test_the_usage_report_grows_with_requests(sdk: LakeFSClient, main: lakefs.Branch) -> None:
    def count() -> int:
        report = sdk.internal_api.get_usage_report_summary()
        assert report.installation_id
        return sum(each.count for each in report.reports)

    before = count()
    for _ in range(400):  # of several processes, each of which tells its count once a minute
        main.object("raw/a").stat()
    deadline = time.monotonic() + scaled(90)
    while count() < before + 400:
        assert time.monotonic() < deadline
        time.sleep(1)
