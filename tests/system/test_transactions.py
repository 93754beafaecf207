"""`tarn tx run` on running services: how transactions end, also by signals and crashes, beside and in each other."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest
from pages_as_written import own_name, play, script_of
from running_tarn import BIN, RunningTarn, clean_environment
from slowness import scaled

PAGE = Path(__file__).parents[2] / "docs" / "user" / "transactions.md"
WAIT_SECONDS = scaled(60)
PUT = """
import boto3, os, sys
s3 = boto3.client("s3")
s3.put_object(Bucket=sys.argv[1], Key=sys.argv[2], Body=sys.argv[2].encode())
"""


class ViewedRepository:
    """A repository with a bucket view of `main`, and the command line of its administrator."""

    def __init__(self, tarn: RunningTarn, repository: str, folder: Path) -> None:
        self.tarn = tarn
        self.name = repository
        self.view = f"{repository[:50]}-view"
        self.folder = folder
        self.environment = clean_environment(TARN_SETTINGS=str(tarn.settings))
        tarn.ok("bucket", "create", self.view, "--to", f"{repository}/main")

    def arguments(self, *arguments: str) -> list[str]:
        return [str(BIN / "tarn"), "tx", "run", "--repo", self.name, *arguments]

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            self.arguments(*arguments),
            cwd=self.folder,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, *arguments: str) -> tuple[int, dict[str, Any], str]:
        """Runs a transaction; returns its exit status, its result, and what was told."""
        process = self.start("--json", *arguments)
        out, err = process.communicate(timeout=WAIT_SECONDS)
        return process.returncode, json.loads(out), err

    def script(self, text: str) -> list[str]:
        return [sys.executable, "-c", textwrap.dedent(text)]

    def put(self, path: str) -> list[str]:
        return [*self.script(PUT), self.view, path]

    def branches(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = json.loads(
            self.tarn.ok("branch", "list", self.name, "--json").out
        )
        return found

    def paths(self) -> set[str]:
        listed = self.tarn.s3().list_objects_v2(Bucket=self.view)
        return {each["Key"] for each in listed.get("Contents", [])}

    def commits(self) -> int:
        return len(json.loads(self.tarn.ok("log", f"{self.name}/main", "--json").out))


@pytest.fixture
def lake(tarn: RunningTarn, repository: str, tmp_path: Path) -> ViewedRepository:
    return ViewedRepository(tarn, repository, tmp_path)


def keys(lake: ViewedRepository) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(lake.tarn.ok("auth", "session", "list", "--json").out)
    return [each for each in found if lake.name in each["description"]]


def test_the_page_about_transactions_works_as_written(tarn: RunningTarn, tmp_path: Path) -> None:
    script = script_of(PAGE.read_text(encoding="utf-8"))
    name = own_name("shop", tmp_path)
    script = re.sub(r"\bshop\b", name, script)
    done = play(tarn, script, tmp_path)
    assert "may.csv" in done.stdout
    assert "june.csv" not in done.stdout
    assert "nothing was written" in done.stdout


def test_success_failure_and_nothing(lake: ViewedRepository) -> None:
    status, result, told = lake.run("-m", "Load", "--", *lake.put("a"))
    assert (status, result["outcome"], result["buckets"]) == (0, "merged", [lake.view]), told
    assert lake.paths() == {"a"}
    failing = lake.script(f"{PUT}\nsys.exit(9)")
    status, result, _ = lake.run("--", *failing, lake.view, "b")
    assert (status, result["outcome"], result["kept"]) == (9, "discarded", False)
    status, result, _ = lake.run("--", "true")
    assert (status, result["outcome"], result["commit"]) == (0, "nothing", None)
    status, result, _ = lake.run("--", "no-such-command")
    assert (status, result["outcome"]) == (127, "discarded")
    assert lake.paths() == {"a"}
    assert lake.commits() == 2
    assert [each["branch"] for each in lake.branches()] == ["main"]
    assert keys(lake) == []


def test_a_transaction_may_write_to_its_own_bucket_only(lake: ViewedRepository) -> None:
    code = f"""
        import boto3, botocore, sys
        s3 = boto3.client("s3")
        s3.put_object(Bucket="{lake.view}", Key="own", Body=b"1")
        try:
            s3.put_object(Bucket="{lake.name}", Key="main/direct", Body=b"1")
        except botocore.exceptions.ClientError as error:
            sys.exit(error.response["ResponseMetadata"]["HTTPStatusCode"] - 400)
    """
    status, _, _ = lake.run("--", *lake.script(code))
    assert status == 3
    assert lake.paths() == set()


def test_a_conflict_is_shown_and_kept(lake: ViewedRepository) -> None:
    other = f"""
        import subprocess
        subprocess.run(["{BIN}/tarn", "tx", "run", "--repo", "{lake.name}", "--onto", "main", "--bucket",
            "{lake.view}", "--", "{sys.executable}", "-c", {PUT!r}, "{lake.view}", "a"], check=True)
    """
    mine = f"""
        import boto3
        boto3.client("s3").put_object(Bucket="{lake.view}", Key="a", Body=b"mine")
    """
    both = lake.script(textwrap.dedent(other) + textwrap.dedent(mine))
    status, result, told = lake.run("--", *both)
    assert (status, result["outcome"], result["kept"]) == (123, "conflict", True), told
    assert [each["path"] for each in result["conflicts"]] == ["a"]
    assert lake.tarn.s3().get_object(Bucket=lake.view, Key="a")["Body"].read() == b"a"
    (kept,) = [each for each in lake.branches() if each["branch"] != "main"]
    assert (kept["branch"], "expires" in kept) == (result["branch"], True)
    source = f"{lake.name}/{kept['branch']}"
    lake.tarn.ok("merge", source, f"{lake.name}/main", "--strategy", "source-wins")
    assert lake.tarn.s3().get_object(Bucket=lake.view, Key="a")["Body"].read() == b"mine"
    assert keys(lake) == []


def test_after_kill_9_the_branch_and_the_key_expire(lake: ViewedRepository) -> None:
    waiting = lake.script(f"{PUT}\nprint('written', flush=True)\nsys.stdin.read()")
    process = lake.start("--", *waiting, lake.view, "lost")
    assert process.stdout is not None
    assert process.stdout.readline() == "written\n"
    process.kill()
    process.wait(WAIT_SECONDS)
    process.stdout.close()
    assert process.stderr is not None
    process.stderr.close()
    (left,) = [each for each in lake.branches() if each["branch"] != "main"]
    assert left["state"] == "active"
    (key,) = keys(lake)
    assert key["buckets"] == {lake.view: f"{lake.name}/{left['branch']}"}
    assert key["expires"] < left["expires"]
    assert lake.paths() == set()
    lake.tarn.ok("auth", "session", "end", key["access_key_id"])


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signals_go_to_the_group_of_the_command(
    lake: ViewedRepository, number: signal.Signals
) -> None:
    inner = f"""
        import signal, subprocess, sys, time
        def handle(n, _):
            print("inner", n, flush=True)
            sys.exit(0)
        signal.signal({int(number)}, handle)
        print("ready", flush=True)
        time.sleep(60)
    """
    outer = f"""
        import signal, subprocess, sys
        child = subprocess.Popen([sys.executable, "-c", {textwrap.dedent(inner)!r}])
        signal.signal({int(number)}, lambda *_: None)
        child.wait()
        sys.exit(41)
    """
    process = lake.start("--", *lake.script(outer))
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    os.kill(process.pid, number)
    out, _ = process.communicate(timeout=WAIT_SECONDS)
    assert out == f"inner {int(number)}\n"
    assert process.returncode == 41
    assert [each["branch"] for each in lake.branches()] == ["main"]


def test_a_command_that_a_signal_ends_is_discarded(lake: ViewedRepository) -> None:
    suicide = lake.script(f"{PUT}\nos.kill(os.getpid(), 9)")
    status, result, _ = lake.run("--", *suicide, lake.view, "a")
    assert (status, result["outcome"]) == (137, "discarded")
    assert lake.paths() == set()


def test_parallel_transactions_are_all_merged(lake: ViewedRepository) -> None:
    started = [lake.start("--", *lake.put(f"part/{number}")) for number in range(4)]
    for process in started:
        _, told = process.communicate(timeout=WAIT_SECONDS)
        assert process.returncode == 0, told
    assert lake.paths() == {f"part/{number}" for number in range(4)}
    assert [each["branch"] for each in lake.branches()] == ["main"]


@pytest.mark.parametrize("outer_status", [0, 1])
def test_a_transaction_may_run_inside_another_one(
    lake: ViewedRepository, outer_status: int
) -> None:
    code = f"""
        import boto3, os, subprocess, sys
        s3 = boto3.client("s3")
        s3.put_object(Bucket="{lake.view}", Key="outer", Body=b"1")
        inner = '''
        import boto3
        s3 = boto3.client("s3")
        assert [each["Key"] for each in s3.list_objects_v2(Bucket="{lake.view}")["Contents"]] == ["outer"]
        s3.put_object(Bucket="{lake.view}", Key="inner", Body=b"1")
        '''
        import textwrap
        run = ["{BIN}/tarn", "tx", "run", "--"]
        subprocess.run([*run, sys.executable, "-c", textwrap.dedent(inner)], check=True)
        failed = subprocess.run([*run, sys.executable, "-c", "raise SystemExit(5)"])
        assert failed.returncode == 5
        found = [each["Key"] for each in s3.list_objects_v2(Bucket="{lake.view}")["Contents"]]
        assert found == ["inner", "outer"], found
        sys.exit({outer_status})
    """
    status, result, told = lake.run("--", *lake.script(code))
    assert status == outer_status, told
    assert lake.paths() == (set() if outer_status else {"inner", "outer"})
    assert lake.commits() == (1 if outer_status else 2)
    assert [each["branch"] for each in lake.branches()] == ["main"]
    assert result["kept"] is False


def test_uncommitted_changes_of_main_keep_the_branch(lake: ViewedRepository) -> None:
    lake.tarn.s3().put_object(Bucket=lake.view, Key="dirty", Body=b"1")
    status, result, _ = lake.run("--", *lake.put("a"))
    assert (status, result["outcome"], result["kept"]) == (125, "failed", True)
    assert lake.paths() == {"dirty"}
