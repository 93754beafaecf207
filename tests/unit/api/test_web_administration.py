"""Administration in the web interface: settings, retention, users, key pairs, sessions, quotas, tasks, state."""

from __future__ import annotations

import asyncio
import json
from functools import partial
from pathlib import Path

import pytest
from audit_records import BEGIN_US, audit_record, write_audit
from lxml import html
from rest_service import Answer, Rest, basic, running_rest
from web_pages import NAMES, WebPage, WebUser

from tarn.client import ref_size
from tarn.client.staging_events import StagingEventClient
from tarn.collection import outcomes as collection_outcomes
from tarn.collection.block_names import BlockKind
from tarn.collection.outcomes import Report, write_report
from tarn.collection.quarantine import Manifest, Part, Tally, write_manifest
from tarn.core.errors import Kind, Reason, TarnError
from tarn.core.quota import Limits, QuotaKind
from tarn.kv.keys import RepositoryKeys
from tarn.telemetry.audit.record import AuditRecord, Outcome
from tarn.telemetry.audit.searching import search_audit
from tarn_api.web.links import to, to_repository
from tarn_api.web.pages import audit, collections
from tarn_graveler.views import diffing
from tarn_proto.graveler.v1 import settings_service_pb2 as pb
from tarn_proto.graveler.v1 import staging_event_service_pb2 as event_pb
from tarn_proto.graveler.v1.merge_service_pb2 import PreviewMergeRequest

LAKE = "/repositories/lake"
SETTINGS = f"{LAKE}/settings"


async def person(rest: Rest, user_id: str, *roles: str) -> WebUser:
    """Returns a new user who is signed in."""
    service = rest.service
    await service.auth.create_user(service.admin, user_id, roles)
    made = await service.auth.create_credential(service.admin, user_id=user_id)
    found = WebUser(rest)
    await found.sign_in(pair=(made.credential.access_key_id, made.secret_access_key))
    return found


def page_of(answer: Answer) -> WebPage:
    """Returns the page that answers a form."""
    return WebPage(answer, html.document_fromstring(answer.body))


async def settings_of(rest: Rest) -> pb.GetSettingsResponse:
    return await rest.service.graveler.get_settings(rest.service.admin, "lake")


async def test_branches_are_protected_and_freed(user: WebUser) -> None:
    await user.post("/users", {"name": "ci"})
    page = await user.page(SETTINGS)
    assert page.rows("Protections") == [["No branch is protected."]]
    fields = {"pattern": "release-*", "users": "ci", "role_Admin": "1", "block_force": ""}
    answer = await user.fill(page, "Protect", **fields)
    assert answer.headers["location"] == SETTINGS
    page = await user.page(SETTINGS)
    assert page.rows("Protections") == [
        ["release-*", "write, commit, delete", "ci, role Admin", "–", "Remove release-*"]  # noqa: RUF001
    ]
    answer = await user.fill(page, "Protect", pattern="main", review="1", approvals="2")
    assert answer.status == 303, answer.body
    [_, made] = (await settings_of(user.rest)).protections
    assert (made.pattern, made.review.approval_count, len(made.blocked)) == ("main", 2, 5)
    page = await user.page(SETTINGS)
    assert (
        page.rows("Protections")[1][3]
        == "2 approvals by others than the author; stale ones: ignore"
    )
    answer = await user.fill(page, "Remove release-*")
    assert answer.status == 303
    assert [each.pattern for each in (await settings_of(user.rest)).protections] == ["main"]


async def test_a_review_rule_has_all_its_parts(user: WebUser) -> None:
    page = await user.page(SETTINGS)
    fields = {"pattern": "main", "review": "1", "approvals": "0", "stale": "dismiss"}
    fields |= {"author_counts": "1", "covers_destination": "1", "block_delete": ""}
    answer = await user.fill(page, "Protect", owners="raw/=root\na=b/ = root, root", **fields)
    assert answer.status == 303, answer.body
    [made] = (await settings_of(user.rest)).protections
    owners = [pb.OwnerRule(prefix=each, user_ids=["root"]) for each in ("raw/", "a=b/")]
    assert made.review == pb.ReviewRule(
        author_counts=True, stale=pb.STALE_APPROVALS_DISMISS, covers_destination=True, owners=owners
    )
    assert pb.CHANGE_KIND_DELETE not in made.blocked
    [[*_, needs, _]] = (await user.page(SETTINGS)).rows("Protections")
    assert needs == (
        "0 approvals by anybody; stale ones: dismiss, also when the destination moves; "
        "raw/ of root; a=b/ of root"
    )


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"pattern": " "}, "the pattern is missing"),
        ({"block_write": "", "block_commit": "", "block_delete": "", "block_force": ""}, "at least one"),
        ({"review": "1", "approvals": ""}, "number of approvals"),
        ({"review": "1", "approvals": "11"}, "0 to 10"),
        ({"review": "1", "approvals": "1e1"}, "number of approvals"),
        ({"review": "1", "stale": "x"}, "stale approvals are one of"),
        ({"review": "1", "owners": "raw/"}, "PREFIX=USER"),
        ({"review": "1", "owners": "raw/= ,"}, "PREFIX=USER"),
    ],
)  # fmt: skip
async def test_a_wrong_protection_is_refused(
    user: WebUser, fields: dict[str, str], words: str
) -> None:
    page = await user.page(SETTINGS)
    answer = await user.fill(page, "Protect", **{"pattern": "x", **fields})
    assert answer.status == 400
    assert words in answer.body.decode()
    assert not (await settings_of(user.rest)).protections


async def test_a_change_that_another_one_overtook_is_refused(user: WebUser) -> None:
    """The page tells so, and nothing is lost: of every form of the record."""
    page = await user.page(SETTINGS)
    retention = await user.page(f"{LAKE}/retention")
    assert (await user.fill(page, "Hide", pattern="first")).status == 303
    overtaken = [
        await user.fill(page, "Hide", pattern="second"),
        await user.fill(page, "Protect", pattern="x"),
        await user.fill(page, "Make it read-only"),
        await user.fill(page, "Set", name="a", value="b"),
    ]
    preview = await user.fill(retention, "Show what would expire", rules="")
    assert preview.status == 200
    etag = retention.form("Show what would expire")[1]["etag"]
    overtaken.append(await user.post(f"{LAKE}/retention", {"etag": etag, "rules": ""}))
    for answer in overtaken:
        assert answer.status == 412
        assert b"Somebody else changed this meanwhile" in answer.body
    found = await settings_of(user.rest)
    assert (list(found.hidden_patterns), found.read_only, dict(found.metadata)) == (
        ["first"],
        False,
        {},
    )


@pytest.mark.parametrize(
    ("path", "fields"),
    [
        ("protect", {"pattern": "x", "block-write": "1"}),
        ("unprotect", {"pattern": "x"}),
        ("hide", {"pattern": "x"}),
        ("unhide", {"pattern": "x"}),
        ("read-only", {}),
        ("metadata", {"name": "x"}),
        ("metadata/remove", {"name": "x"}),
        ("default", {"branch": "main"}),
        ("views/delete", {"name": "shown"}),
        ("views/point", {"name": "shown", "ref": "main"}),
        ("views/publish", {"name": "shown"}),
    ],
)
async def test_no_change_is_made_without_a_version(
    user: WebUser, path: str, fields: dict[str, str]
) -> None:
    answer = await user.post(f"{SETTINGS}/{path}", fields)
    assert answer.status == 400
    assert b"is missing" in answer.body


async def test_read_only_default_branch_hidden_branches_and_metadata(user: WebUser) -> None:
    await user.post(f"{LAKE}/branches", {"name": "dev", "source": "main"})
    page = await user.page(SETTINGS)
    assert (await user.fill(page, "Make it the default", branch="dev")).status == 303
    assert (await user.fill(page, "Make it the default", branch="dev")).status == 412, (
        "it is dev now"
    )
    for button, fields in (
        ("Hide", {"pattern": "tmp-*"}),
        ("Set", {"name": "owner", "value": "ann & bob"}),
        ("Make it read-only", {}),
    ):
        assert (await user.fill(await user.page(SETTINGS), button, **fields)).status == 303
    page = await user.page(SETTINGS)
    assert page.rows("Hidden branches") == [["tmp-*", "Show again tmp-*"]]
    assert page.rows("Metadata") == [["owner", "ann & bob", "Remove owner"]]
    assert "The repository is read-only" in page.text
    found = await settings_of(user.rest)
    assert (found.read_only, found.default_branch_id) == (True, "dev")
    for button in ("Make it writable", "Show again tmp-*", "Remove owner"):
        assert (await user.fill(await user.page(SETTINGS), button)).status == 303
    found = await settings_of(user.rest)
    assert (found.read_only, list(found.hidden_patterns), dict(found.metadata)) == (False, [], {})


@pytest.mark.parametrize("name", NAMES)
async def test_names_in_settings_are_text(user: WebUser, name: str) -> None:
    service = user.rest.service
    etag = (await settings_of(user.rest)).etag
    etag = await service.graveler.set_metadata(service.admin, "lake", {name: name}, if_match=etag)
    made = pb.Protection(pattern=name, blocked=[pb.CHANGE_KIND_WRITE])
    rules = {"protections": [made], "hidden_patterns": [name]}
    await service.graveler.set_rules(service.admin, "lake", **rules, if_match=etag)  # type: ignore[arg-type]
    await user.post("/user/keys", {"user": "root", "description": name.replace("\n", "")[:100]})
    pages = [await user.page(SETTINGS), await user.page(to("user", id="root"))]
    pages.append(await user.page(to("user", id=name)))
    pages.append(await user.page(to("users", prefix=name)))
    pages.append(await user.page(f"{LAKE}/state?branch={name.encode().hex()}"))
    for page in pages:
        assert page.foreign == []
        assert not set("\u202e\u200b") & set(page.text)
    # What a browser sends back of it removes it.
    for path, field in (
        ("unprotect", "pattern"),
        ("unhide", "pattern"),
        ("metadata/remove", "name"),
    ):
        etag = (await settings_of(user.rest)).etag
        sent = {"etag": etag, field: name.replace("\n", "\r\n")}
        assert (await user.post(f"{SETTINGS}/{path}", sent)).status == 303
    found = await settings_of(user.rest)
    assert [len(each) for each in (found.protections, found.hidden_patterns, found.metadata)] == [
        0
    ] * 3


async def test_bucket_views_are_made_changed_and_deleted(user: WebUser) -> None:
    await user.post(f"{LAKE}/tags", {"name": "v1", "source": "main"})
    page = await user.page(SETTINGS)
    assert (await user.fill(page, "Create the view", name="shown")).status == 303
    page = await user.page(SETTINGS)
    assert [row[:3] for row in page.rows("Bucket views")] == [
        ["shown", "main", "who may read the repository"]
    ]
    assert (await user.fill(page, "Show it", ref="v1")).status == 303
    answer = await user.fill(page, "Let everybody read it shown")
    assert b"Somebody else changed this meanwhile" in answer.body
    answer = await user.fill(await user.page(SETTINGS), "Let everybody read it shown")
    assert answer.status == 303, answer.body
    page = await user.page(SETTINGS)
    assert [row[:3] for row in page.rows("Bucket views")] == [["shown", "v1", "everybody"]]
    answer = await user.fill(page, "Delete the view; what it shows stays shown")
    assert answer.status == 303
    page = await user.page(SETTINGS)
    assert page.rows("Bucket views") == [["No bucket view shows this repository."]]


async def test_quotas_are_shown_with_their_use_and_set(user: WebUser) -> None:
    page = await user.page(SETTINGS)
    assert ["Branches", "no limit", "1"] in page.rows("Limits")
    action, fields = page.form("Set the limits")
    for wrong in ("x", "-1", "1.5", "9" * 30):
        assert (await user.post(action, {**fields, "branches": wrong})).status == 400
    answer = await user.post(action, {**fields, "branches": "7", "staged_bytes": "2048"})
    assert answer.headers["location"] == SETTINGS
    page = await user.page(SETTINGS)
    assert ["Branches", "7", "1"] in page.rows("Limits")
    assert ["Staged bytes", "2.0 KiB", "0 B"] in page.rows("Limits")
    answer = await user.post(
        "/quotas", {"kind": "user", "name": "root", "requests_per_second": "900"}
    )
    assert answer.headers["location"] == "/user?id=root"
    assert ["Requests per second", "900", "–"] in (await user.page("/user?id=root")).rows("Limits")  # noqa: RUF001
    assert [row[0] for row in (await user.page("/quotas")).rows()] == [
        *("lake", "root (user)", "each other repository", "each other user")
    ]
    service = user.rest.service
    found = await service.graveler.get_quota(service.admin, QuotaKind.USER, "root")
    assert found.limits.requests_per_second == 900
    await user.post("/quotas", {"kind": "user", "name": "root"})
    await user.post("/quotas", {"kind": "repository", "name": "lake"})
    found = await service.graveler.get_quota(service.admin, QuotaKind.REPOSITORY, "lake")
    assert not found.is_set
    assert Limits(branches=found.limits.branches) == Limits()


RULES = '{"branches": [{"match": "*", "keep_commits": 1}], "tags": [{"match": "\\u202e<b>", "keep_days": 1}]}'


async def test_retention_rules_are_saved_after_their_effect_was_shown(user: WebUser) -> None:
    for number in range(3):
        await user.upload(f"{LAKE}/upload?branch=main", "f", b"x", path=f"p{number}")
        await user.post(f"{LAKE}/commit", {"branch": "main", "message": "m"})
    service = user.rest.service
    repository = await service.graveler.get_repository(service.admin, "lake")
    reflog = RepositoryKeys(f"test/lake-{repository.instance_uid}").reflog
    await service.replicas.kv.drop_partition(reflog)
    page = await user.page(f"{LAKE}/retention")
    assert "every commit keeps its objects" in page.text
    preview = page_of(await user.fill(page, "Show what would expire", rules=RULES))
    assert preview.status == 200
    assert "2 of 4 commits would expire now, and 0 tags would be deleted" in preview.text
    assert preview.rows() == [["branches *: keep_commits 1", "2"]]
    assert "\u202e" not in preview.text
    assert preview.foreign == []
    assert "every commit keeps its objects" in (await user.page(f"{LAKE}/retention")).text
    answer = await user.fill(preview, "Save these rules")
    assert answer.headers["location"] == f"{LAKE}/retention"
    page = await user.page(f"{LAKE}/retention")
    assert "\\u202e<b>" in page.text
    fields = page.form("Show what would expire")[1]
    assert json.loads(fields["rules"]) == json.loads(RULES)
    preview = page_of(await user.fill(page, "Show what would expire", rules=""))
    assert (await user.fill(preview, "Save these rules")).status == 303
    assert "every commit keeps its objects" in (await user.page(f"{LAKE}/retention")).text


async def test_rules_that_are_none_are_refused_before_they_are_tried(user: WebUser) -> None:
    page = await user.page(f"{LAKE}/retention")
    for wrong in ("{", "[]", '{"x": 1}', '{"branches": [{"match": "*"}]}'):
        answer = await user.fill(page, "Show what would expire", rules=wrong)
        assert answer.status == 400, wrong
        answer = await user.post(f"{LAKE}/retention", {"etag": "x", "rules": wrong})
        assert answer.status == 400, wrong


async def test_previews_are_bounded(user: WebUser, monkeypatch: pytest.MonkeyPatch) -> None:
    page = await user.page(f"{LAKE}/retention")
    show = "Show what would expire"
    monkeypatch.setattr("tarn_api.web.pages.retention._ROWS_MAX", 1)
    answer = await user.fill(page, show, rules=RULES)
    assert answer.status == 400
    assert b"more than 1 commits, branches and tags" in answer.body
    monkeypatch.undo()
    previewing = user.rest.endpoint._backend.previewing
    async with previewing:
        answer = await user.fill(page, show, rules=RULES)
        assert (answer.status, b"another preview" in answer.body) == (503, True)

    async def slow(*_: object, **__: object) -> None:
        await asyncio.sleep(3600)

    monkeypatch.setattr("tarn_api.web.pages.retention.preview_expiry", slow)
    monkeypatch.setattr("tarn_api.web.pages.retention.READ_S", 0.01)
    answer = await user.fill(page, show, rules=RULES)
    assert (answer.status, b"took longer" in answer.body) == (503, True)
    assert not previewing.locked()


async def test_users_are_made_given_roles_and_deleted(user: WebUser) -> None:
    answer = await user.post("/users", {"name": "ann", "role-Analyst": "1"})
    assert answer.headers["location"] == "/user?id=ann"
    assert user.rest.audit.records[-1].resource == "user/ann"
    assert [row[:2] for row in (await user.page("/users")).rows()] == [
        ["ann", "Analyst"],
        ["root", "Admin"],
    ]
    page = await user.page("/user?id=ann")
    assert (await user.fill(page, "Set the roles", role_Developer="1")).status == 303
    page = await user.page("/user?id=ann")
    assert "Developer, Analyst" in page.text
    answer = await user.fill(page, "Delete the user and all of its key pairs ann")
    assert answer.headers["location"] == "/users"
    assert (await user.page("/user?id=ann")).status == 404
    assert (await user.post("/user/delete", {"user": "root"})).status == 403, "oneself"
    assert (await user.post("/users", {"name": "a/b"})).status == 400


async def test_a_secret_is_shown_once_and_kept_nowhere(user: WebUser, rest: Rest) -> None:
    await user.post("/users", {"name": "ann", "role-Analyst": "1"})
    page = await user.page("/user?id=ann")
    answer = await user.fill(page, "Create a key pair", description="for <jobs>")
    assert (answer.status, answer.headers["cache-control"]) == (200, "no-store")
    key, secret = page_of(answer).root.xpath("//dd/code/text()")
    assert (await rest.ask("GET", "/user", caller=basic(key, secret))).json["user"]["id"] == "ann"
    page = await user.page("/user?id=ann")
    assert [row[:2] for row in page.rows("Key pairs")] == [[key, "for <jobs>"]]
    assert secret not in page.answer.body.decode()
    assert not any(secret in repr(each) for each in rest.audit.records)
    answer = await user.fill(page, f"Delete it; programs that use it are refused {key}")
    assert answer.status == 303
    assert (await user.page("/user?id=ann")).rows("Key pairs") == [["There is no key pair."]]
    own = rest.service.admin_key[0]
    answer = await user.post("/user/keys/delete", {"user": "root", "key": own})
    assert (answer.status, b"use another to delete it" in answer.body) == (403, True)


async def test_administrators_search_the_audit_log_page_by_page(tmp_path: Path) -> None:
    write_audit(
        tmp_path / "audit",
        "node",
        *(audit_record(each) for each in range(150)),
        audit_record(
            200,
            principal="ben",
            outcome=Outcome.DENIED,
            reason="ACCESS_DENIED",
            source="192.0.2.1:5",
        ),
    )
    async with running_rest(tmp_path / "rest", audit_folder=tmp_path / "audit") as rest:
        root = WebUser(rest)
        await root.sign_in()
        page = await root.page("/audit")
        assert len(page.rows("Records")) == 100
        assert page.rows("Records")[0][1:] == [
            *("ben", "s3:PutObject", "repository/lake/branch/main/object/a"),
            *("denied, ACCESS_DENIED", "192.0.2.1:5", "node", "r200"),
        ]
        assert "those of node-0. Records of services on other machines are not among" in page.text
        [more] = page.root.xpath("//p[@class='more']/a/@href")
        rest_of = await root.page(more)
        assert [row[-1] for row in rest_of.rows("Records")] == [f"r{n}" for n in range(50, -1, -1)]
        assert not rest_of.root.xpath("//p[@class='more']")
        page = await root.page(to("audit", user="ben", repository="lake", outcome="denied"))
        assert [row[-1] for row in page.rows("Records")] == ["r200"]
        page = await root.page(to("audit", since="2030-01-01"))
        assert page.rows("Records") == [["No record fits."]]
        for wrong in ({"outcome": "x"}, {"before": "-1"}, {"since": "x"}, {"repository": "a/b"}):
            assert (await root.page(to("audit", **wrong))).status == 400
        for role in ("Developer", "Analyst"):
            other = await person(rest, role.lower(), role)
            assert (await other.page("/audit")).status == 403
            assert "/audit" not in (await other.page("/administration")).links
        assert "/audit" in (await root.page("/administration")).links


def backup_record(time_us: int, command: str, step: str, pid: int, **fields: object) -> AuditRecord:
    about = {"step": step, "os_user": "tarn", "host": "one", "pid": pid, "target": "/backup/<b>"}
    outcome = Outcome.OK if step == "end" else Outcome.UNKNOWN
    operation = f"command:backup {command}"
    return audit_record(
        time_us, **{"operation": operation, "outcome": outcome, "details": about, **fields}
    )


async def test_backups_are_told_by_the_audit_log(tmp_path: Path) -> None:
    """The newest one first: one that runs or died, one that failed, and those that finished."""
    hour = 3_600_000_000
    folder = tmp_path / "audit"
    write_audit(folder, "node", backup_record(9 * hour, "create", "end", 1))
    failed = {"outcome": Outcome.UNKNOWN, "reason": "DEADLINE"}
    write_audit(
        folder,
        "command",
        backup_record(0, "create", "begin", 1),
        backup_record(hour, "create", "end", 1),
        backup_record(2 * hour, "prune", "begin", 2),
        backup_record(3 * hour, "prune", "end", 2),
        backup_record(4 * hour, "create", "begin", 1),
        backup_record(5 * hour, "create", "end", 1, **failed),
        audit_record(6 * hour, operation="command:kv dump"),
        backup_record(7 * hour, "create", "begin", 4),
    )
    async with running_rest(tmp_path / "rest", audit_folder=folder) as rest:
        root = WebUser(rest)
        await root.sign_in()
        assert "/backups" in (await root.page("/administration")).links
        page = await root.page("/backups")
        rows = page.rows("Commands")
        assert [(row[0], row[4]) for row in rows] == [
            ("create", "runs, or its process died"),
            ("create", "failed: DEADLINE"),
            ("prune", "finished"),
            ("create", "finished"),
        ]
        assert rows[0][3] == "\N{EN DASH}"
        assert {(row[1], row[5]) for row in rows} == {("/backup/<b>", "tarn on one")}
        assert rows[3][2] < rows[3][3] < rows[2][2]
        age = rest.service.clock.now_us() - BEGIN_US
        assert f"began {age // hour} hours ago" in page.text
        assert page.foreign == []
        other = await person(rest, "dev", "Developer")
        assert (await other.page("/backups")).status == 403
        assert "/backups" not in (await other.page("/administration")).links


async def test_no_backup_is_a_problem_that_is_told(tmp_path: Path, user: WebUser) -> None:
    page = await user.page("/backups")
    assert "has no files of the audit log" in page.text
    write_audit(tmp_path / "audit", "command", audit_record(1))
    async with running_rest(tmp_path / "other", audit_folder=tmp_path / "audit") as rest:
        root = WebUser(rest)
        await root.sign_in()
        page = await root.page("/backups")
        assert "knows no finished backup" in page.text
        assert page.rows("Commands") == [["No command about backups is known."]]


async def test_what_strangers_wrote_into_the_audit_log_is_only_shown(tmp_path: Path) -> None:
    write_audit(
        tmp_path / "audit",
        "node",
        *(
            audit_record(n, resource=name, principal=name, reason=name, request_id=name)
            for n, name in enumerate(NAMES)
        ),
    )
    async with running_rest(tmp_path / "rest", audit_folder=tmp_path / "audit") as rest:
        root = WebUser(rest)
        await root.sign_in()
        for name in ("", *NAMES):
            page = await root.page(to("audit", user=name))
            assert (page.status, page.foreign) == (200, []), page.text
        assert len((await root.page("/audit")).rows("Records")) == len(NAMES)


async def test_an_audit_log_that_stops_at_its_bounds_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_audit(tmp_path / "audit", "node", audit_record(1))
    monkeypatch.setattr(audit, "search_audit", partial(search_audit, bytes_max=0))
    async with running_rest(tmp_path / "rest", audit_folder=tmp_path / "audit") as rest:
        root = WebUser(rest)
        await root.sign_in()
        page = await root.page("/audit")
        assert "The search stopped at its bounds" in page.text
        assert "Ask about a shorter time." in page.text
        assert page.rows("Records") == [["No record on this page."]]


async def test_without_files_the_page_says_where_the_records_are(user: WebUser) -> None:
    page = await user.page("/audit")
    assert "This service has no files of the audit log." in page.text
    assert page.rows("Records") == []


async def put_object(user: WebUser, path: str, size: int) -> None:
    answer = await user.upload(f"{LAKE}/upload?branch=main", "f", b"x" * size, path=path)
    assert answer.status == 303, answer.body


async def test_the_size_of_refs_is_shown_with_uncommitted_changes(user: WebUser) -> None:
    for path, size in (("a", 100), ("b/c", 20)):
        await put_object(user, path, size)
    await user.post(f"{LAKE}/commit", {"branch": "main", "message": "m"})
    await user.post(f"{LAKE}/tags", {"name": "v1", "source": "main"})
    await put_object(user, "d", 3)
    await user.post(f"{LAKE}/objects/delete?branch=main&path=a", {})
    [link] = [each for each in (await user.page(f"{LAKE}/branches")).links if "/size?" in each]
    rows = (await user.page(link)).rows("Size")
    assert [row[1:] for row in rows] == [["2", "120 B"], ["2", "23 B"]]
    [link] = [each for each in (await user.page(f"{LAKE}/tags")).links if "/size?" in each]
    assert [row[1:] for row in (await user.page(link)).rows("Size")] == [["2", "120 B"]]
    page = await user.page(f"{LAKE}/size?ref=main~1")
    assert [row[1:] for row in page.rows("Size")] == [["0", "0 B"]]
    assert (await user.page(f"{LAKE}/size?branch=nowhere")).status == 404
    reader = await person(user.rest, "ann", "Analyst")
    assert (await reader.page(f"{LAKE}/size?branch=main")).status == 200
    nobody = await person(user.rest, "ben")
    assert (await nobody.page(f"{LAKE}/size?branch=main")).status == 403
    for name in NAMES:
        page = await user.page(to("repositories", "lake", "size", ref=name))
        assert page.status in (400, 404)
        assert page.foreign == []


async def test_uncommitted_changes_that_are_too_many_are_not_counted_silently(
    user: WebUser, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(diffing, "_STAGED_ROWS", 1)
    monkeypatch.setattr(diffing, "_STAGED_READS_MAX", 1)
    monkeypatch.setattr(ref_size, "CALLS_MAX", 2)
    for number in range(6):
        await put_object(user, f"{number}", 10)
    page = await user.page(f"{LAKE}/size?branch=main")
    [committed, with_changes] = page.rows("Size")
    assert committed[1:] == ["0", "0 B"]
    assert "of which only some were counted" in with_changes[0]
    assert int(with_changes[1]) < 6
    assert "Counting stopped" in page.text


async def test_a_page_tells_who_may_what(user: WebUser) -> None:
    ann = await person(user.rest, "ann", "Analyst")
    page = await user.page("/access")
    assert page.rows("Why") == []
    asked = {"user": "ann", "action": "ReadRepo", "resource": "repository/lake"}
    page = await user.page(to("access", **asked))
    assert "ann may ReadRepo on repository/lake." in page.text
    assert page.rows("Why") == [["Analyst", "allow", "ListRepos, ReadRepo", "repository/*"]]
    page = await user.page(to("access", **{**asked, "action": "WriteRepo"}))
    assert "ann may not WriteRepo on repository/lake. No role of this user allows it." in page.text
    page = await ann.page(to("access", action="ReadRepo", resource="repository/lake"))
    assert "ann may ReadRepo" in page.text
    assert not page.root.xpath("//input[@name='user']")
    assert (await ann.page(to("access", **{**asked, "user": "root"}))).status == 403


@pytest.mark.parametrize("name", NAMES)
async def test_a_hostile_resource_is_only_shown(user: WebUser, name: str) -> None:
    resource = f"repository/lake/ref/main/object/{name}"
    page = await user.page(to("access", action="ReadRepo", resource=resource))
    assert (page.status, page.foreign) == (200, [])
    assert "root may ReadRepo" in page.text
    page = await user.page(to("access", action=name, resource=name))
    assert (page.status, page.foreign) == (400, [])
    page = await user.page(to("access", user=name, action="ReadRepo", resource=resource))
    assert (page.status, page.foreign) == (400, [])


async def test_the_last_use_of_a_key_pair_is_shown(user: WebUser) -> None:
    key = user.rest.service.admin_key[0]
    await user.post("/user/keys", {"user": "root", "description": "new"})
    user.rest.service.clock.advance(31)
    for _ in range(100):
        await asyncio.sleep(0)
    page = await user.page("/user?id=root")
    uses = {row[0]: row[3] for row in page.rows("Key pairs")}
    assert uses.pop(key).split(", ")[-1] in ("rpc", "web")
    assert list(uses.values()) == ["none seen"]


async def test_users_see_and_end_their_own_keys_and_sessions(rest: Rest, user: WebUser) -> None:
    ann = await person(rest, "ann")
    other = WebUser(rest)
    answer = await ann.get("/account")
    assert answer.headers["location"] == "/user?id=ann"
    page = await ann.page("/user?id=ann")
    assert page.status == 200
    assert len(page.rows("Key pairs")) == len(page.rows("Sessions of browsers")) == 1
    assert "Set the roles" not in page.text
    assert "Delete the user" not in page.text
    answer = await ann.fill(page, "Create a key pair")
    key, secret = page_of(answer).root.xpath("//dd/code/text()")
    await other.sign_in(pair=(key, secret))
    page = await ann.page("/user?id=ann")
    assert len(page.rows("Sessions of browsers")) == 2
    # Another one's page, with forms or without: nothing is told, and nothing done.
    assert (await ann.page("/user?id=root")).status == 403
    for path in ("keys", "sessions/end", "roles", "delete"):
        assert (await ann.post(f"/user/{path}", {"user": "root"})).status == 403, path
    admin_key = rest.service.admin_key[0]
    assert (await ann.post("/user/keys/delete", {"user": "ann", "key": admin_key})).status == 404
    assert (await user.get("/")).status == 200, "the administrator is still signed in"
    session = next(
        fields["session"]
        for fields in (dict(form.fields) for form in page.root.forms)
        if "session" in fields
    )
    assert session
    answer = await ann.fill(page, "End all sessions")
    assert answer.status == 303
    rest.service.clock.advance(60)  # what is known of a session is used for some seconds
    for each in (ann, other):
        assert (await each.get("/")).headers["location"].startswith("/sign-in")


async def test_one_session_is_ended(rest: Rest, user: WebUser) -> None:
    ann = await person(rest, "ann")
    page = await user.page("/user?id=ann")
    assert (await user.fill(page, "End")).status == 303
    rest.service.clock.advance(60)  # what is known of a session is used for some seconds
    assert (await ann.get("/")).status == 303
    assert (await user.page("/user?id=ann")).rows("Sessions of browsers") == [["There is none."]]
    assert (await user.get("/")).status == 200


async def test_the_page_of_administration_names_what_is_not_there_yet(user: WebUser) -> None:
    """It says what is not there, and leads to what serves today."""
    page = await user.page("/administration")
    assert [each.text for each in page.root.xpath("//main/dl/dt")] == ["Groups", "Policies", "Cost"]
    for target in page.root.xpath("//main/dl//a/@href"):
        assert (await user.page(target)).status == 200


@pytest.mark.parametrize("role", ["Analyst", "Developer", ""])
async def test_each_role_sees_what_it_may(rest: Rest, role: str) -> None:
    ann = await person(rest, "ann", *filter(None, [role]))
    for target in (SETTINGS, f"{LAKE}/retention", f"{LAKE}/state", f"{LAKE}/tasks"):
        page = await ann.page(target)
        assert page.status == (200 if role else 403), target
        posts = {each.action for each in page.root.forms if each.method == "POST"} - {"/sign-out"}
        wanted = set()
        if role == "Developer" and target == SETTINGS:
            wanted = {f"{SETTINGS}/metadata"}
        if role == "Developer" and target.endswith("/state"):
            wanted = {f"{LAKE}/state/compact"}
        assert posts == wanted, target
    page = await ann.page(f"{LAKE}/tasks?everybody=1")
    assert page.status == 403
    for target in ("/users", "/quotas"):
        page = await ann.page(target)
        assert (page.status, page.root.xpath("string(//h1)")) == (403, "You may not do this")
    page = await ann.page("/administration")
    assert page.status == 200
    assert "you are none" in page.text
    assert not {"/users", "/quotas"} & set(page.links)


async def test_tasks_are_shown_with_their_progress_and_cancelled(rest: Rest, user: WebUser) -> None:
    service = rest.service
    preview = PreviewMergeRequest(repository_id="lake", source_ref="main", destination_ref="main")
    task = await service.graveler.start_preview(service.admin, preview)
    page = await user.page(f"{LAKE}/tasks")
    assert [row[0] for row in page.rows()] == [task.task_id]
    [target] = [each for each in page.links if "/task?" in each]
    page = await user.page(target)
    assert page.status == 200
    assert "preview" in page.text
    answer = await user.post(f"{LAKE}/tasks/cancel", {"task": task.task_id})
    assert answer.headers["location"] == target
    ann = await person(rest, "ann", "Developer")
    assert (await ann.page(target)).status == 404
    assert (await ann.page(f"{LAKE}/tasks")).rows() == [["No tasks."]]
    assert [row[0] for row in (await user.page(f"{LAKE}/tasks?everybody=1")).rows()] == [
        task.task_id
    ]


async def test_the_state_of_a_branch_is_shown_and_compacted(user: WebUser) -> None:
    await user.upload(f"{LAKE}/upload?branch=main", "f", b"x", path="a")
    page = await user.page(f"{LAKE}/state")
    facts = page.root.xpath("string((//dl)[1])")
    assert "1, of these 0 of deleted objects" in facts
    assert "there was none" in facts
    answer = await user.fill(page, "Compact main")
    page = await user.page(answer.headers["location"])
    assert "folded into a listing" in page.text
    answer = await user.fill(page, "Compact main")
    assert "nothing to compact" in (await user.page(answer.headers["location"])).text
    page = await user.page(f"{LAKE}/state?outcome=%3Cb%3E")
    assert not page.root.xpath("//*[@role='status']")
    assert (await user.page(f"{LAKE}/state?branch=nowhere")).status == 404


async def collected(rest: Rest, number: int, deleted: int | None, missing: int = 0) -> str:
    """Leaves the files of a collection that deleted some bytes; None: it was not swept."""
    service = rest.service
    found = await service.graveler.get_repository(service.admin, "lake")
    namespace, run_id = found.storage_namespace, f"{number:032x}"
    part = Part("x", BlockKind.DATA.value, 7, 1 << 20, "")
    listed = {kind.value: Tally(9, 1 << 21) for kind in BlockKind}
    marked_us = 1_790_000_000_000_000 + number
    blocks = service.replicas.blocks
    manifest = Manifest(run_id, "<b>", 5, marked_us, listed, (part,))
    await write_manifest(blocks, namespace, manifest)
    if deleted is not None:
        outcomes = {
            BlockKind.DATA.value: {collection_outcomes.Outcome.DELETED.value: Tally(3, deleted)}
        }
        report = Report(run_id, run_id, "<b>", 5, 9, listed, outcomes, 4, ("x",) * missing)
        await write_report(blocks, namespace, report)
    return run_id


async def test_earlier_collections_are_shown_with_what_they_deleted(user: WebUser) -> None:
    page = await user.page(f"{LAKE}/state/collections")
    assert page.rows("Collections") == [["No collection has left files here."]]
    first = await collected(user.rest, 1, 1024)
    second = await collected(user.rest, 2, 2048, missing=2)
    third = await collected(user.rest, 3, None)
    assert f"{LAKE}/state/collections" in (await user.page(f"{LAKE}/state")).links
    page = await user.page(f"{LAKE}/state/collections")
    assert page.foreign == []
    assert [row[1:4] for row in page.rows("Collections")] == [
        [third, "7 blocks, 1.0 MiB", "not swept yet"],
        [second, "7 blocks, 1.0 MiB", "3 blocks, 2.0 KiB; 2 blocks in use are missing"],
        [first, "7 blocks, 1.0 MiB", "3 blocks, 1.0 KiB"],
    ]
    assert page.root.xpath("//table//svg/path/@d") == ["M0 6h0", "M0 6h200", "M0 6h100"]
    for role in ("Developer", "Analyst"):
        other = await person(user.rest, role.lower(), role)
        assert (await other.page(f"{LAKE}/state/collections")).status == 403


async def test_collections_that_are_not_shown_are_counted(
    user: WebUser, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(collections, "_RUNS_MAX", 2)
    for number in range(1, 6):
        await collected(user.rest, number, 1)
    page = await user.page(f"{LAKE}/state/collections")
    assert len(page.rows("Collections")) == 2
    assert "3 earlier ones are not shown." in page.text
    monkeypatch.setattr(collections, "_SECONDS_MAX", -1.0)
    page = await user.page(f"{LAKE}/state/collections")
    assert "5 earlier ones are not shown." in page.text


async def test_collections_are_held(user: WebUser) -> None:
    page = await user.page(f"{LAKE}/state")
    for wrong in ("", "x", "-1", "169", "1.5"):
        assert (await user.fill(page, "Hold", hours=wrong)).status == 400
    assert (await user.fill(page, "Hold", hours="2")).status == 303
    page = await user.page(f"{LAKE}/state")
    assert page.root.xpath("string(//dt[text()='Held']/following-sibling::dd)").startswith("until ")
    assert (await user.fill(page, "Hold", hours="0")).status == 303
    service = user.rest.service
    record = await user.rest.endpoint._backend.rpcs.collections.get(service.admin, "lake")
    assert not record.HasField("hold_end_time")


async def test_compactions_are_paused_and_resumed(user: WebUser) -> None:
    page = await user.page("/administration")
    assert "They are not paused." in page.text
    assert {"/users", "/quotas", "/account"} <= set(page.links)
    assert (await user.fill(page, "Pause", hours="0")).status == 400
    assert (await user.fill(page, "Pause", hours="3")).status == 303
    page = await user.page("/administration")
    assert "root paused them" in page.text
    assert (await user.fill(page, "Resume them")).status == 303
    service = user.rest.service
    assert await service.graveler.get_compaction_pause(service.admin) is None


async def test_compactors_tell_what_they_do(user: WebUser) -> None:
    page = await user.page("/administration")
    assert "No compactor has told" in page.text
    service = user.rest.service
    report = event_pb.CompactorReport(
        compactor_id="0-<b>one",
        branch_count=7,
        due_count=2,
        failing_count=1,
        compactions=40,
        failures=3,
        running=[event_pb.CompactorWork(repository_id="lake", branch_id=NAMES[0])],
    )
    await StagingEventClient(service.transport).watch_staging(service.admin, b"", 0, 0, report)
    page = await user.page("/administration")
    [row] = page.rows("Compactors")
    assert row[0] == "0-<b>one"
    assert row[2:8] == ["7", "2", "1", "40", "3", f"lake/{NAMES[0]}"]
    assert page.foreign == []
    [target] = [each for each in page.links if "/state?" in each]
    assert target == to_repository("lake", "state", branch=NAMES[0])


async def test_a_key_pair_whose_answer_was_lost_is_not_called_refused(
    user: WebUser, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def lost(*_: object, **__: object) -> None:
        raise TarnError(Kind.UNKNOWN_OUTCOME, Reason.OUTCOME_UNKNOWN, "the answer was lost")

    monkeypatch.setattr(user.rest.service.auth, "create_credential", lost)
    answer = await user.post("/user/keys", {"user": "root"})
    assert answer.status == 500
    assert b"it may have been done" in answer.body
    assert b"Nothing was changed" not in answer.body
