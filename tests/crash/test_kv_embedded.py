"""The embedded store after a power failure: every acknowledged write is there, no partial write, no damage.

Leaving out any sync breaks the promise, which shows that the test detects it. See docs/design/crash.md.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.crash.examine import (
    FIRST_FAILURE,
    SEED,
    Plan,
    broken_promises,
    contents,
    fast_folder,
    is_missed,
    library,
)
from tests.crash.kv_story import KvRun, KvStory
from tests.support.crash.disk import Disk
from tests.support.crash.loss import rebuild_all
from tests.support.crash.recorder import recording
from tests.support.crash.trace import NodeKind, Trace, Truncate, Write

from tarn.kv.embedded import sql

_ROUNDS = 45
_NOT_NEEDED = (
    # These sync a file that holds nothing yet; the sync of the first opening's number covers them.
    "sqlite journal < kv.embedded.database:_create_tables",
    "sqlite log's frames < kv.embedded.database:_create_tables",
    "sqlite log's header < kv.embedded.database:_create_tables",
    # sqlite syncs the folder twice, with its journal and with its log. Tarn syncs it again, because sqlite
    # may be built without these syncs (SQLITE_DISABLE_DIRSYNC).
    "sqlite folder < kv.embedded.database:_create_tables",
    "kv.embedded.files:sync_folder < kv.embedded.database:_open_locked",
    # A new log has no older frames that its header must precede.
    "sqlite log's header < kv.embedded.database:_open_locked",
)
_NOT_NEEDED_FOR_FSYNC = (
    *_NOT_NEEDED,
    # The number of the opening: versions that begin with it are returned only after the sync of a transaction.
    "sqlite log's frames < kv.embedded.database:_open_locked",
)

pytestmark = pytest.mark.timeout(180)


@pytest.fixture
def work(tmp_path: Path) -> Iterator[Path]:
    with fast_folder(tmp_path) as folder:
        yield folder


@pytest.fixture(autouse=True)
def _many_checkpoints(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sql, "WAL_CHECKPOINT_PAGES", 40)


async def play(work: Path, durability: sql.Durability) -> tuple[Trace, KvStory]:
    root = work / "recorded"
    root.mkdir()
    with recording(root, library()) as trace:
        story = await KvRun(trace, SEED, durability).play(_ROUNDS)
    return trace, story


@pytest.mark.parametrize("durability", ["fsync", "os"])
async def test_no_promise_is_broken_by_a_power_failure(
    work: Path, durability: sql.Durability
) -> None:
    trace, story = await play(work, durability)
    assert await broken_promises(trace, story, work, Plan()) == []


async def test_recording_holds_every_byte_and_every_turn_of_the_log(work: Path) -> None:
    """The log starts over, is emptied and is removed; otherwise the other tests prove little."""
    trace, story = await play(work, "fsync")
    disk = Disk(trace)
    disk.advance(trace.now)
    (work / "rebuilt").mkdir()
    rebuild_all(disk, work / "rebuilt")
    assert contents(work / "rebuilt") == contents(work / "recorded")

    logs = [number for number, node in enumerate(trace.nodes) if node.kind is NodeKind.LOG]
    assert len(logs) > 2
    changes = [event for event in trace.events if event.node in logs]
    assert sum(isinstance(event, Write) and event.at == 0 for event in changes) > len(logs) + 3
    assert any(isinstance(event, Truncate) and event.size == 0 for event in changes)
    assert len(story.writes) > 150


@pytest.mark.parametrize(
    ("durability", "not_needed"), [("fsync", _NOT_NEEDED_FOR_FSYNC), ("os", _NOT_NEEDED)]
)
async def test_leaving_out_any_sync_is_detected(
    work: Path, durability: sql.Durability, not_needed: tuple[str, ...]
) -> None:
    trace, story = await play(work, durability)
    needed = {site for site in trace.sites if not site.startswith(not_needed)}
    assert len(needed) >= 5
    unmissed = [site for site in sorted(needed) if not await is_missed(site, trace, story, work)]
    assert unmissed == []


async def test_weaker_durability_breaks_the_stronger_promise(work: Path) -> None:
    trace, story = await play(work, "os")
    story.durability = "fsync"
    assert await broken_promises(trace, story, work, FIRST_FAILURE) != []


async def test_log_without_syncs_breaks_the_weaker_promise(
    work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pragmas = sql.connection_pragmas

    def careless(durability: sql.Durability) -> tuple[str, ...]:
        return (*pragmas(durability), "PRAGMA synchronous = OFF")

    with monkeypatch.context() as patch:
        patch.setattr(sql, "connection_pragmas", careless)
        trace, story = await play(work, "os")
    assert await broken_promises(trace, story, work, FIRST_FAILURE) != []
