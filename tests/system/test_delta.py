"""Delta tables by delta-rs: writers in separate processes coordinate only by conditional PUTs."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections import Counter
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from running_tarn import RunningTarn, clean_environment

WRITERS = 4
APPENDS = 8
RETRIES = 100
"""Number of retries. delta-rs retries immediately, so its default of 15 may not be enough for many writers, on any
store (docs/user/delta.md)."""

WRITER = """
import json, sys
import arro3.core
from deltalake import CommitProperties, write_deltalake

uri, writer, appends, retries, options = sys.argv[1:]
int64 = arro3.core.DataType.int64()
properties = CommitProperties(max_commit_retries=int(retries))
print("ready", flush=True)
sys.stdin.readline()
for number in range(int(appends)):
    row = {"writer": int(writer), "number": number}
    columns = {name: arro3.core.Array([value], int64) for name, value in row.items()}
    write_deltalake(
        uri,
        arro3.core.Table.from_pydict(columns),
        mode="append",
        storage_options=json.loads(options),
        commit_properties=properties,
    )
"""


def storage_options(tarn: RunningTarn) -> dict[str, str]:
    """Returns the storage options of docs/user/delta.md."""
    return {
        "AWS_ENDPOINT_URL": tarn.endpoint,
        "AWS_ALLOW_HTTP": "true",
        "AWS_REGION": "us-east-1",
        "AWS_ACCESS_KEY_ID": tarn.access_key_id,
        "AWS_SECRET_ACCESS_KEY": tarn.secret_access_key,
        "aws_conditional_put": "etag",
    }


def start_writer(uri: str, number: int, appends: int, options: dict[str, str]) -> Any:
    """Runs a writer that waits for a line on stdin before it begins."""
    arguments = [uri, str(number), str(appends), str(RETRIES), json.dumps(options)]
    return subprocess.Popen(
        [sys.executable, "-c", WRITER, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=clean_environment(),
    )


def finish(writer: Any) -> None:
    _, err = writer.communicate(timeout=120)
    assert writer.returncode == 0, err


@dataclass(frozen=True)
class Put:
    """One attempt to write a version of a table, from the access log."""

    version: int
    status: int
    begin_ms: float
    end_ms: float


PUT = re.compile(
    r"(\S+Z) .*operation=PutObject .*repo=(\S+) .*path=\S*_delta_log/(\d+)\.json .*"
    r"status=(\d+) duration_ms=(\S+)"
)


def puts_of_versions(log: Path, repository: str) -> list[Put]:
    matches = (PUT.match(line) for line in log.read_text().splitlines())
    puts = []
    for match in matches:
        if match is not None and match[2] == repository:
            end_ms = datetime.fromisoformat(match[1]).timestamp() * 1000
            begin_ms = end_ms - float(match[5])
            puts.append(Put(int(match[3]), int(match[4]), begin_ms, end_ms))
    return puts


@pytest.mark.on_cassandra("three", long=True)
def test_several_writers_append_to_one_table_on_a_branch(
    tarn: RunningTarn, repository: str
) -> None:
    from deltalake import DeltaTable

    uri, options = f"s3://{repository}/main/tables/events", storage_options(tarn)
    first = start_writer(uri, WRITERS, 1, options)
    writers = [start_writer(uri, number, APPENDS, options) for number in range(WRITERS)]
    for each in (first, *writers):
        assert each.stdout.readline() == "ready\n"
    first.stdin.write("\n")
    finish(first)
    for writer in writers:
        writer.stdin.write("\n")
        writer.stdin.flush()
    for writer in writers:
        finish(writer)

    table = DeltaTable(uri, storage_options=options)
    assert table.version() == WRITERS * APPENDS, "version 0 is the first append"
    rows = table.to_pyarrow_table().to_pylist()
    wanted = [(number, each) for number in range(WRITERS) for each in range(APPENDS)]
    found = Counter((row["writer"], row["number"]) for row in rows)
    assert found == Counter([(WRITERS, 0), *wanted]), "each append is there exactly once"

    puts = puts_of_versions(tarn.log, repository)
    assert {put.status for put in puts} == {200, 412}, "no writer is told to retry"
    assert Counter(put.version for put in puts if put.status == 200) == Counter(
        range(WRITERS * APPENDS + 1)
    )
    winners = {put.version: put for put in puts if put.status == 200}
    late = [put for put in puts if put.status == 412 and put.begin_ms > winners[put.version].end_ms]
    assert late, "some writers must try a version that is already written"


def test_a_table_of_a_branch_is_merged_and_read_from_main(
    tarn: RunningTarn, repository: str
) -> None:
    """The writer names the bucket, which its session key binds to the branch; its readers name the same one."""
    import arro3.core
    from deltalake import DeltaTable, write_deltalake

    bucket, branch = f"{repository}-sales", f"{repository}/experiment"
    tarn.ok("branch", "create", branch, "--from", "main")
    tarn.ok("bucket", "create", bucket, "--to", f"{repository}/main")
    key = tarn.ok("--json", "auth", "session", "create", "--bind", f"{bucket}={branch}").json
    uri, main = f"s3://{bucket}/events", storage_options(tarn)
    bound = main | {
        "AWS_ACCESS_KEY_ID": key["access_key_id"],
        "AWS_SECRET_ACCESS_KEY": key["secret_access_key"],
        "AWS_SESSION_TOKEN": key["session_token"],
    }

    def append(options: dict[str, str], *numbers: int) -> None:
        column = arro3.core.Array(list(numbers), arro3.core.DataType.int64())
        rows = arro3.core.Table.from_pydict({"number": column})
        write_deltalake(uri, rows, mode="append", storage_options=options)

    def read(options: dict[str, str]) -> list[int]:
        table = DeltaTable(uri, storage_options=options).to_pyarrow_table()
        return sorted(table.column("number").to_pylist())

    append(bound, 1, 2)
    append(bound, 3)
    DeltaTable(uri, storage_options=bound).delete("number = 1")
    assert read(bound) == [2, 3]
    assert not DeltaTable.is_deltatable(uri, storage_options=main)
    tarn.ok("commit", branch, "-m", "events")
    tarn.ok("merge", branch, f"{repository}/main")
    assert read(main) == [2, 3]
    append(main, 4)
    assert (read(main), read(bound)) == ([2, 3, 4], [2, 3])
    # Version 3 exists on both branches now. They cannot be merged by file.
    append(bound, 5)
    tarn.ok("commit", branch, "-m", "more events")
    tarn.ok("commit", f"{repository}/main", "-m", "other events")
    refused = tarn.cli("merge", branch, f"{repository}/main")
    assert refused.code != 0
    assert "00000000000000000003.json" in refused.out + refused.err
    assert read(main) == [2, 3, 4]
