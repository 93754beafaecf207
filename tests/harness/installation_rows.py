"""The rows of a whole installation, as the services write them, for tests that migrate it."""

from __future__ import annotations

from dataclasses import replace

from tarn.core.branch import Branch, Token, TokenKind
from tarn.core.compaction_pause import CompactionPause
from tarn.core.ids import BranchId, CommitId, RepositoryId, TokenId, UploadId
from tarn.kv.compaction_records import encode_pause
from tarn.kv.drop_records import Drop, encode_drop
from tarn.kv.fence import fence_partition
from tarn.kv.keys import AuthKeys, InstallationKeys, RepositoryKeys, path_key
from tarn.kv.port import Group, Kv, ListingKv, Partition, PartitionKind, Row
from tarn.kv.records import (
    Repository,
    decode_branch,
    encode_branch,
    encode_repository,
    parse_record,
    token_to,
)
from tarn_proto.store.v1 import graveler_pb2 as pb

__all__ = [
    "INSTALLATION",
    "STRAY",
    "UPLOAD",
    "Installation",
    "by_name",
    "contents",
    "sample_installation",
    "with_old_names",
    "write_rows",
]

INSTALLATION = "moved"
STRAY = Partition(f"{INSTALLATION}/lake-aa/main:lost", PartitionKind.PLAIN)
"""A token that no record names."""
_MAIN = BranchId("main")

UPLOAD = RepositoryKeys.upload(UploadId("u"))

Installation = dict[Partition, dict[bytes, bytes]]
"""Each declared partition and its rows."""


def sample_installation(staged: int = 40) -> Installation:
    """Returns two repositories, plain and conditional tokens in several buckets, users, drops, and an orphan."""
    keys = InstallationKeys(INSTALLATION)
    lake = Repository(RepositoryId("lake"), "aa", "local://lake", _MAIN, 1)
    gone = Repository(RepositoryId("gone"), "bb", "local://gone", _MAIN, 1, is_deleted=True)
    of_lake = keys.of_repository(lake.repository_id, lake.instance_uid)
    staging = Token(TokenId("t3"), TokenKind.PLAIN, 4, 3)
    sealed = Token(TokenId("t2"), TokenKind.CONDITIONAL, 4, 2)
    branch = Branch(b"i", staging, (sealed,), CommitId("c" * 64), 1)
    dropped_token = Token(TokenId("t1"), TokenKind.PLAIN, 4, 1)
    dropped = of_lake.token(_MAIN, dropped_token)
    drop = Drop(dropped, 3_600_000_000)
    rows: Installation = {
        keys.graveler: {
            keys.repository("lake"): encode_repository(lake),
            keys.repository("gone"): encode_repository(gone),
            keys.COMPACTION_PAUSE: encode_pause(CompactionPause("ann", 5, 7)),
        },
        keys.cleanup: {keys.DONE_BEFORE: b"17"},
        keys.reads: {b"sessions/%d" % number: b"session" for number in range(9)},
        keys.drops(1): {keys.drop(drop.drop_time_us, dropped.name): encode_drop(drop)},
        AuthKeys(INSTALLATION).partition: {AuthKeys.setup(): b"", AuthKeys.user("ann"): b"sealed"},
        of_lake.refs: {
            of_lake.branch("main"): encode_branch(branch),
            of_lake.tag("v1"): b"tag",
            of_lake.upload_day(9): b"",
        },
        of_lake.uploads(9): {UPLOAD: _upload(staging, sealed, dropped_token)},
        of_lake.commits: {of_lake.commit("c" * 64): b"commit"},
        of_lake.pulls: {of_lake.PULL_INDEX: b"index"},
        of_lake.changed: {of_lake.changed_paths(CommitId("c" * 64)): b"paths"},
        of_lake.token(_MAIN, staging): {
            path_key(f"raw/{n:05d}"): b"%d" % n * 9 for n in range(staged)
        },
        of_lake.token(_MAIN, sealed): {path_key(f"raw/{n}"): b"" for n in range(9)},
        dropped: {path_key("old"): b"\0\xff"},
        STRAY: {b"\xff\x00": b"lost"},
    }
    return rows


def _upload(*tokens: Token) -> bytes:
    """An upload whose completion may have written to some tokens."""
    attempts = [pb.StagingAttempt(token=token_to(each)) for each in tokens]
    return pb.UploadRecord(branch_id=_MAIN, attempts=attempts).SerializeToString()


async def write_rows(kv: Kv, installation: Installation) -> None:
    """Writes all rows; all must succeed."""
    for partition, rows in installation.items():
        groups = [Group(key, ((key, value),)) for key, value in rows.items()]
        assert not any(await kv.set_many(partition, groups))


async def contents(kv: ListingKv, installation_id: str = INSTALLATION) -> dict[str, list[Row]]:
    """Returns all rows that a store holds of an installation, except those of its own, by partition name."""
    found: dict[str, list[Row]] = {}
    own = {
        fence_partition(installation_id).name,
        InstallationKeys(installation_id).journal_state.name,
    }
    async for each in kv.partitions(f"{installation_id}/"):
        if each.name not in own:
            partition = Partition(each.name, each.kind, each.buckets or 1)
            found[each.name] = await kv.scan(partition, b"", None, 10_000)
    return {name: rows for name, rows in sorted(found.items()) if rows}


def by_name(installation: Installation) -> dict[str, list[Row]]:
    """Returns an installation in the form of `contents`."""
    return {
        partition.name: sorted(rows.items())
        for partition, rows in sorted(installation.items(), key=lambda item: item[0].name)
    }


def with_old_names(found: dict[str, list[Row]]) -> dict[str, list[Row]]:
    """Returns the contents of a store that was filled from the sample, with the names that its tokens had there.

    Each token that the record names must have a new one.
    """
    root, key = f"{INSTALLATION}/lake-aa", RepositoryKeys.branch(_MAIN)
    branch = decode_branch(dict(found[root])[key])
    old = [TokenId("t3"), TokenId("t2")]
    new = [token.token_id for token in branch.tokens]
    assert len(new) == len(old)
    assert not set(new) & set(old)
    renamed = {
        f"{root}/main:{after}": f"{root}/main:{before}"
        for after, before in zip(new, old, strict=True)
    }
    found = {renamed.get(name, name): rows for name, rows in found.items()}
    staging, sealed = (
        replace(token, token_id=name) for token, name in zip(branch.tokens, old, strict=True)
    )
    record = encode_branch(replace(branch, staging=staging, sealed=(sealed,)))
    found[root] = [(each, record if each == key else value) for each, value in found[root]]
    uploads = []
    for each, value in found[f"{root}/uploads/9"]:
        upload = parse_record(pb.UploadRecord(), value)
        for attempt in upload.attempts:
            at = attempt.token.token_id
            assert at not in old
            attempt.token.token_id = dict(zip(new, old, strict=True)).get(TokenId(at), at)
        uploads.append((each, upload.SerializeToString()))
    found[f"{root}/uploads/9"] = uploads
    return dict(sorted(found.items()))
