"""A day's work with lakectl, the peer's command line."""

from __future__ import annotations

import json
import re
import urllib.request
from pathlib import Path

import lakefs
import pytest
from lakectl_command import Lakectl
from rest_server import RestServer

# The first time, lakectl is built.
pytestmark = pytest.mark.timeout(1500)


@pytest.fixture
def lakectl(lake_server: RestServer, tmp_path: Path, program: None) -> Lakectl:
    return Lakectl(lake_server, tmp_path)


@pytest.fixture
def uri(main: lakefs.Branch) -> str:
    return f"lakefs://{main.repo_id}"


def first_words(table: str) -> list[str]:
    """Returns the first column of what lakectl lists."""
    return [line.split()[0] for line in table.splitlines() if line.strip()]


def test_repositories(lakectl: Lakectl, lake_server: RestServer, repo: lakefs.Repository) -> None:
    name, namespace = lake_server.new_name("ctl"), repo.properties.storage_namespace
    made = lakectl.ok("repo", "create", f"lakefs://{name}", f"{namespace}-ctl", "-d", "trunk")
    assert f"Repository '{name}' created" in made
    listed = lakectl.ok("repo", "list", "--prefix", name)
    assert name in listed
    assert "trunk" in listed
    again = lakectl.refused("repo", "create", f"lakefs://{name}", f"{namespace}-again")
    assert "409" in again
    lakectl.ok("repo", "delete", "-y", f"lakefs://{name}")
    assert "404" in lakectl.refused("repo", "delete", "-y", f"lakefs://{name}")


def test_nothing_is_said_but_the_answer(
    lakectl: Lakectl, lake_server: RestServer, repo: lakefs.Repository
) -> None:
    name, namespace = lake_server.new_name("ctl"), f"{repo.properties.storage_namespace}-quiet"
    done = lakectl.run("repo", "create", f"lakefs://{name}", namespace)
    assert done.stderr == ""
    assert f"storage namespace: {namespace}\n" in done.stdout


def test_branches_and_tags(lakectl: Lakectl, uri: str) -> None:
    lakectl.ok("branch", "create", f"{uri}/dev", "-s", f"{uri}/main")
    assert "409" in lakectl.refused("branch", "create", f"{uri}/dev", "-s", f"{uri}/main")
    assert first_words(lakectl.ok("branch", "list", uri)) == ["dev", "main"]
    (dev, main) = (lakectl.ok("branch", "show", f"{uri}/{name}") for name in ("dev", "main"))
    assert dev.split("Commit ID:")[1].split() == main.split("Commit ID:")[1].split()
    lakectl.ok("branch", "delete", "-y", f"{uri}/dev")
    assert "404" in lakectl.refused("branch", "show", f"{uri}/dev")
    lakectl.ok("tag", "create", f"{uri}/v1.0", f"{uri}/main")
    assert "409" in lakectl.refused("tag", "create", f"{uri}/v1.0", f"{uri}/main")
    assert first_words(lakectl.ok("tag", "list", uri)) == ["v1.0"]
    assert "v1.0" in lakectl.ok("tag", "show", f"{uri}/v1.0")
    lakectl.ok("tag", "delete", "-y", f"{uri}/v1.0")
    assert "404" in lakectl.refused("tag", "show", f"{uri}/v1.0")


@pytest.mark.parametrize("presigned", ["direct", "presigned"])
@pytest.mark.uses("getObject")
def test_files(lakectl: Lakectl, uri: str, presigned: str) -> None:
    mode = f"--pre-sign={'true' if presigned == 'presigned' else 'false'}"
    (lakectl.folder / "local" / "deep").mkdir(parents=True)
    (lakectl.folder / "local" / "a b").write_bytes(b"x" * 100_000)
    (lakectl.folder / "local" / "deep" / "ü").write_bytes(b"deep")
    file = str(lakectl.folder / "local" / "a b")
    done = lakectl.ok(
        "fs", "upload", mode, "-s", file, f"{uri}/main/up/one", "--content-type", "a/b"
    )
    assert "Path: up/one" in done
    stat = lakectl.ok("fs", "stat", f"{uri}/main/up/one", "--pre-sign=false")
    assert "Size: 100000 bytes" in stat
    assert "Content-Type: a/b" in stat
    tree = ("fs", "upload", mode, "--no-progress", "-r", "-s", str(lakectl.folder / "local"))
    lakectl.ok(*tree, f"{uri}/main/tree/")
    listed = lakectl.ok("fs", "ls", "-r", f"{uri}/main/tree/")
    assert [line.rstrip().rsplit("    ", 1)[-1] for line in listed.splitlines()] == [
        "tree/a b",
        "tree/deep/ü",
    ]
    assert re.search(r"common_prefix +tree/", lakectl.ok("fs", "ls", f"{uri}/main/"))
    assert lakectl.ok("fs", "cat", mode, f"{uri}/main/tree/deep/ü") == "deep"
    back = str(lakectl.folder / "back")
    lakectl.ok("fs", "download", mode, "--no-progress", "-r", f"{uri}/main/tree/", back)
    assert (lakectl.folder / "back" / "a b").read_bytes() == b"x" * 100_000
    assert (lakectl.folder / "back" / "deep" / "ü").read_bytes() == b"deep"
    lakectl.ok("fs", "rm", f"{uri}/main/up/one")
    assert "404" in lakectl.refused("fs", "stat", f"{uri}/main/up/one")
    lakectl.ok("fs", "rm", "-r", f"{uri}/main/tree/")
    assert lakectl.ok("fs", "ls", "-r", f"{uri}/main/tree/") == ""


@pytest.mark.uses("getPhysicalAddress")
def test_a_presigned_link_serves_the_object(lakectl: Lakectl, uri: str) -> None:
    link = lakectl.ok("fs", "presign", f"{uri}/main/z").strip()
    with urllib.request.urlopen(link, timeout=30) as answer:
        assert answer.read() == b"z"


@pytest.mark.uses("updateObjectUserMetadata")
def test_metadata_of_an_object(lakectl: Lakectl, uri: str) -> None:
    lakectl.ok("fs", "update-metadata", f"{uri}/main/z", "--metadata", "color=red")
    assert "color" in lakectl.ok("fs", "stat", "--pre-sign=false", f"{uri}/main/z")


def test_a_commit_with_a_date(lakectl: Lakectl, uri: str, main: lakefs.Branch) -> None:
    commit = ("commit", f"{uri}/main", "-m", "old", "--allow-empty-commit")
    lakectl.ok(*commit, "--epoch-time-seconds", "1700000000")
    assert "2023-11-14" in lakectl.ok("show", "commit", f"{uri}/{main.head.id}")


def test_changes_commits_and_the_log(lakectl: Lakectl, uri: str, main: lakefs.Branch) -> None:
    assert "no changes" in lakectl.refused("commit", f"{uri}/main", "-m", "none")
    main.object("new").upload("1", pre_sign=False)
    main.object("z").delete()
    changes = lakectl.ok("diff", f"{uri}/main")
    assert "+ added new" in changes
    assert "- removed z" in changes
    lakectl.ok("branch", "reset", "-y", f"{uri}/main", "--object", "z")
    commit = ("commit", f"{uri}/main", "-m", "by hand", "--meta", "job=7,who=me")
    made = lakectl.ok(*commit)
    commit_id = main.head.id
    assert commit_id in made
    shown = lakectl.ok("show", "commit", f"{uri}/{commit_id}")
    for text in ("by hand", "job", "7", "who", "me"):
        assert text in shown
    log = lakectl.ok("log", f"{uri}/main", "--amount", "2")
    assert log.index("by hand") < log.index("load")
    assert "404" in lakectl.refused("log", f"{uri}/nobody-knows-it")
    blame = lakectl.ok("annotate", "-r", f"{uri}/main/")
    assert re.search(r"new .*by hand", blame)
    assert re.search(r"raw/a .*load", blame)


@pytest.mark.uses("getObject")
def test_merges(lakectl: Lakectl, uri: str, main: lakefs.Branch, repo: lakefs.Repository) -> None:
    dev = repo.branch("dev").create("main")
    dev.object("x").upload("dev", pre_sign=False)
    dev.commit("work")
    base = lakectl.ok("find-merge-base", f"{uri}/dev", f"{uri}/main")
    assert main.head.id in base
    assert "+ added x" in lakectl.ok("diff", f"{uri}/main", f"{uri}/dev")
    lakectl.ok("merge", f"{uri}/dev", f"{uri}/main", "-m", "take it")
    assert main.get_commit().message == "take it"
    assert "no changes" in lakectl.refused("merge", f"{uri}/dev", f"{uri}/main")
    for branch in (dev, main):
        branch.object("x").upload(f"{branch.id} again", pre_sign=False)
        branch.commit("decide")
    assert "onflict" in lakectl.refused("merge", f"{uri}/dev", f"{uri}/main")
    lakectl.ok("merge", f"{uri}/dev", f"{uri}/main", "--strategy", "source-wins")
    assert main.object("x").reader(pre_sign=False).read() == b"dev again"


@pytest.mark.uses("getObject")
def test_reverts_and_cherry_picks(
    lakectl: Lakectl, uri: str, main: lakefs.Branch, repo: lakefs.Repository
) -> None:
    main.object("z").upload("2", pre_sign=False)
    bad = main.commit("bad").id
    lakectl.ok("branch", "revert", "-y", f"{uri}/main", bad)
    assert main.object("z").reader(pre_sign=False).read() == b"z"
    assert "404" in lakectl.refused("branch", "revert", "-y", f"{uri}/main", "nobody-knows-it")
    dev = repo.branch("dev").create("main")
    dev.object("y").upload("1", pre_sign=False)
    wanted = dev.commit("this").id
    lakectl.ok("cherry-pick", f"{uri}/{wanted}", f"{uri}/main")
    assert main.object("y").exists()


@pytest.mark.uses("setBranchProtectionRules", "getBranchProtectionRules")
def test_protection_of_branches(lakectl: Lakectl, repo: lakefs.Repository) -> None:
    uri = f"lakefs://{repo.id}"
    lakectl.ok("branch-protect", "add", uri, "main")
    lakectl.ok("branch-protect", "add", uri, "release-*")
    assert set(first_words(lakectl.ok("branch-protect", "list", uri))) == {"main", "release-*"}
    refused = lakectl.refused("commit", f"{uri}/main", "-m", "no", "--allow-empty-commit")
    assert "protected" in refused or "403" in refused
    lakectl.ok("branch-protect", "delete", uri, "main")
    assert first_words(lakectl.ok("branch-protect", "list", uri)) == ["release-*"]


@pytest.mark.uses("getGCRules", "setGCRules", "deleteGCRules")
def test_garbage_collection_rules(lakectl: Lakectl, uri: str) -> None:
    lakectl.refused("gc", "get-config", uri)
    rules = {
        "default_retention_days": 14,
        "branches": [{"branch_id": "main", "retention_days": 21}],
    }
    (lakectl.folder / "rules.json").write_text(json.dumps(rules))
    lakectl.ok("gc", "set-config", uri, "-f", str(lakectl.folder / "rules.json"))
    assert json.loads(lakectl.ok("gc", "get-config", uri, "-p")) == rules
    lakectl.ok("gc", "delete-config", uri)
    lakectl.refused("gc", "get-config", uri)


@pytest.mark.beyond_the_peer
@pytest.mark.uses("createCredentials", "listUserCredentials", "deleteCredentials")
def test_users_and_keys(lakectl: Lakectl, lake_server: RestServer) -> None:
    assert "User" in lakectl.ok("identity")
    made = lakectl.ok("auth", "users", "credentials", "create")
    key = re.search(r"Access Key ID: *(\S+)", made)
    secret = re.search(r"Secret Access Key: *(\S+)", made)
    assert key is not None
    assert secret is not None
    again = {
        "LAKECTL_CREDENTIALS_ACCESS_KEY_ID": key[1],
        "LAKECTL_CREDENTIALS_SECRET_ACCESS_KEY": secret[1],
    }
    assert "User" in lakectl.ok("identity", **again)
    assert key[1] in lakectl.ok("auth", "users", "credentials", "list")
    lakectl.ok("auth", "users", "credentials", "delete", "--access-key-id", key[1])
    assert "401" in lakectl.refused("identity", **again)


@pytest.mark.uses("getUsageReportSummary")
def test_the_usage_report(lakectl: Lakectl) -> None:
    said = lakectl.run("usage", "summary").stdout
    assert "Usage report for installation ID: " in said
    assert re.search(r"^\d{4}\t\d{1,2}\t[1-9]\d*$", said, re.MULTILINE)


def test_doctor_has_nothing_to_say(lakectl: Lakectl) -> None:
    said = lakectl.run("doctor").stdout
    assert said == "Valid configuration\n"
    wrong = lakectl.run("doctor", LAKECTL_CREDENTIALS_SECRET_ACCESS_KEY="wrong" * 8)
    assert "Valid configuration" not in wrong.stdout


@pytest.mark.uses("getObject", "uploadObject")
def test_a_local_folder_is_synchronised(lakectl: Lakectl, uri: str, main: lakefs.Branch) -> None:
    folder = lakectl.folder / "clone"
    lakectl.ok("local", "clone", f"{uri}/main/raw/", str(folder))
    assert sorted(each.name for each in folder.iterdir() if each.name[0] != ".") == ["a", "b"]
    (folder / "c").write_text("c")
    (folder / "a").unlink()
    status = lakectl.ok("local", "status", str(folder))
    assert re.search(r"added.*c", status)
    assert re.search(r"removed.*a", status)
    lakectl.ok("local", "commit", str(folder), "-m", "from a folder")
    assert main.get_commit().message == "from a folder"
    assert [each.path for each in main.objects(prefix="raw/")] == ["raw/b", "raw/c"]
    main.object("raw/d").upload("d", pre_sign=False)
    main.commit("beside")
    lakectl.ok("local", "pull", str(folder))
    assert (folder / "d").read_text() == "d"
