"""The command line from end to end, as people and scripts use it."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import time
from pathlib import Path

import pytest
from running_tarn import BIN, RunningTarn, clean_environment

from tarn_cli.__main__ import run
from tarn_graveler.records.settings import RULES_CACHE_SECONDS


@pytest.mark.in_form("separate")
def test_a_typical_session(tarn: RunningTarn, repository: str, tmp_path: Path) -> None:
    lake = repository
    raw = tmp_path / "raw"
    (raw / "deep").mkdir(parents=True)
    (raw / "a.csv").write_text("a,1\n")
    (raw / "deep" / "b.csv").write_text("b,2\n")
    uploaded = tarn.ok("--json", "fs", "upload", "-r", str(raw), f"{lake}/main/raw/").json
    assert uploaded == {"uploaded": 2}
    changes = tarn.ok("--json", "diff", f"{lake}/main").json
    assert [(each["change"], each["path"]) for each in changes] == [
        ("added", "raw/a.csv"),
        ("added", "raw/deep/b.csv"),
    ]
    first = tarn.ok("--json", "commit", f"{lake}/main", "-m", "Load", "--meta", "job=x").json
    assert (first["added"], first["metadata"]) == (2, {"job": "x"})
    assert tarn.ok("--json", "diff", f"{lake}/main").json == []

    tarn.ok("branch", "create", f"{lake}/fix", "--from", "main")
    tarn.ok("fs", "upload", "-", f"{lake}/fix/raw/a.csv", stdin=b"a,100\n")
    tarn.ok("fs", "rm", f"{lake}/fix/raw/deep/b.csv")
    second = tarn.ok("--json", "commit", f"{lake}/fix", "-m", "Fix a, drop b").json
    assert (second["changed"], second["removed"]) == (1, 1)
    lines = tarn.ok("diff", f"{lake}/main", f"{lake}/fix").out.splitlines()
    assert [line.split()[:2] for line in lines] == [["~", "raw/a.csv"], ["-", "raw/deep/b.csv"]]
    assert tarn.ok("fs", "cat", f"{lake}/main/raw/a.csv").out == "a,1\n"
    assert tarn.ok("fs", "cat", f"{lake}/fix/raw/a.csv").out == "a,100\n"
    assert tarn.ok("fs", "cat", f"{lake}/fix~1/raw/a.csv").out == "a,1\n"

    tarn.ok("tag", "create", f"{lake}/v1", "--ref", "main")
    tarn.ok("fs", "download", "-r", f"{lake}/v1/raw", str(tmp_path / "back"))
    assert (tmp_path / "back" / "deep" / "b.csv").read_text() == "b,2\n"
    log = tarn.ok("--json", "log", f"{lake}/fix").json
    assert [each["message"] for each in log][:2] == ["Fix a, drop b", "Load"]
    assert log[0]["parents"] == [first["commit"]]
    assert tarn.ok("log", f"{lake}/fix", "--oneline", "-n", "1").out.startswith(
        second["commit"][:12]
    )
    assert tarn.ok("--json", "refs", "show", f"{lake}/fix~1").json["commit"] == first["commit"]
    refs = tarn.ok("--json", "refs", "list", lake).json
    assert [(each["kind"], each["ref"]) for each in refs] == [
        ("branch", "fix"),
        ("branch", "main"),
        ("tag", "v1"),
    ]
    tarn.ok("branch", "create", f"{lake}/zoo", "--from", "fix")
    heads = [
        (each["commit"], each["branch"])
        for each in tarn.ok("--json", "branch", "list", lake, "--sort", "commit").json
    ]
    assert heads == sorted(heads)
    assert {name for _, name in heads} == {"fix", "main", "zoo"}
    end = tarn.ok("--json", "branch", "expires", f"{lake}/zoo", "7d").json["expires"]
    row = tarn.ok("branch", "list", lake).out.splitlines()[-1].split()
    assert (row[0], row[-2:]) == ("zoo", [end, "active"])
    tarn.ok("branch", "expires", f"{lake}/zoo", "never")
    short = tarn.ok("branch", "create", f"{lake}/short", "--expires", "60s").out
    assert short.splitlines()[-1].split() == ["state", "active"]
    tarn.ok("branch", "delete", f"{lake}/short", "--yes")
    tarn.ok("branch", "delete", f"{lake}/zoo", "--yes")
    tarn.ok("tag", "delete", f"{lake}/v1")
    tarn.ok("branch", "delete", f"{lake}/fix", "--yes")
    assert [each["branch"] for each in tarn.ok("--json", "branch", "list", lake).json] == ["main"]


def test_listing_and_stat(tarn: RunningTarn, repository: str) -> None:
    for name in ("a", "folder/b", "folder/c"):
        tarn.ok("fs", "upload", "-", f"{repository}/main/{name}", stdin=b"12345")
    top = tarn.ok("--json", "fs", "ls", f"{repository}/main/").json
    assert [(each["path"], each["kind"]) for each in top] == [
        ("a", "object"),
        ("folder/", "prefix"),
    ]
    deep = tarn.ok("fs", "ls", "-r", f"{repository}/main/folder/").out.splitlines()
    assert [line.split()[-1] for line in deep] == ["folder/b", "folder/c"]
    found = tarn.ok("--json", "fs", "stat", f"{repository}/main/a").json
    assert (found["size_bytes"], found["etag"]) == (5, "827ccb0eea8a706c4c34a16891f84e7b")
    assert found["tags"] == {}
    s3 = tarn.s3()
    tagging = {"TagSet": [{"Key": "team", "Value": "ada"}]}
    s3.put_object_tagging(Bucket=repository, Key="main/a", Tagging=tagging)
    s3.close()
    found = tarn.ok("--json", "fs", "stat", f"{repository}/main/a").json
    assert (found["size_bytes"], found["tags"]) == (5, {"team": "ada"})
    removed = tarn.ok("--json", "fs", "rm", "-r", f"{repository}/main/folder/").json
    assert removed == {"removed": 2}


def test_every_failure_has_its_exit_code(
    tarn: RunningTarn, repository: str, tmp_path: Path
) -> None:
    (tmp_path / "folder").mkdir()
    file, folder = str(tmp_path / "folder" / "a.csv"), str(tmp_path / "folder")
    Path(file).write_text("a")
    tarn.ok("tag", "create", f"{repository}/v1", "--ref", "main")
    tarn.ok("branch", "create", f"{repository}/kept")
    tarn.ok("repo", "protect", repository, "kept")
    time.sleep(RULES_CACHE_SECONDS)  # the bound: now every worker refuses
    expected = {
        ("fs", "upload", file, f"{repository}/v1/a"): 2,
        ("fs", "upload", file, f"{repository}/none/a"): 3,
        ("fs", "upload", file, f"{repository}/kept/a"): 4,
        ("fs", "upload", "-r", folder, f"{repository}/kept/a"): 4,
        ("--json", "fs", "upload", file, f"{repository}/kept/a"): 4,
        ("repo", "show", "no-such-lake"): 3,
        ("branch", "show", f"{repository}/none"): 3,
        ("fs", "cat", f"{repository}/main/none"): 3,
        ("fs", "rm", f"{repository}/main/none"): 3,
        ("repo", "create", repository): 5,
        ("branch", "create", f"{repository}/main"): 5,
        ("branch", "create", f"{repository}/x", "--expires", "soon"): 2,
        ("branch", "expires", f"{repository}/main", "7d"): 5,
        ("commit", f"{repository}/main", "-m", "nothing"): 5,
        ("repo", "create", "No Lake"): 2,
        ("branch", "show", repository): 2,
        ("no-such-command",): 2,
        ("--access-key-id", "WRONG", "--secret-access-key", "x" * 40, "repo", "list"): 4,
        ("--server", "127.0.0.1:9", "--timeout", "2", "repo", "list"): 6,
        ("--endpoint", "http://127.0.0.1:9", "fs", "ls", f"{repository}/main"): 6,
    }
    found = {arguments: tarn.cli(*arguments) for arguments in expected}
    assert {arguments: done.code for arguments, done in found.items()} == expected
    for arguments, done in found.items():
        assert "Traceback" not in done.err, arguments
        if done.code != 2:
            assert len(done.err.splitlines()) == 1, done.err


def test_a_failure_is_json_for_programs(tarn: RunningTarn) -> None:
    done = tarn.cli("--json", "repo", "show", "no-such-lake")
    told = json.loads(done.err)
    assert (told["error"], told["exit_code"]) == ("REPOSITORY_NOT_FOUND", 3)
    assert done.out == ""


@pytest.mark.in_form("separate")
def test_users_and_keys(tarn: RunningTarn, repository: str) -> None:
    name = f"ada-{repository}"
    made = tarn.ok("--json", "auth", "user", "create", name, "--role", "Analyst").json
    assert made["roles"] == ["Analyst"]
    key = tarn.ok("--json", "auth", "credential", "create", "--user", name).json
    ada = (
        "--access-key-id",
        key["access_key_id"],
        "--secret-access-key",
        key["secret_access_key"],
    )
    assert tarn.ok("--json", *ada, "auth", "whoami").json["user"] == name
    assert tarn.cli(*ada, "fs", "ls", f"{repository}/main").code == 0
    assert tarn.cli(*ada, "repo", "create", f"{repository}-x").code == 4
    # Jobs ask for their repository with this, as users who may create none.
    absent = tarn.cli("--json", *ada, "repo", "create", f"{repository}-x", "--if-absent")
    assert (absent.code, json.loads(absent.err)["error"]) == (4, "ACCESS_DENIED")
    there = tarn.ok("--json", *ada, "repo", "create", repository, "--if-absent").json
    assert there["repository"] == repository
    assert tarn.cli(*ada, "fs", "upload", "-", f"{repository}/main/a", stdin=b"a").code == 4
    tarn.ok("auth", "user", "roles", name, "--role", "Developer")
    assert tarn.ok("--json", "auth", "user", "show", name).json["roles"] == ["Developer"]
    assert name in [each["user"] for each in tarn.ok("--json", "auth", "user", "list").json]
    listed = tarn.ok("--json", "auth", "credential", "list", "--user", name).json
    assert [each["access_key_id"] for each in listed] == [key["access_key_id"]]
    tarn.ok("auth", "credential", "delete", key["access_key_id"])
    assert tarn.cli(*ada, "auth", "whoami").code == 4
    tarn.ok("auth", "user", "delete", name, "--yes")
    assert tarn.cli("auth", "user", "show", name).code == 3


def test_set_up_works_once(tarn: RunningTarn, tmp_path: Path) -> None:
    again = tarn.cli("auth", "setup", "--data-dir", str(tarn.data))
    assert again.code == 5
    tarn.ok("auth", "setup", "--if-needed", "--data-dir", str(tarn.data))
    saved = tarn.cli(
        "auth", "setup", "--if-needed", "--data-dir", str(tarn.data), "--save", str(tmp_path / "x")
    )
    assert saved.code == 4  # the secret cannot be shown a second time


def test_logging_in_saves_the_key(tarn: RunningTarn, tmp_path: Path) -> None:
    def plain(*arguments: str, **options: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [str(BIN / "tarn"), *arguments],
            capture_output=True,
            text=True,
            timeout=60,
            cwd=tmp_path,
            env=clean_environment(XDG_CONFIG_HOME=str(tmp_path / "config"), **options),
            check=False,
        )

    assert plain("repo", "list").returncode == 4
    done = plain(
        "auth",
        "login",
        TARN_SERVER=tarn.server,
        TARN_AUTH_SERVER=tarn.auth_server,
        TARN_ENDPOINT=tarn.endpoint,
        TARN_ACCESS_KEY_ID=tarn.access_key_id,
        TARN_SECRET_ACCESS_KEY=tarn.secret_access_key,
        TARN_SETTINGS="",
    )
    # Without a terminal it must not wait for input: the key comes from the environment.
    assert done.returncode == 0, done.stderr
    file = tmp_path / "config" / "tarn" / "config.yaml"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert plain("repo", "list").returncode == 0
    shown = plain("config", "show")
    assert tarn.access_key_id in shown.stdout
    assert tarn.secret_access_key not in shown.stdout + shown.stderr


def test_status_and_a_second_start(tarn: RunningTarn) -> None:
    told = tarn.ok("--json", "status", "--data-dir", str(tarn.data)).json
    assert (told["endpoint"], told["pid"]) == (tarn.endpoint, tarn.state()["pid"])
    assert told["web"] == f"{tarn.state()['api']}/"
    assert tarn.cli("up", "--data-dir", str(tarn.data), "--port", "0", "--rpc-port", "0").code == 5
    assert tarn.cli("up", "-d", "--data-dir", str(tarn.data)).code == 5


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_shells_complete_commands(shell: str) -> None:
    done = subprocess.run(
        [str(BIN / "tarn"), "completion", shell], capture_output=True, text=True, check=True
    )
    assert "_TARN_COMPLETE" in done.stdout
    completed = subprocess.run(
        [str(BIN / "tarn")],
        env=clean_environment(
            _TARN_COMPLETE="bash_complete", COMP_WORDS="tarn bra", COMP_CWORD="1"
        ),
        capture_output=True,
        text=True,
        check=True,
    )
    assert completed.stdout.strip() == "plain,branch"


HOSTILE = "hostile/a\nFAKE\r\x1b[31m\u202e"


def test_what_others_wrote_cannot_forge_output(
    tarn: RunningTarn, repository: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """One object, message and metadata with line breaks and escape sequences, shown by every command that shows one.

    In this process: each of them would import its libraries again.
    """
    main, dev, text = f"{repository}/main", f"{repository}/dev", HOSTILE.removeprefix("hostile/")
    shown: dict[tuple[str, ...], str] = {}

    def show(*words: str) -> str:
        code = run(["--settings", str(tarn.settings), *words])
        said = capsys.readouterr()
        assert code == 0 or said.err, words
        shown[words] = said.out + said.err
        return said.out

    s3 = tarn.s3()
    show("branch", "create", dev, "--from", "main")
    s3.put_object(Bucket=repository, Key=f"main/{HOSTILE}", Body=b"1")
    show("diff", main)
    show("diff", main, "--name-only")
    show("commit", main, "-m", text, "--meta", f"k={text}")
    s3.put_object(Bucket=repository, Key=f"dev/{HOSTILE}", Body=b"22")
    s3.close()
    show("commit", dev, "-m", text)
    show("fs", "ls", f"{main}/hostile/")
    show("fs", "stat", f"{main}/{HOSTILE}")
    show("fs", "stat", f"{main}/{HOSTILE}x")
    show("fs", "rm", f"{main}/{HOSTILE}x")
    assert r"a\nFAKE\r\x1b[31m\u202e" in show("annotate", f"{main}/")
    assert r"k=a\nFAKE\r\x1b[31m\u202e" in show("log", main)
    show("log", main, "--oneline", "--graph")
    show("log", main, "--graph")
    show("refs", "show", main)
    show("reflog", main)
    show("diff", f"{main}..dev")
    show("diff", f"{main}..dev", "--summary")
    show("merge", dev, main, "--preview")
    show("merge", dev, main)
    show("merge", dev, main, "--take", "source:hostile/**", "-m", text)
    show("revert", main, "main")
    for words, said in shown.items():
        for line in said.split("\n"):
            assert line.isprintable(), words
            assert not line.startswith("FAKE"), words
    exact = json.loads(show("--json", "fs", "ls", f"{dev}/hostile/"))
    assert [each["path"] for each in exact] == [HOSTILE]


def test_files_that_cannot_be_do_not_keep_the_others(
    tarn: RunningTarn, repository: str, tmp_path: Path
) -> None:
    source = tmp_path / "source"
    source.mkdir()
    (source / "a").write_text("a")
    os.mkfifo(source / "pipe")
    (source / "circle").symlink_to(source / "circle")
    done = tarn.cli("--json", "fs", "upload", "-r", str(source), f"{repository}/main/x")
    assert done.code == 1
    told = json.loads(done.err)
    assert told["error"] == "FILES_REFUSED"
    assert [line.split(": ")[0].rpartition("/")[2] for line in told["details"]] == [
        "circle",
        "pipe",
    ]
    s3 = tarn.s3()
    for key in ("x/d", "x/d-", "x/d/e", "x//f", "x/../g", "x/" + "h" * 300, "x/link/i"):
        s3.put_object(Bucket=repository, Key=f"main/{key}", Body=b"1")
    s3.close()
    back, outside = tmp_path / "back", tmp_path / "outside"
    back.mkdir()
    outside.mkdir()
    (back / "link").symlink_to(outside)
    done = tarn.cli("fs", "download", "-r", f"{repository}/main/x/", str(back))
    assert done.code == 1
    assert [line.partition(":")[0] for line in done.err.splitlines()[1:]] == [
        "x/../g",
        "x//f",
        "x/d/e",
        "x/" + "h" * 300,
        "x/link/i",
    ]
    assert sorted(path.name for path in back.iterdir()) == ["a", "d", "d-", "link"]
    assert list(outside.iterdir()) == []
    assert tarn.cli("fs", "download", f"{repository}/main/x/a", str(source / "pipe")).code == 2
    assert tarn.cli("fs", "upload", str(source / "pipe"), f"{repository}/main/x/p").code == 2
