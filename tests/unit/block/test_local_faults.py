"""The local store under attacks, damage, and faults of the disk."""

import asyncio
import errno
import fcntl
import os
import sqlite3
import threading
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from local_blocks import Clock, files, key, local_store

from tarn.block.local import LocalBlockStore, open_local
from tarn.block.local.small import SmallWriter
from tarn.block.port import CHUNK_BYTES, BlockKey, BlockNotFoundError, Joined
from tarn.core.errors import Kind, Reason, TarnError
from tarn.testing.contract.block_samples import collect, data_path


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[LocalBlockStore]:
    async with local_store(tmp_path) as store:
        yield store


async def rest(stream: AsyncIterator[bytes]) -> bytes:
    return b"".join([chunk async for chunk in stream])


# Attacks and damage

RAW = st.one_of(
    st.lists(st.sampled_from(["..", ".", "", "a", "link", "\0", "lake", "\\", "~", "x" * 255])).map(
        "/".join
    ),
    st.text(max_size=60),
    st.binary(max_size=40).map(lambda raw: raw.decode("utf-8", "surrogateescape")),
)


@settings(
    max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None
)
@given(namespace=st.one_of(st.just("lake"), RAW), path=RAW, size=st.sampled_from([1, 70_000]))
def test_nothing_is_written_outside_of_the_namespace(
    tmp_path_factory: pytest.TempPathFactory, namespace: str, path: str, size: int
) -> None:
    top = tmp_path_factory.mktemp("attack")
    root = top / "root"
    outside = top / "outside"
    (root / "lake").mkdir(parents=True)
    outside.mkdir()
    (outside / "a").write_text("secret")
    (root / "lake" / "link").symlink_to(outside)

    async def attack() -> bool:
        store = await open_local(root, clock=Clock(), durability="os", small_bytes_max=0)
        where = BlockKey(f"local://{namespace}", path)
        try:
            await store.put(where, bytes(size))
            assert await store.read(where) == bytes(size)
        except TarnError as error:
            assert error.kind in {Kind.INVALID, Kind.CORRUPT, Kind.ALREADY_EXISTS}  # noqa: PT017
            return False
        else:
            return True
        finally:
            with pytest.raises(TarnError):  # reading through the link fails too
                await store.read(key("link/a"))
            await store.close()

    written = asyncio.run(attack())
    assert [entry.name for entry in outside.iterdir()] == ["a"]
    assert (outside / "a").read_text() == "secret"
    assert {entry.name for entry in top.iterdir()} == {"root", "outside"}
    expected = [f"{namespace}/{path}"] if written else []
    assert [name for name in files(root) if name != "lake/link"] == expected
    for name in expected:
        assert os.path.commonpath([root / namespace, os.path.realpath(root / name)]) == str(
            root / namespace
        )


async def test_planted_link_is_corruption(store: LocalBlockStore, tmp_path: Path) -> None:
    await store.put(key("_tarn/a"), b"x")
    (tmp_path / "lake" / "_tarn" / "leaf").symlink_to("a")
    (tmp_path / "lake" / "data").symlink_to(tmp_path)
    for path in ("_tarn/leaf", "data/lake/_tarn/a"):
        for call in (store.read, store.stat, store.open_file):
            with pytest.raises(TarnError, match="symbolic link") as caught:
                await call(key(path))
            assert caught.value.kind is Kind.CORRUPT
    with pytest.raises(TarnError):
        await store.put(key("data/lake/x"), bytes(100_000))
    assert [info.path for info in await store.list_page("local://lake", "", "", 10)] == ["_tarn/a"]


@pytest.mark.parametrize("size", [100_000, 5 << 20])
async def test_shortened_file_is_corrupt(store: LocalBlockStore, tmp_path: Path, size: int) -> None:
    where = key(data_path(1))
    await store.put(where, bytes(size))
    stream = store.stream(where, 0, size)
    first = await anext(stream)
    os.truncate(tmp_path / "lake" / data_path(1), min(len(first), size - 1))
    for call in (collect(store, where, 0, size), collect(store, where, size - 1, 1)):
        with pytest.raises(TarnError) as caught:
            await call
        assert caught.value.reason is Reason.DATA_CORRUPT
    if size > 4 * CHUNK_BYTES:  # a draft of a running write
        with pytest.raises(TarnError, match="ends before"):
            await rest(stream)
    await stream.aclose()  # type: ignore[attr-defined]


async def test_file_where_a_directory_must_be(store: LocalBlockStore) -> None:
    await store.put(key("_tarn/a"), b"x")
    with pytest.raises(TarnError, match="in the way"):
        await store.put(key("_tarn/a/b"), b"x")
    with pytest.raises(BlockNotFoundError):
        await store.read(key("_tarn/a/b"))
    with pytest.raises(BlockNotFoundError):
        await store.read(key("_tarn"))


# Failing disks


@pytest.mark.parametrize("call", ["write", "fdatasync", "link", "fsync", "utime", "open"])
@pytest.mark.parametrize("path", [data_path(1), "_tarn/ranges/ab"])
async def test_failed_write_leaves_nothing(
    store: LocalBlockStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str, path: str
) -> None:
    await store.put(key(data_path(9)), bytes(100_000))  # create the directories
    await store.put(key("_tarn/ranges/zz"), b"x")

    def fail(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, call, fail)
        with pytest.raises(TarnError, match="disk is full") as caught:
            await store.put(key(path), bytes(100_000))
    assert caught.value.kind is Kind.UNAVAILABLE
    left = [name for name in files(tmp_path) if "zz" not in name and data_path(9) not in name]
    # A metadata file whose directory could not be synced stays: another writer may have found it already.
    assert left == ([f"lake/{path}"] if call == "fsync" and path.startswith("_tarn") else [])
    await store.put(key(path), bytes(100_000))
    assert await store.read(key(path)) == bytes(100_000)


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (errno.EACCES, Kind.INTERNAL),
        (errno.EROFS, Kind.INTERNAL),
        (errno.EDQUOT, Kind.UNAVAILABLE),
        (errno.EMFILE, Kind.EXHAUSTED),
        (errno.EIO, Kind.INTERNAL),
    ],
)
async def test_errors_tell_their_kind(
    store: LocalBlockStore, monkeypatch: pytest.MonkeyPatch, code: int, kind: Kind
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise OSError(code, os.strerror(code))

    with monkeypatch.context() as patch:
        patch.setattr(os, "fdatasync", fail)
        with pytest.raises(TarnError, match=errno.errorcode[code]) as caught:
            await store.put(key(data_path(1)), bytes(100_000))
    assert caught.value.kind is kind
    assert data_path(1) in caught.value.message


async def test_short_reads_of_the_system_are_continued(
    store: LocalBlockStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`pread` may return less than requested: above 2 GiB, on a signal, over a network."""
    body = os.urandom(100_000)
    await store.put(key(data_path(1)), body)
    pread = os.pread
    monkeypatch.setattr(os, "pread", lambda fd, count, at: pread(fd, min(count, 30_000), at))
    assert await store.read(key(data_path(1))) == body
    assert await store.read(key(data_path(1)), 10, 99_000) == body[10:99_010]
    assert await rest(store.stream(key(data_path(1)), 0, len(body))) == body


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (sqlite3.SQLITE_FULL, Kind.UNAVAILABLE),
        (sqlite3.SQLITE_READONLY, Kind.INTERNAL),
        (sqlite3.SQLITE_CORRUPT, Kind.CORRUPT),
    ],
)
async def test_errors_of_the_database_tell_their_kind_and_code(
    store: LocalBlockStore, monkeypatch: pytest.MonkeyPatch, code: int, kind: Kind
) -> None:
    name = next(
        name for name in dir(sqlite3) if getattr(sqlite3, name) == code and "SQLITE_" in name
    )

    def fail(_: SmallWriter) -> None:
        error = sqlite3.OperationalError("it failed")
        error.sqlite_errorcode, error.sqlite_errorname = code, name
        raise error

    monkeypatch.setattr(SmallWriter, "commit", fail)
    with pytest.raises(TarnError, match=name) as caught:
        await store.put(key(data_path(1)), b"x")
    assert (caught.value.kind, caught.value.metadata["sqlite"]) == (kind, name)


@pytest.mark.parametrize("is_alone", [True, False])
async def test_failed_commit_fails_its_batch_and_no_later_one(
    store: LocalBlockStore, monkeypatch: pytest.MonkeyPatch, is_alone: bool
) -> None:
    """That of a statement that is a transaction, and that of a transaction of several."""
    await store.put(key(data_path(0)), b"x")

    def fail(*_: object) -> None:
        raise sqlite3.OperationalError("disk I/O error")

    with monkeypatch.context() as patch:
        if is_alone:
            patch.setattr(SmallWriter, "_insert_group", fail)
        else:
            patch.setattr(SmallWriter, "insert_alone", lambda *_: False)
            patch.setattr(SmallWriter, "commit", fail)
        with pytest.raises(TarnError, match="I/O") as caught:
            await store.put(key(data_path(1)), b"lost")
        assert caught.value.kind is Kind.UNAVAILABLE
    with pytest.raises(BlockNotFoundError):
        await store.read(key(data_path(1)))
    await store.put(key(data_path(1)), b"again")
    assert await store.read(key(data_path(1))) == b"again"


async def test_defect_of_the_writer_thread_hangs_no_caller(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[object] = []
    monkeypatch.setattr(threading, "excepthook", lambda args: seen.append(args.exc_type))
    store = await open_local(tmp_path, clock=Clock())
    await store.put(key(data_path(0)), b"x")
    monkeypatch.setattr(SmallWriter, "_insert_group", lambda *_: 1 / 0)
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(_refused(store, number)) for number in range(1, 5)]
    assert [task.result() for task in tasks] == [Kind.UNAVAILABLE] * 4
    assert await _refused(store, 9) is Kind.UNAVAILABLE
    assert await store.read(key(data_path(0))) == b"x"
    await store.close()
    assert seen == [ZeroDivisionError]


async def test_a_closed_store_has_reported_the_defect_of_its_writer_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The report comes last: after the waiters have their answers, and after the thread says that it ends."""
    may_report = threading.Event()
    seen: list[object] = []

    def report(args: threading.ExceptHookArgs) -> None:
        assert may_report.wait(30)
        seen.append(args.exc_type)

    monkeypatch.setattr(threading, "excepthook", report)
    store = await open_local(tmp_path, clock=Clock())
    monkeypatch.setattr("tarn.block.local.small.SmallWriter.begin", lambda _: 1 / 0)
    assert await _refused(store, 1) is Kind.UNAVAILABLE
    async with asyncio.TaskGroup() as group:
        closing = group.create_task(store.close())
        await asyncio.wait({closing}, timeout=0.2)  # without the guard it ends here
        ended_early = closing.done()
        may_report.set()
    assert not ended_early
    assert seen == [ZeroDivisionError]


async def _refused(store: LocalBlockStore, number: int) -> Kind:
    with pytest.raises(TarnError) as caught:
        await store.put(key(data_path(number)), b"x")
    return caught.value.kind


async def test_completion_that_lost_its_part_looks_for_the_block(
    store: LocalBlockStore, tmp_path: Path
) -> None:
    where = key(data_path(1))
    for attempt in ("a", "b"):
        async with await store.uploads.open_part(where, "u", 1, attempt) as part:
            await part.write(bytes(1000))
            await part.finish()
    lock = os.open(tmp_path / ".tarn" / "small.lock", os.O_RDWR)
    try:
        for attempt, outcome in (("a", BlockNotFoundError), ("b", Joined)):
            fcntl.flock(lock, fcntl.LOCK_EX)  # another process works on it
            async with asyncio.TaskGroup() as group:
                task = group.create_task(_complete(store, where, attempt))
                await asyncio.sleep(0)  # it found its part and waits for the lock
                part_file = tmp_path / "lake" / ".uploads" / "u" / f"00001-{attempt}"
                if attempt == "b":  # the other process completes, and then discards
                    target = tmp_path / "lake" / data_path(1)
                    target.parent.mkdir(parents=True)
                    os.link(part_file, target)
                part_file.unlink()
                fcntl.flock(lock, fcntl.LOCK_UN)
            assert isinstance(task.result(), outcome)
    finally:
        os.close(lock)


async def _complete(store: LocalBlockStore, where: BlockKey, attempt: str) -> object:
    try:
        return await store.uploads.complete(where, "u", [(1, attempt)])
    except TarnError as error:
        return error


async def test_repeated_completion_is_durable_by_itself(
    store: LocalBlockStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    where = key(data_path(1))
    await store.put(where, bytes(100_000))  # as another process does, which may die before it syncs
    synced: list[Path] = []
    monkeypatch.setattr(
        os, "fsync", lambda fd: synced.append(Path(f"/proc/self/fd/{fd}").readlink())
    )
    assert (await store.uploads.complete(where, "u", [(1, "a")])).size == 100_000
    assert synced == [(tmp_path / "lake" / data_path(1)).parent]


@pytest.mark.parametrize("parts", [1, 2])
async def test_acknowledged_completion_outlives_the_failed_sync_of_another(
    store: LocalBlockStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, parts: int
) -> None:
    """Two processes complete one upload; the one that linked the file cannot sync its directory."""
    where = key(data_path(1))
    body = b"".join(bytes([number]) * 100_000 for number in range(parts))
    for number in range(parts):
        async with await store.uploads.open_part(where, "u", number + 1, "a") as part:
            await part.write(body[number * 100_000 : (number + 1) * 100_000])
            await part.finish()
    wanted = [(number + 1, "a") for number in range(parts)]
    linked, acknowledged = threading.Event(), threading.Event()

    def fail(names: tuple[str, ...]) -> None:
        linked.set()
        assert acknowledged.wait(30)
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    other = await open_local(tmp_path, clock=Clock())
    try:
        with monkeypatch.context() as patch:
            patch.setattr(store._tree, "sync_dir", fail)
            async with asyncio.TaskGroup() as group:
                first = group.create_task(_complete_all(store, where, wanted))
                assert await asyncio.to_thread(linked.wait, 30)
                assert await _complete_all(other, where, wanted) == len(body)
                acknowledged.set()
            assert isinstance(first.result(), TarnError)
            assert await other.read(where) == body
            # A completion that fails before it was acknowledged can be repeated by either process.
            assert isinstance(await _complete_all(store, where, wanted), TarnError)
        for again in (store, other):
            assert await _complete_all(again, where, wanted) == len(body)
            assert await again.read(where) == body
    finally:
        acknowledged.set()
        await other.close()


async def _complete_all(
    store: LocalBlockStore, where: BlockKey, parts: list[tuple[int, str]]
) -> int | TarnError:
    try:
        return (await store.uploads.complete(where, "u", parts)).size
    except TarnError as error:
        return error
