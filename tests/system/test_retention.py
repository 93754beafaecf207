"""Retention from the command line, and what clients see of an expired commit."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError
from running_tarn import RunningTarn

from tarn.client.async_client import AsyncClient
from tarn.core.ids import CommitId
from tarn_proto.graveler.v1 import collection_service_pb2 as pb

RULES = {
    "branches": [{"match": "*", "keep_days": 7}],
    "detached": {"keep_days": 7},
    "objects": {"keep_read_days": 30},
}


@pytest.mark.in_form("single")
def test_rules_are_set_shown_checked_and_tried(tarn: RunningTarn, tmp_path: Path) -> None:
    lake = tarn.new_repository()
    file = tmp_path / "rules.json"
    file.write_text(json.dumps(RULES))
    assert json.loads(tarn.ok("retention", "check", str(file), "--json").json["rules"]) == RULES
    assert "every commit keeps its objects" in tarn.ok("retention", "show", lake).out
    tarn.ok("fs", "upload", str(file), f"{lake}/main/a")
    tarn.ok("commit", f"{lake}/main", "-m", "one")
    data = ("--data-dir", str(tarn.data))
    tried = tarn.ok("retention", "preview", lake, "--rules", str(file), "--json", *data).json
    assert (tried["commits"], tried["would_expire"], tried["objects_at_most"]) == (2, 0, 0)
    assert (tried["reads_known_since"], tried["keeps_all_objects"]) == ("never", True)
    tarn.ok("retention", "set", lake, str(file))
    assert json.loads(tarn.ok("retention", "show", lake, "--json").json["rules"]) == RULES
    tarn.ok("retention", "set", lake, "--none")
    assert tarn.ok("retention", "show", lake, "--json").json["rules"] == ""
    file.write_text('{"branches": [{"match": "*"}]}')
    for arguments in (("check",), ("set", lake)):
        wrong = tarn.cli("retention", *arguments, str(file))
        assert wrong.code == 2
        assert "branches[0] needs keep_days or keep_commits" in wrong.err
    late = tarn.cli("retention", "set", lake, "--none", "--if-match", "x")
    assert late.code == 5


@pytest.mark.in_form("separate")
def test_an_expired_commit_is_gone_for_readers_and_stays_in_the_log(
    tarn: RunningTarn, s3: Any
) -> None:
    lake = tarn.new_repository()
    for number in range(3):
        s3.put_object(Bucket=lake, Key="main/a", Body=b"%d" % number)
        tarn.ok("commit", f"{lake}/main", "-m", f"commit {number}")
    old = tarn.ok("refs", "show", f"{lake}/main~2", "--json").json["commit"]
    asyncio.run(expire(tarn, lake, old))
    for key in (f"{old}/a", "main~2/a"):
        with pytest.raises(ClientError) as raised:
            s3.get_object(Bucket=lake, Key=key)
        answer = raised.value.response
        assert answer["ResponseMetadata"]["HTTPStatusCode"] == 410
        assert answer["Error"]["Code"] == "ExpiredCommit"
        assert "a rule of a test" in answer["Error"]["Message"]
        with pytest.raises(ClientError) as raised:
            s3.head_object(Bucket=lake, Key=key)
        assert raised.value.response["ResponseMetadata"]["HTTPStatusCode"] == 410
    with pytest.raises(ClientError, match="ExpiredCommit"):
        s3.list_objects_v2(Bucket=lake, Prefix=f"{old}/")
    assert s3.get_object(Bucket=lake, Key="main/a")["Body"].read() == b"2"
    assert s3.get_object(Bucket=lake, Key="main~1/a")["Body"].read() == b"1"
    log = tarn.ok("log", f"{lake}/main").out
    assert log.count("Expired: by a rule of a test") == 1
    assert tarn.ok("diff", f"{lake}/{old}", f"{lake}/main").out
    for command in (
        ("branch", "create", f"{lake}/again", "--from", "main~2"),
        ("tag", "create", f"{lake}/v1", "--ref", old),
        ("branch", "move", f"{lake}/main", "main~2", "--yes"),
        ("cherry-pick", f"{lake}/main", "main~2", "--strategy", "source-wins"),
    ):
        refused = tarn.cli(*command)
        assert refused.code == 5, command
        assert "a rule of a test" in refused.err
        assert "tarn retention show" in refused.err


async def expire(tarn: RunningTarn, lake: str, commit_id: str) -> None:
    """Lets a commit expire, as a collection does that finds no reflog to keep it."""
    async with AsyncClient(
        tarn.server,
        access_key_id=tarn.access_key_id,
        secret_access_key=tarn.secret_access_key,
        auth_addresses=tarn.auth_server if tarn.auth_server != tarn.server else (),
    ) as client:
        await client.log_in()
        collections, run_id = client.collections, "a" * 32
        await collections.begin(client.call(), lake, run_id, pb.COLLECTION_PHASE_MARK)
        expiring = {CommitId(commit_id): "a rule of a test"}
        assert await collections.expire_commits(client.call(), lake, run_id, expiring) == 1
        totals = pb.CollectionTotals()
        await collections.end(client.call(), lake, run_id, totals, is_complete=False)
