"""Saves the pull requests of a repository. Their index is made from the saved records: a copy could lack a request that
is opened, or have one that is closed, between the two reads."""

from __future__ import annotations

from dataclasses import replace

from tarn.core.pull_request import NO_PULLS, OpenPull, PullState
from tarn.kv.keys import RepositoryKeys
from tarn.kv.pull_records import decode_pull, decode_pull_index, encode_pull_index
from tarn.snapshot.files.writing import KvWriter, Lines

__all__ = ["save_pulls"]


async def save_pulls(writer: KvWriter, keys: RepositoryKeys) -> Lines:
    """Saves records, index and events; returns their lines.

    Raises:
        TarnError: CORRUPT: a record or the index cannot be read. Also the store's errors.
    """
    saved: list[OpenPull] = []
    last_number = 0

    def keep(_: bytes, value: bytes) -> bool:
        nonlocal last_number
        pull = decode_pull(value)
        last_number = max(last_number, pull.number)
        if pull.state is PullState.OPEN:
            saved.append(OpenPull(pull.number, pull.pair, pull.create_id))
        return True

    index = keys.PULL_INDEX
    lines = await writer.copy(keys.pulls, keys.PULLS, keep=keep)
    (found,) = await writer.kv.get_many(keys.pulls, [index])
    stored = NO_PULLS if found is None else decode_pull_index(found.value)
    if found is not None or saved:
        made = replace(
            stored,
            last_number=max(stored.last_number, last_number),
            open=tuple(sorted(saved, key=lambda each: each.number)),
        )
        row = index, encode_pull_index(made)
        lines += await writer.save(keys.pulls, [row], index, keys.PULLS)
    # Events last: each that a saved record counts is there.
    return lines + await writer.copy(keys.pulls, end=index)
