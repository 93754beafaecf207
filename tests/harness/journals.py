"""Events of a journal for tests, and a direct model of what a rebuild makes of them."""

from __future__ import annotations

import hashlib
import random
from collections.abc import AsyncIterator, Callable, Iterable, Sequence

import msgspec
import pyarrow as pa

from tarn.block.port import BlockStore
from tarn.core.branch import Branch, Token, TokenKind
from tarn.core.ids import CommitId, TokenId
from tarn.journal.epochs import Epoch, EpochCause, begin_epoch, next_epoch
from tarn.journal.events import EVENT_SCHEMA, EventRow, table_of
from tarn.journal.replay import Record, StagedRows
from tarn.journal.writing import BranchPass, JournalWriter, write_base
from tarn.kv.records import decode_branch, encode_branch

__all__ = [
    "GUARDS",
    "State",
    "batch_of",
    "branch_record",
    "model",
    "random_events",
    "random_journal",
    "record",
    "row",
    "state_of",
]

_HOUR = 3_600_000_000
_TOKENS = [f"t{at}" for at in range(5)]
_PAYLOADS = [b"", b"p", b"q", b"\x7f", b"\xff" * 40]

State = tuple[dict[str, bytes], dict[str, dict[str, bytes]]]
"""The records, and for each branch its uncommitted rows."""

GUARDS = {
    "store's order": "the greatest order counts, whatever the time of the request",
    "ties": "of equal orders the greater payload counts",
    "layers": "rows are ordered by the layers of the record first",
    "last record": "only the tokens that the last record names count",
    "sequence": "the last record is that of the greatest order, not the one that arrived last",
    "id of a token": "all rows of a token count: one id may be in two tokens",
    "token of its branch": "a token is one of a branch",
    "deleted row": "a row that was deleted hides nothing beneath it",
    "deleted record": "a record that was deleted is none",
    "shown branch": "a branch that is deleted, or is not created yet, has no rows",
}


def branch_record(tokens: Sequence[str], *, commit: str = "c", pending: bool = False) -> bytes:
    """The record of a branch; the first token takes writes, the others are sealed, newest first."""
    made = [Token(TokenId(each), TokenKind.PLAIN, 8, 0) for each in tokens]
    branch = Branch(
        incarnation=b"life",
        staging=made[0],
        sealed=tuple(made[1:]),
        commit_id=CommitId(commit * 64),
        create_time_us=1,
    )
    return encode_branch(branch, is_pending=pending)


def row(
    path: str,
    payload: bytes,
    order: int,
    *,
    token: str = "t0",
    branch: str = "main",
    number: int = 0,
    time_us: int = 0,
) -> EventRow:
    """The event of an object's row; `number` is its id, by default made of the rest."""
    event_id = _id(number, path, payload, order, token, branch)
    return EventRow(
        event_id, branch, token, order, time_us, b"user", b"", "put", path, payload, b""
    )


def record(key: str, payload: bytes, order: int, *, number: int = 0) -> EventRow:
    """The event of a record; that of a branch if the key is one."""
    event_id = _id(number, key, payload, order)
    branch = key.removeprefix("branches/") if key.startswith("branches/") else ""
    return EventRow(event_id, branch, "", order, 0, b"user", b"s", "set", key, payload, b"op")


def _id(number: int, *made_of: object) -> bytes:
    return number.to_bytes(16, "big") if number else hashlib.md5(repr(made_of).encode()).digest()


def batch_of(rows: Iterable[EventRow]) -> pa.RecordBatch:
    """The rows as they are, in this order."""
    rows = list(rows)
    columns = [
        pa.array([getattr(each, field.name) for each in rows], field.type) for field in EVENT_SCHEMA
    ]
    return pa.RecordBatch.from_arrays(columns, schema=EVENT_SCHEMA)


def state_of(results: Iterable[Record | StagedRows]) -> State:
    """Collects what a replay yields, and checks its order."""
    records: dict[str, bytes] = {}
    staged: dict[str, dict[str, bytes]] = {}
    places = []
    for each in results:
        if isinstance(each, Record):
            assert not staged, "all records come first"
            assert each.key > max(records, default="")
            records[each.key] = each.payload
        else:
            each.paths.validate(full=True)
            paths = each.paths.to_pylist()
            places += [(each.branch_id, path) for path in paths]
            rows = dict(zip(paths, each.payloads.to_pylist(), strict=True))
            staged.setdefault(each.branch_id, {}).update(rows)
    assert places == sorted(set(places)), "ascending, each place once"
    return records, staged


def model(events: Sequence[EventRow], *off: str) -> State:
    """What a rebuild makes of events, row by row; with some guards off."""
    assert set(off) <= set(GUARDS)
    if "id of a token" in off:
        first: dict[bytes, EventRow] = {}
        for each in events:
            first.setdefault(each.event_id, each)
        events = list(first.values())

    def rank(each: EventRow) -> tuple[int, bytes]:
        by = each.time_us if "store's order" in off and each.token else each.order
        return by, b"" if "ties" in off else each.payload

    records: dict[str, EventRow] = {}
    for each in events:
        now = records.get(each.key)
        if not each.token and (now is None or "sequence" in off or rank(each) > rank(now)):
            records[each.key] = each
    kept = {
        key: each.payload
        for key, each in records.items()
        if each.payload or "deleted record" in off
    }
    staged: dict[str, dict[str, bytes]] = {}
    for key, payload in kept.items():
        if key.startswith("branches/"):
            name = key.removeprefix("branches/")
            rows = _rows(name, payload, events, rank, off)
            if rows:
                staged[name] = rows
    return kept, staged


def _rows(
    name: str,
    payload: bytes,
    events: Sequence[EventRow],
    rank: Callable[[EventRow], tuple[int, bytes]],
    off: tuple[str, ...],
) -> dict[str, bytes]:
    branch = decode_branch(payload)
    if branch.is_deleted and "shown branch" not in off:
        return {}
    tokens = [token.token_id for token in branch.tokens]
    if "last record" in off:
        named = [
            token.token_id
            for each in events
            if each.key == f"branches/{name}" and each.payload
            for token in decode_branch(each.payload).tokens
        ]
        tokens += [token for token in dict.fromkeys(named) if token not in tokens]
    of_branch = [
        each
        for each in events
        if each.token in tokens and (each.branch == name or "token of its branch" in off)
    ]
    found: dict[str, bytes] = {}
    for path in {each.key for each in of_branch}:
        layers = []
        for token in tokens:
            own = [each for each in of_branch if (each.key, each.token) == (path, token)]
            if own:
                layers.append(max(own, key=rank))
        if "layers" in off:
            layers.sort(key=rank, reverse=True)
        if "deleted row" in off:
            layers = layers[:1]
        top = next((each.payload for each in layers if each.payload), None)
        if top is not None:
            found[path] = top
    return found


def random_events(rng: random.Random) -> list[EventRow]:
    """Events whose orders collide, of branches whose names and paths are beginnings of each other."""
    events = []
    for _ in range(rng.randint(0, 150)):
        branch, order = rng.choice(("main", "mai", "z")), rng.randint(0, 4)
        if rng.random() < 0.85:
            path = rng.choice(("a", "a\0b", "b", "é", "key/with/slash"))
            token = rng.choice(_TOKENS)
            events.append(row(path, rng.choice(_PAYLOADS), order, token=token, branch=branch))
        elif rng.random() < 0.3:
            key = rng.choice(("tags/v1", "settings"))
            events.append(record(key, rng.choice(_PAYLOADS), order))
        else:
            tokens = rng.sample(_TOKENS, rng.randint(1, 4))
            payload = branch_record(tokens, pending=rng.random() < 0.1)
            payload = b"" if rng.random() < 0.1 else payload
            events.append(record(f"branches/{branch}", payload, order))
    return events


async def random_journal(
    blocks: BlockStore, namespace: str, rng: random.Random, events: list[EventRow]
) -> tuple[Epoch, list[str]]:
    """Writes the events as a base and the passes of two holders, with repetitions; returns the paths of the passes."""
    epoch = next_epoch(None, "e" * 32, EpochCause.ENABLED, _HOUR)

    async def base() -> AsyncIterator[pa.Table]:
        yield table_of(events[::3])

    files = await write_base(blocks, namespace, epoch.folder, base())
    epoch = msgspec.structs.replace(epoch, base=files)
    await begin_epoch(blocks, namespace, epoch)
    writers = [JournalWriter(blocks, namespace, epoch, each * 32) for each in "ab"]
    left = [each for at, each in enumerate(events) if at % 3]
    left += rng.sample(left, len(left) // 2)
    rng.shuffle(left)
    paths = []
    for at in range(0, len(left), 12):
        some = left[at : at + 12]
        names = sorted({each.branch for each in some if each.branch})
        branches = [
            BranchPass(n, 0, sorted({e.token for e in some if e.branch == n and e.token}))
            for n in names
        ]
        when = (2 + at) * _HOUR
        paths += await rng.choice(writers).write(when, table_of(some), branches, is_full=False)
    ended = [BranchPass(name, 0, over=sorted(tokens)) for name, tokens in _over(events).items()]
    nothing = EVENT_SCHEMA.empty_table()
    paths += await writers[0].write(200 * _HOUR, nothing, ended, is_full=True)
    return epoch, paths


def _over(events: Sequence[EventRow]) -> dict[str, set[str]]:
    """Returns the tokens of each branch that the last record does not name."""
    records, _ = model(events)
    found: dict[str, set[str]] = {}
    for each in events:
        if each.token:
            payload = records.get(f"branches/{each.branch}", b"")
            named = {t.token_id for t in decode_branch(payload).tokens} if payload else set[str]()
            found.setdefault(each.branch, set()).update({each.token} - named)
    return {name: tokens for name, tokens in sorted(found.items()) if tokens}
