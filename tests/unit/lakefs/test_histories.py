"""Histories that no recorded lakeFS has: random ones, damaged ones, and those of a hostile bucket."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from graveler_service import Service, running_service
from lakefs_lab import NAMESPACE, WrittenBucket, opened, shown
from tests.support.peer_tables import message

from tarn.block.port import BlockKey
from tarn.core.commit import author_time_us
from tarn.core.dump import from_line
from tarn.core.entry import unpack
from tarn.core.errors import Kind, Reason, TarnError
from tarn.core.ids import physical_path
from tarn.lakefs.listings import Listings
from tarn.lakefs.records import commit_of
from tarn.lakefs.source import FolderSource

_BODIES = [b"%d" % each * each for each in range(1, 9)]


@pytest.fixture
async def service(tmp_path: Path) -> AsyncIterator[Service]:
    async with running_service(tmp_path / "service") as made:
        yield made


@pytest.fixture
def bucket(tmp_path: Path) -> WrittenBucket:
    (tmp_path / "shop").mkdir()
    return WrittenBucket(tmp_path / "shop")


async def imported(service: Service, bucket: WrittenBucket, work: Path) -> dict[str, Any]:
    async with opened(service, bucket.recorded(), work) as (bringing, *_):
        await bringing.run()
    return await shown(service)


async def refused(service: Service, bucket: WrittenBucket, work: Path, why: str) -> TarnError:
    with pytest.raises(TarnError, match=why) as caught:
        await imported(service, bucket, work)
    with pytest.raises(TarnError) as absent:
        await service.graveler.get_repository(service.admin, "shop")
    assert absent.value.reason is Reason.REPOSITORY_NOT_FOUND
    return caught.value


@pytest.mark.parametrize("seed", range(3))
async def test_random_histories_come_over(
    service: Service, bucket: WrittenBucket, tmp_path: Path, seed: int
) -> None:
    chance = random.Random(seed)
    contents: dict[str, dict[bytes, bytes]] = {}
    commits = [bucket.commit("")]
    contents[commits[0]] = {}
    for number in range(12):
        parents = chance.sample(commits, min(len(commits), chance.choice((1, 1, 2))))
        objects = dict(contents[parents[0]])
        for _ in range(chance.randrange(40)):
            path = b"%02d" % chance.randrange(60)
            objects.pop(path, None)
            if chance.random() < 0.8:
                objects[path] = chance.choice(_BODIES)
        listing = bucket.listing({path: bucket.object(body) for path, body in objects.items()})
        made = bucket.commit(listing, *parents, message=f"{number}")
        commits.append(made)
        contents[made] = objects
    bucket.branches = {"main": commits[-1], "dev": chance.choice(commits)}
    bucket.tags = {f"v{each}": chance.choice(commits) for each in range(3)}
    found = await imported(service, bucket, tmp_path / "work")
    for kind, refs in (("branch", bucket.branches), ("tag", bucket.tags)):
        for name, commit_id in refs.items():
            sizes = [(each[0].encode(), each[1]) for each in found[f"{kind} {name}"]["objects"]]
            expected = sorted((path, len(body)) for path, body in contents[commit_id].items())
            assert sizes == expected
            ids = {each[0] for each in found[f"{kind} {name}"]["log"]}
            assert commit_id in ids


async def test_what_tarn_cannot_keep_as_it_is_is_kept_beside(
    service: Service, bucket: WrittenBucket, tmp_path: Path
) -> None:
    large = bucket.object(b"a", "data/a", etag="f" * 32 + "-2", metadata={"Bad name": "x"})
    odd = bucket.object(
        b"b",
        "data/b",
        etag="0x8D",
        content_type="a\nb",
        metadata={"Ok": "y", "::lakefs::posix": "1"},
    )
    listing = bucket.listing({b"a": large, b"b": odd})
    root = bucket.commit("", time=2_000_000_000)
    forged = {"tarn.task": "t", "lakefs.commit_id": "forged", "ok": "1"}
    head = bucket.commit(listing, root, committer="Ann Lee", metadata=forged, time=1_000_000_000)
    bucket.branches = {"main": head}
    async with opened(service, bucket.recorded(), tmp_path / "work") as (bringing, history, state):
        await bringing.run()
        line = state.line(head)
    assert (history.progress.headers_left_out, history.progress.unverified) == (2, 2)
    assert line is not None
    commit = from_line(line)
    metadata = dict(commit.metadata)  # type: ignore[union-attr]
    assert metadata.pop("tarn.author_time").startswith("2001-09-09T01:46:40")
    assert metadata == {
        "lakefs.commit_id": head,
        "lakefs.committer": "Ann Lee",
        "lakefs.lakefs.commit_id": "forged",
        "lakefs.tarn.task": "t",
        "ok": "1",
    }
    assert author_time_us(commit) == 1_000_000_000_000_000  # type: ignore[arg-type]
    assert commit.create_time_us == 2_000_000_000_000_000  # type: ignore[union-attr]
    objects = (await shown(service))["branch main"]["objects"]
    assert [each[2:6:3] for each in objects] == [
        ["f" * 32 + "-2", {}],
        ["92eb5ffee6ae2fec3ad71c777531578f", {"ok": "y", "x-lakefs-internal-posix": "1"}],
    ]


async def test_a_bucket_cannot_lead_out_of_its_namespace(
    service: Service, bucket: WrittenBucket, tmp_path: Path
) -> None:
    """An import runs with the rights of an admin: an address must not make it read other files."""
    secret = tmp_path / "secret"
    secret.write_bytes(b"secret")
    (bucket.folder / "link").symlink_to(secret)
    (bucket.folder / "linked").symlink_to(tmp_path)
    for number, (address, kind) in enumerate(
        [
            ("../secret", 1),
            (str(secret), 1),
            (f"local://{secret}", 2),
            ("data/../../secret", 1),
            ("link", 1),
            ("linked/secret", 1),
        ]
    ):
        record = message((1, address), (2, b""), (3, 6), (4, "etag"), (6, kind))
        head = bucket.commit(bucket.listing({b"a": record}), message=f"{number}")
        bucket.branches = {"main": head}
        work = tmp_path / f"work{number}"
        error = await refused(service, bucket, work, "outside of the storage namespace")
        assert error.kind is Kind.DENIED
    assert not await service.replicas.blocks.list_page(NAMESPACE, "data/", "", 10)


def _tag_of_a_branch(bucket: WrittenBucket, head: str) -> None:
    bucket.tags = {"main": head}


def _no_commit(bucket: WrittenBucket, head: str) -> None:
    bucket.branches["dev"] = "ab" * 32


def _missing_parent(bucket: WrittenBucket, head: str) -> None:
    bucket.branches["dev"] = bucket.commit("", "ab" * 32)


def _cycle(bucket: WrittenBucket, head: str) -> None:
    bucket.commit("", "22" * 32, id="11" * 32, generation=5)
    bucket.branches["dev"] = bucket.commit("", "11" * 32, id="22" * 32, generation=6)


def _bad_name(bucket: WrittenBucket, head: str) -> None:
    bucket.branches["a b"] = head


def _path_of_a_listing(bucket: WrittenBucket, head: str) -> None:
    bucket.branches["dev"] = bucket.commit("../../../etc/passwd", head)


def _no_listing(bucket: WrittenBucket, head: str) -> None:
    bucket.branches["dev"] = bucket.commit("ab" * 32, head)


def _huge_message(bucket: WrittenBucket, head: str) -> None:
    bucket.branches["dev"] = bucket.commit("", head, message="x" * (1 << 20))


def _bad_path(bucket: WrittenBucket, head: str) -> None:
    listing = bucket.listing({b"\xff": bucket.object(b"1")})
    bucket.branches["dev"] = bucket.commit(listing, head)


def _negative_size(bucket: WrittenBucket, head: str) -> None:
    record = message((1, "a"), (3, (1 << 64) - 1), (6, 1))
    bucket.branches["dev"] = bucket.commit(bucket.listing({b"a": record}), head)


def _two_sizes(bucket: WrittenBucket, head: str) -> None:
    listing = bucket.listing(
        {b"a": bucket.object(b"12", "data/q"), b"b": bucket.object(b"12", "data/q", size=1)}
    )
    bucket.branches["dev"] = bucket.commit(listing, head)


def _two_checksums(bucket: WrittenBucket, head: str) -> None:
    """The second commit names an address that is copied already."""
    first = bucket.commit(bucket.listing({b"a": bucket.object(b"12", "data/q")}), head)
    other = bucket.object(b"12", "data/q", etag="ab" * 16)
    bucket.branches["dev"] = bucket.commit(bucket.listing({b"a": other}), first)


@pytest.mark.parametrize(
    ("damage", "why"),
    [
        (_tag_of_a_branch, "main is a branch and a tag"),
        (_no_commit, "it lacks commit abab"),
        (_missing_parent, "it lacks commit abab"),
        (_cycle, "not of an earlier generation"),
        (_bad_name, "branch 'a b' must be"),
        (_path_of_a_listing, "is no id of a file"),
        (_no_listing, "is not in the storage namespace"),
        (_huge_message, "message and metadata have"),
        (_bad_path, "is not UTF-8"),
        (_negative_size, "an object has -1 bytes"),
        (_two_checksums, "has the MD5"),
        (_two_sizes, "has 2 bytes instead of 1|more than 1 bytes"),
    ],
)
async def test_a_damaged_history_is_refused(
    service: Service,
    bucket: WrittenBucket,
    tmp_path: Path,
    damage: Callable[[WrittenBucket, str], None],
    why: str,
) -> None:
    head = bucket.commit("")
    bucket.branches = {"main": head}
    damage(bucket, head)
    await refused(service, bucket, tmp_path / "work", why)


async def test_a_listing_must_hold_what_it_says(
    service: Service, bucket: WrittenBucket, tmp_path: Path
) -> None:
    """The files are whole, but ranges are swapped: each has a place in the listing that is not its own."""
    rows = {b"%d" % each: bucket.object(b"%d" % each) for each in range(9)}
    bucket.branches = {"main": bucket.commit(bucket.listing(rows, cut=1))}
    record = bucket.recorded()
    listings = Listings(FolderSource(record.folder))
    head = commit_of(bucket.commits[bucket.branches["main"]])
    ranges = await listings.ranges(head.metarange_id)
    first, second = (record.folder / "_lakefs" / each.range_id for each in ranges[:2])
    held = first.read_bytes()
    first.write_bytes(second.read_bytes())
    second.write_bytes(held)
    with pytest.raises(TarnError, match="does not hold what its listing says"):
        async with opened(service, record, tmp_path / "work") as (bringing, *_):
            await bringing.run()


@dataclass
class Collected:
    """A history whose old objects lakeFS's garbage collection has deleted."""

    old: str
    older: str
    deleting: str
    again: str
    head: str


def collected(bucket: WrittenBucket) -> Collected:
    kept = bucket.object(b"kept")
    gone = {name: bucket.object(name * 5, f"data/gone/{name.decode()}") for name in (b"x", b"y")}
    older = bucket.commit(bucket.listing({b"a": gone[b"x"], b"b": gone[b"y"], b"k": kept}))
    old = bucket.commit(bucket.listing({b"a": gone[b"x"], b"b": kept, b"k": kept}), older)
    deleting = bucket.commit(bucket.listing({b"b": kept, b"k": kept}), old)
    written_again = bucket.object(b"x" * 5, "data/x/again")
    again = bucket.commit(bucket.listing({b"a": written_again, b"k": kept}), old)
    head = bucket.commit(bucket.listing({b"a": kept, b"k": kept}), deleting, again)
    for each in (bucket.folder / "data" / "gone").iterdir():
        each.unlink()
    bucket.branches = {"main": head}
    return Collected(old, older, deleting, again, head)


async def test_commits_whose_objects_are_gone_come_over_as_expired_ones(
    service: Service, bucket: WrittenBucket, tmp_path: Path
) -> None:
    made = collected(bucket)
    record, work = bucket.recorded(), tmp_path / "work"
    async with opened(service, record, work) as (bringing, *_):
        with pytest.raises(TarnError, match="--expire-missing"):
            await bringing.run()
    async with opened(service, record, work, expires_missing=True) as (bringing, history, _):
        done = await bringing.run()
    assert (history.progress.gone, done.commits) == (2, 5)
    graveler, admin = service.graveler, service.admin
    log = (await graveler.list_commits(admin, "shop", "main")).commits
    ids = {each.metadata["lakefs.commit_id"]: each.commit_id for each in log}
    for peer_id in (made.old, made.older):
        with pytest.raises(TarnError, match="objects deleted in lakeFS") as caught:
            await graveler.list_entries(admin, "shop", ids[peer_id])
        assert caught.value.reason is Reason.EXPIRED_COMMIT
    for peer_id, paths in (
        (made.deleting, ["b", "k"]),
        (made.again, ["a", "k"]),
        (made.head, ["a", "k"]),
    ):
        page = await graveler.list_entries(admin, "shop", ids[peer_id])
        assert list(page.paths) == paths
        for packed in page.entries:
            key = BlockKey(NAMESPACE, physical_path(unpack(packed).address))
            assert (await service.replicas.blocks.stat(key)).size > 0


@pytest.mark.parametrize("kind", ["branch", "tag"])
async def test_a_ref_whose_objects_are_gone_is_refused(
    service: Service, bucket: WrittenBucket, tmp_path: Path, kind: str
) -> None:
    """Nobody could read it, and whoever asks for the import can still decide in lakeFS."""
    made = collected(bucket)
    (bucket.branches if kind == "branch" else bucket.tags)["v1"] = made.old
    record, work = bucket.recorded(), tmp_path / "work"
    async with opened(service, record, work, expires_missing=True) as (bringing, *_):
        with pytest.raises(TarnError, match=f"1 objects of {kind} v1 are gone"):
            await bringing.run()
