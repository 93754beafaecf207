"""All kinds of damage that a check must find, each applied to a lake of its own."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace

import pyarrow as pa
from fsck_lab import FsckLab
from lake import MAIN

from tarn.block.port import BlockKey
from tarn.block.rangefile import decode_range, describe_range, encode_metarange, encode_range
from tarn.core.branch import Token, TokenKind
from tarn.core.commit import Commit, commit_id_of, to_json
from tarn.core.entry import TOMBSTONE, Entry, pack
from tarn.core.errors import TarnError
from tarn.core.ids import BranchId, CommitId, RangeId, RepositoryId, TagId, TokenId
from tarn.core.listing.metarange import Metarange, RangeInfo
from tarn.core.listing.run import run_of_batch
from tarn.kv.agreement import SETTINGS
from tarn.kv.drop_records import Drop, encode_drop
from tarn.kv.fence import FENCE, fence_partition
from tarn.kv.keys import AuthKeys, day_of_upload, path_key
from tarn.kv.namespace_records import Namespace, encode_namespace
from tarn.kv.records import (
    RefKind,
    RefName,
    Tag,
    encode_branch,
    encode_ref_name,
    encode_tag,
)
from tarn_graveler.branch.building import staged_batches
from tarn_graveler.records.branches import BranchName
from tarn_graveler.uploads.state import NewUpload
from tarn_proto.store.v1 import graveler_pb2 as pb

Found = list[tuple[str, str]]
Damage = Callable[[FsckLab], Awaitable[Found]]
"""Applies one damage; returns the findings that a check must report."""

OLD_TOKEN = TokenId("0190000000007000800000000000000f")


async def fill(lab: FsckLab) -> None:
    """Creates two commits, a branch, a tag, uncommitted changes and an open upload."""
    for name in ("a", "b", "c", "d/e", "d/f", "g", "h", "i"):
        await lab.put(name)
    first = await lab.commit()
    graveler, repository = lab.lake.graveler, lab.lake.repository
    await graveler.tags.create(repository, TagId("v1"), first.commit_id)
    await graveler.branches.create(lab.lake.branch(BranchId("dev")), first.commit_id)
    await lab.put("on-dev", branch=BranchId("dev"))
    await lab.put("j")
    await lab.lake.delete("a")
    await lab.commit()
    await lab.put("k")
    await lab.put("l")
    await lab.lake.delete("b")
    await graveler.uploads.create(
        repository, NewUpload(MAIN, "big", pack_nothing(), "ann", "", False)
    )


def pack_nothing() -> bytes:
    return pack(Entry(0, 0, bytes(16), bytes(16)))


async def a_range(lab: FsckLab) -> str:
    """Returns the path of the range file that holds `c`."""
    head = await lab.lake.graveler.commits.get(lab.lake.repository, (await lab.branch()).commit_id)
    metarange = await lab.lake.graveler.committed.metarange(lab.namespace, head.metarange_id)
    info = metarange.ranges[metarange.range_of("c")]
    return f"_tarn/ranges/{info.range_id}.parquet"


def name_of(path: str) -> str:
    return path.rpartition("/")[2].partition(".")[0]


# ---- blocks


async def committed_block_is_gone(lab: FsckLab) -> Found:
    block = await lab.put("victim")
    await lab.commit()
    await lab.remove_block(block)
    return [("block-missing", block)]


async def staged_block_is_gone(lab: FsckLab) -> Found:
    block = await lab.put("victim")
    await lab.remove_block(block)
    return [("block-missing", block)]


async def erased_block_is_there(lab: FsckLab) -> Found:
    block = await lab.put("erased")
    await lab.set(lab.keys.commits, lab.keys.erased(bytes.fromhex(block[-32:])), b"")
    return [("block-erased", block)]


async def block_is_cut_off(lab: FsckLab) -> Found:
    block = await lab.put("victim", b"12345")
    await lab.commit()
    await lab.replace_block(block, b"1234")
    return [("block-size", block)]


async def block_is_an_orphan(lab: FsckLab) -> Found:
    old = await lab.put("twice", b"1")
    await lab.put("twice", b"2")
    return [("block-orphan", old)]


async def foreign_files_exist(lab: FsckLab) -> Found:
    paths = ["0", "_tarn/notes.txt", "data/readme", "data/2026010101/" + "0" * 32, "zoo/x"]
    for path in paths:
        await lab.blocks.put(BlockKey(lab.namespace, path), b"x")
    return [("block-foreign", path) for path in sorted(paths)]


# ---- ranges and metaranges


async def range_is_gone(lab: FsckLab) -> Found:
    path = await a_range(lab)
    await lab.remove_block(path)
    return [("range-missing", f"range {name_of(path)}")]


async def range_has_a_flipped_byte(lab: FsckLab) -> Found:
    path = await a_range(lab)
    body = bytearray(await lab.blocks.read(BlockKey(lab.namespace, path)))
    # Some bytes have no effect (padding, the name of the writer): find the first one that does.
    for at in range(4, len(body)):
        body[at] ^= 1
        try:
            decode_range(RangeId(name_of(path)), bytes(body))
        except TarnError:
            break
        body[at] ^= 1
    await lab.replace_block(path, bytes(body))
    return [("range-damaged", f"range {name_of(path)}")]


async def range_holds_other_rows(lab: FsckLab) -> Found:
    path = await a_range(lab)
    other = next(each for each in await lab.listed("_tarn/ranges/") if each != path)
    await lab.replace_block(path, await lab.blocks.read(BlockKey(lab.namespace, other)))
    return [("range-damaged", f"range {name_of(path)}")]


async def metarange_is_gone(lab: FsckLab) -> Found:
    made = await lab.commit()
    path = f"_tarn/metaranges/{made.commit.metarange_id}.parquet"
    await lab.remove_block(path)
    return [("metarange-missing", f"metarange {made.commit.metarange_id}")]


async def metarange_is_cut_off(lab: FsckLab) -> Found:
    made = await lab.commit()
    path = f"_tarn/metaranges/{made.commit.metarange_id}.parquet"
    body = await lab.blocks.read(BlockKey(lab.namespace, path))
    await lab.replace_block(path, body[:-9])
    return [("metarange-damaged", f"metarange {made.commit.metarange_id}")]


async def publish(lab: FsckLab, ranges: list[RangeInfo]) -> str:
    """Adds a commit with a listing that Tarn would not make to the branch `dev`."""
    metarange = Metarange(tuple(ranges))
    path = f"_tarn/metaranges/{metarange.metarange_id}.parquet"
    await lab.blocks.put(BlockKey(lab.namespace, path), memoryview(encode_metarange(metarange)))
    dev = await lab.branch(BranchId("dev"))
    head = await lab.lake.graveler.commits.get(lab.lake.repository, dev.commit_id)
    commit = Commit((dev.commit_id,), metarange.metarange_id, "eve", "", 1, head.generation + 1)
    commit_id = await lab.lake.graveler.commits.add(lab.lake.repository, commit)
    await lab.set_branch(replace(dev, commit_id=commit_id), BranchId("dev"))
    return metarange.metarange_id


async def metarange_has_wrong_bounds(lab: FsckLab) -> Found:
    head = await lab.lake.graveler.commits.get(lab.lake.repository, (await lab.branch()).commit_id)
    metarange = await lab.lake.graveler.committed.metarange(lab.namespace, head.metarange_id)
    info = metarange.ranges[0]
    await publish(lab, [replace(info, count=info.count + 1)])
    return [("range-bounds", f"range {info.range_id}")]


async def range_holds_a_marker(lab: FsckLab) -> Found:
    run = run_of_batch(pa.record_batch([pa.array(["x"]), pa.array([TOMBSTONE])], ["path", "value"]))
    info = describe_range(run)
    key = BlockKey(lab.namespace, f"_tarn/ranges/{info.range_id}.parquet")
    await lab.blocks.put(key, memoryview(encode_range(run)))
    await publish(lab, [info])
    return [("entry-invalid", f"range {info.range_id} x")]


async def files_are_orphans(lab: FsckLab) -> Found:
    """The state that a commit leaves when it loses its last compare-and-set."""
    await lab.put("lost")
    graveler, repository = lab.lake.graveler, lab.lake.repository
    record = (await graveler.branches.fresh(BranchName(repository, MAIN))).branch
    keys = graveler.repositories.keys_of(repository)
    layers = [staged_batches(lab.lake.kv, keys.token(MAIN, record.staging))]
    before = set(await lab.listed("_tarn/"))
    built = await graveler.committed.build(lab.namespace, None, layers)
    commit = Commit((record.commit_id,), built.metarange_id, "eve", "", 1, 3)
    key = BlockKey(lab.namespace, f"_tarn/commits/{commit_id_of(commit)}.json")
    await lab.blocks.put(key, to_json(commit))
    new = sorted(set(await lab.listed("_tarn/")) - before)
    codes = {"commits": "commit-orphan", "metaranges": "metarange-orphan", "ranges": "range-orphan"}
    return [(codes[path.split("/")[1]], path) for path in new]


# ---- commits and refs


async def commit_row_is_gone(lab: FsckLab) -> Found:
    branch = await lab.branch()
    await lab.kv.delete_many(lab.keys.commits, [lab.keys.commit(branch.commit_id)])
    return [("commit-row-missing", f"commit {branch.commit_id}")]


async def commit_is_gone(lab: FsckLab) -> Found:
    branch = await lab.branch()
    await lab.kv.delete_many(lab.keys.commits, [lab.keys.commit(branch.commit_id)])
    await lab.remove_block(f"_tarn/commits/{branch.commit_id}.json")
    note = next(each for each in await lab.listed("_tarn/refs/main/") if branch.commit_id in each)
    return [("commit-missing", f"commit {branch.commit_id}"), ("note-invalid", note)]


async def parent_is_gone(lab: FsckLab) -> Found:
    head = (await lab.branch()).commit_id
    (parent,) = (await lab.lake.graveler.commits.get(lab.lake.repository, head)).parents
    (root,) = (await lab.lake.graveler.commits.get(lab.lake.repository, parent)).parents
    await lab.kv.delete_many(lab.keys.commits, [lab.keys.commit(root)])
    await lab.remove_block(f"_tarn/commits/{root}.json")
    return [("commit-missing", f"commit {root}")]


async def commit_row_is_another(lab: FsckLab) -> Found:
    head = (await lab.branch()).commit_id
    (parent,) = (await lab.lake.graveler.commits.get(lab.lake.repository, head)).parents
    (found,) = await lab.kv.get_many(lab.keys.commits, [lab.keys.commit(parent)])
    assert found is not None
    await lab.set(lab.keys.commits, lab.keys.commit(head), found.value)
    return [("commit-row-damaged", f"commit {head}")]


async def commit_object_is_gone(lab: FsckLab) -> Found:
    head = (await lab.branch()).commit_id
    await lab.remove_block(f"_tarn/commits/{head}.json")
    return [("commit-object-missing", f"commit {head}")]


async def commit_object_is_another(lab: FsckLab) -> Found:
    head = (await lab.branch()).commit_id
    path = f"_tarn/commits/{head}.json"
    body = await lab.blocks.read(BlockKey(lab.namespace, path))
    await lab.replace_block(path, body.replace(b'"ann"', b'"eve"'))
    return [("commit-object-damaged", f"commit {head}")]


async def generation_is_wrong(lab: FsckLab) -> Found:
    branch = await lab.branch()
    head = await lab.lake.graveler.commits.get(lab.lake.repository, branch.commit_id)
    commit = replace(head, parents=(branch.commit_id,), generation=9, message="jump")
    commit_id = await lab.lake.graveler.commits.add(lab.lake.repository, commit)
    await lab.set_branch(replace(branch, commit_id=commit_id))
    return [("commit-generation", f"commit {commit_id}")]


async def commit_has_no_ref(lab: FsckLab) -> Found:
    branch = await lab.branch()
    head = await lab.lake.graveler.commits.get(lab.lake.repository, branch.commit_id)
    commit = replace(head, message="unreachable", create_time_us=1)
    commit_id = await lab.lake.graveler.commits.add(lab.lake.repository, commit)
    return [("commit-orphan", f"commit {commit_id}")]


async def tag_dangles(lab: FsckLab) -> Found:
    nowhere = CommitId("ab" * 32)
    await lab.lake.graveler.tags.create(lab.lake.repository, TagId("v2"), nowhere)
    return [("commit-missing", f"commit {nowhere}")]


async def branch_is_garbage(lab: FsckLab) -> Found:
    await lab.set(lab.keys.refs, lab.keys.branch("bad"), b"\xff\xff")
    await lab.set(lab.keys.refs, lab.keys.SETTINGS, b"\xff\xff")
    return [
        ("record-damaged", f"{lab.keys.refs.name} branches/bad"),
        ("record-damaged", f"{lab.keys.refs.name} settings"),
    ]


async def ref_row_is_unknown(lab: FsckLab) -> Found:
    await lab.set(lab.keys.refs, b"stars/x", b"")
    await lab.set(
        lab.keys.refs, "upload-days/\u0661".encode(), b""
    )  # a digit, but not an ASCII one
    await lab.set(lab.keys.commits, b"x", b"")
    return [
        ("key-unknown", f"{lab.keys.commits.name} x"),
        ("key-unknown", f"{lab.keys.refs.name} stars/x"),
        ("key-unknown", f"{lab.keys.refs.name} upload-days/\u0661"),
    ]


async def note_lies(lab: FsckLab) -> Found:
    note = (await lab.listed("_tarn/refs/"))[0]
    await lab.replace_block(note, b'{"branch": "main", "commit_id": "x"}')
    return [("note-invalid", note)]


# ---- tokens and uploads


async def staged_row_is_garbage(lab: FsckLab) -> Found:
    token = await lab.lake.staging_rows()
    await lab.set(token, path_key("bad"), b"\1short")
    return [("entry-invalid", f"{token.name} key/bad")]


async def staged_row_has_a_torn_tail(lab: FsckLab) -> Found:
    token = await lab.lake.staging_rows()
    await lab.set(token, path_key("bad"), pack_nothing() + b"\1\xff")
    return [("entry-invalid", f"{token.name} key/bad")]


async def staged_address_is_impossible(lab: FsckLab) -> Found:
    token = await lab.lake.staging_rows()
    await lab.set(token, path_key("bad"), pack(Entry(1, 0, b"\xff" * 16, bytes(16))))
    return [("entry-invalid", f"{token.name} key/bad")]


async def staged_row_is_foreign(lab: FsckLab) -> Found:
    token = await lab.lake.staging_rows()
    await lab.set(token, b"strange/1", b"")
    await lab.set(token, path_key("\xff").replace(b"\xc3\xbf", b"\xff"), pack_nothing())
    return [
        ("entry-invalid", f"{token.name} key/\\xff"),
        ("key-unknown", f"{token.name} strange/1"),
    ]


async def two_branches_share_a_token(lab: FsckLab) -> Found:
    main, dev = await lab.branch(), await lab.branch(BranchId("dev"))
    await lab.set_branch(replace(dev, sealed=(main.staging,)), BranchId("dev"))
    return [("token-shared", f"token {main.staging.token_id}")]


async def token_is_of_another_kind(lab: FsckLab) -> Found:
    branch = await lab.branch()
    token = replace(branch.staging, kind=TokenKind.CONDITIONAL)
    await lab.set_branch(replace(branch, staging=token))
    return [("token-unreadable", lab.keys.token(MAIN, token).name)]


async def live_token_is_registered(lab: FsckLab) -> Found:
    token = lab.keys.token(MAIN, (await lab.branch()).staging)
    drop = Drop(token, lab.lake.clock.now_us())
    hours = lab.installation.drops(drop.drop_time_us // 3_600_000_000)
    await lab.set(hours, lab.installation.drop(drop.drop_time_us, token.name), encode_drop(drop))
    return [("token-doomed", token.name)]


async def token_has_no_record(lab: FsckLab) -> Found:
    token = Token(OLD_TOKEN, TokenKind.CONDITIONAL, 4, 0)
    partition = lab.keys.token(MAIN, token)
    await lab.set(partition, path_key("x"), TOMBSTONE)
    return [("partition-orphan", partition.name)]


async def upload_left_rows(lab: FsckLab) -> Found:
    upload_id = OLD_TOKEN
    part = pb.UploadPartRecord(part_number=1)
    key = f"parts/{upload_id}/00001".encode()
    day = day_of_upload(upload_id) or 0
    await lab.set(lab.keys.refs, lab.keys.upload_day(day), b"")
    await lab.set(lab.keys.uploads(day), key, part.SerializeToString())
    return [("upload-orphan", f"upload {upload_id}")]


async def upload_part_is_another(lab: FsckLab) -> Found:
    upload = (await lab.lake.graveler.uploads.page(lab.lake.main, "", ("", ""), 9))[0]
    part = pb.UploadPartRecord(part_number=2)
    key = f"parts/{upload.upload_id}/00001".encode()
    partition = lab.keys.uploads(day_of_upload(upload.upload_id) or 0)
    await lab.set(partition, key, part.SerializeToString())
    return [("record-damaged", f"{partition.name} {key.decode()}")]


# ---- the installation


async def namespace_is_not_reserved(lab: FsckLab) -> Found:
    key = lab.installation.namespace(lab.namespace)
    thief = Namespace(RepositoryId("thief"), "01900000000070008000000000000001")
    await lab.set(lab.installation.graveler, key, encode_namespace(thief))
    return [("namespace-taken", lab.namespace), ("namespace-orphan", lab.namespace)]


async def namespace_outlived_its_repository(lab: FsckLab) -> Found:
    key = lab.installation.namespace("mem://old")
    gone = Namespace(RepositoryId("gone"), OLD_TOKEN, is_final=True)
    await lab.set(lab.installation.graveler, key, encode_namespace(gone))
    return [("namespace-orphan", "mem://old")]


async def namespace_is_garbage(lab: FsckLab) -> Found:
    await lab.set(lab.installation.graveler, b"namespaces/mem://bad", b"")
    return [("record-damaged", "test/graveler namespaces/mem://bad")]


async def creation_of_a_repository_never_ended(lab: FsckLab) -> Found:
    """Its namespace is not reported separately: the next creation takes over both."""
    await lab.lake.graveler.repositories.reserve(RepositoryId("soon"), "", MAIN)
    return [("creation-orphan", "repository soon")]


# ---- names


async def branch_is_named_as_a_tag_is(lab: FsckLab) -> Found:
    dev = await lab.branch(BranchId("dev"))
    staging = Token(TokenId("0190000000007000800000000000000e"), TokenKind.PLAIN, 4, 0)
    namesake = replace(dev, incarnation=b"other", staging=staging)
    await lab.set_branch(namesake, BranchId("v1"))
    return [("name-unheld", "branch v1"), ("ref-twice", "v1")]


async def names_are_lost(lab: FsckLab) -> Found:
    await lab.kv.delete_many(lab.keys.refs, [lab.keys.name("dev"), lab.keys.name("v1")])
    return [("name-unheld", "branch dev"), ("name-unheld", "tag v1")]


async def name_is_of_a_tag_that_is_gone(lab: FsckLab) -> Found:
    gone = RefName(RefKind.TAG, b"0" * 16, lab.lake.clock.now_us())
    await lab.set(lab.keys.refs, lab.keys.name("old"), encode_ref_name(gone))
    return [("name-orphan", "name old")]


async def name_is_garbage(lab: FsckLab) -> Found:
    await lab.set(lab.keys.refs, lab.keys.name("bad"), b"\x08\x09")
    return [("record-damaged", f"{lab.keys.refs.name} names/bad")]


async def creations_of_refs_never_ended(lab: FsckLab) -> Found:
    now = lab.lake.clock.now_us()
    tag = Tag((await lab.branch()).commit_id, now, b"0" * 16, is_pending=True)
    await lab.set(lab.keys.refs, lab.keys.tag("v9"), encode_tag(tag))
    branch = replace(await lab.branch(BranchId("dev")), incarnation=b"1" * 16, create_time_us=now)
    pending = encode_branch(branch, is_pending=True)
    await lab.set(lab.keys.refs, lab.keys.branch("b9"), pending)
    return [("creation-orphan", "branch b9"), ("creation-orphan", "tag v9")]


async def repository_record_is_garbage(lab: FsckLab) -> Found:
    await lab.set(lab.installation.graveler, b"repos/bad", b"\xff\xff")
    return [("record-damaged", "test/graveler repos/bad")]


async def auth_record_is_another(lab: FsckLab) -> Found:
    auth = AuthKeys("test").partition
    await lab.set(auth, b"users/ann", b"")
    await lab.set(auth, b"groups/x", b"")
    return [("key-unknown", "test/auth groups/x"), ("record-damaged", "test/auth users/ann")]


async def fence_and_settings_are_garbage(lab: FsckLab) -> Found:
    place = fence_partition("test")
    for key in (FENCE, SETTINGS, b"other"):
        await lab.set(place, key, b"{")
    damaged = [("record-damaged", "test/fence fence"), ("record-damaged", "test/fence settings")]
    return [("key-unknown", "test/fence other"), *damaged]


async def drop_is_garbage(lab: FsckLab) -> Found:
    hours = lab.installation.drops(1)
    await lab.set(hours, b"drop/x", b"\xff\xff")
    return [("record-damaged", "test/cleanup/1 drop/x")]


DAMAGES: list[Damage] = [
    each
    for each in list(globals().values())
    if callable(each) and getattr(each, "__annotations__", {}).get("return") == "Found"
]
