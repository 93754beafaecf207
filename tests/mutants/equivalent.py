"""Mutations that change no observable behaviour, each with the reason.

They are not played and do not count. An entry whose code has changed has no effect.
"""

from collections.abc import Mapping
from typing import Final

__all__ = ["EQUIVALENT"]

EQUIVALENT: Final[Mapping[str, str]] = {
    "tarn.core.listing.pages:_Merge.round: other call: max((layer.paths[-1] for layer in live))"
    " -> min((layer.paths[-1] for layer in live))": (
        "all layers are exhausted: the rows are merged in several rounds instead of one"
    ),
    "tarn.block.local.group_writer:GroupWriter._take: and/or: "
    "len(self._taken) >= _BATCH_MAX or size_bytes >= _BATCH_BYTES_MAX"
    " -> len(self._taken) >= _BATCH_MAX and size_bytes >= _BATCH_BYTES_MAX": (
        "how many requests share a transaction; the queue before it has bounds of its own"
    ),
    "tarn.block.local.namespaces:RepositoryCache._remember: dropped statement: "
    "self._known.put(namespace, ns) -> nothing": "a cache: namespaces are read each time",
    "tarn.block.local.small:_connect: dropped statement: "
    "connection.execute('PRAGMA secure_delete=OFF').fetchall() -> nothing": (
        "speed: deleted pages are overwritten with zeros"
    ),
    "tarn.kv.embedded.database:_connect: constant: True -> False": (
        "the SQLite of CPython's builds takes names that begin with `file:` for URIs anyway"
    ),
    "tarn.kv.embedded.database:_open_locked: dropped statement: writer.close() -> nothing": (
        "the connection is closed with its last reference, which is gone when the error is told"
    ),
    "tarn.kv.embedded.reader:Reader.page: dropped guard: if number is None: return [] -> nothing": (
        "no row has the partition number NULL, so the statement finds none"
    ),
    "tarn.kv.embedded.store:EmbeddedKv.partitions: constant: 0 -> 1": (
        "how long others may run between two pages of names; the names are the same"
    ),
    "tarn.kv.fence:Fence.decode: constant: 200 -> 201": (
        "how much of a damaged record an error shows"
    ),
    "tarn.kv.mem:MemKv._next_version: constant: 8 -> 9": (
        "versions are opaque; one byte more tells them apart as well"
    ),
    "tarn_graveler.records.settling:Attempts.judge: dropped assignment: self._pending = [] -> nothing": (
        "an attempt was applied, so the record has changed and none before it was found pending"
    ),
    "tarn_graveler.uploads.completion:_Staging._compare: dropped assignment: "
    "self.may_be_staged = True -> nothing": (
        "the upload's record names the attempt by then, so the next round sets it"
    ),
    "tarn_graveler.branch.conditional:ConditionalStaging._write_on: dropped guard: "
    "if there.packed is None: return False -> nothing": (
        "a row is gone only with its token, so the record that is verified next differs"
    ),
    "tarn_graveler.handlers.entries:EntryHandler._not_writable: dropped guard: "
    "if error.reason is not Reason.BRANCH_NOT_FOUND: return error -> nothing": (
        "a branch that exists has no tag of its name, so looking for one changes no answer"
    ),
    "tarn.fsck.staged:read_branch: dropped statement: or_corrupt(error) -> nothing": (
        "decoding a record raises nothing but CORRUPT, which is what the call lets pass"
    ),
    "tarn.fsck.state:State.__init__: constant: 0 -> 1": (
        "the number of changes since the last save: the state is saved one change earlier, once"
    ),
    "tarn.aio.batcher:Batcher._run: dropped guard: "
    "if not isinstance(error, Exception): raise -> nothing": (
        "the task ends either way, and whoever waits for its batch has the error already"
    ),
    "tarn_graveler.handlers.uploads:UploadHandler.ListUploads: constant: 1000 -> 1001": (
        "a page has at most 1,000 lines whatever its default is"
    ),
    "tarn.block.local.store:LocalBlockStore.list_page: comparison: ns.number >= 0 -> "
    "ns.number > 0": (
        "SQLite numbers the rows of a table from 1 on: no namespace has the number 0"
    ),
    "tarn.block.local.store:LocalBlockStore.read: constant: 0 -> 1": (
        "one byte is asked for behind the end of a file, where there is none"
    ),
    "tarn.block.local.store:_pread: and/or: len(chunk) == count or not chunk -> len(chunk) "
    "== count and (not chunk)": (
        "a shortcut: the loop beneath it reads nothing more after a chunk that is whole or empty"
    ),
    "tarn.block.local.tree:_walk: comparison: path > after -> path >= after (2)": (
        "a directory that `after` names is entered anyway, because `after` starts with its path"
    ),
    "tarn_graveler.branch.staging:Staging.stage: constant: False -> True": (
        "every caller outside of tests says whether the address is new"
    ),
    "tarn.kv.cassandra.rows.registers:Registers.delete_rows: uncaught error: except TarnError: pass -> "
    "except (): pass": (
        "what the queues refuse is not transient, and `read_error` hands it on as it is"
    ),
    "tarn.fsck.history:History._read_refs: dropped statement: or_corrupt(error) -> nothing": (
        "decoding a record raises nothing but CORRUPT, which is what the call lets pass"
    ),
    "tarn.kv.fence:_encode: dropped keyword: json.dumps(fields, ensure_ascii=False)"
    " -> json.dumps(fields)": (
        "escapes of JSON: the row is longer, and is decoded to the same fence"
    ),
    "tarn_graveler.branch.leaps:Leaps.answer: other call: max(self._rows_min, 2 * ahead.found)"
    " -> min(self._rows_min, 2 * ahead.found)": (
        "when a leap is made: the page is that of the plain merge either way"
    ),
    "tarn_graveler.handlers.tasks:TaskHandler._seconds: swapped arguments: "
    "min(wanted, call.remaining(self._clock) - _MARGIN_SECONDS)"
    " -> min(call.remaining(self._clock) - _MARGIN_SECONDS, wanted)": (
        "the lesser one of two numbers does not depend on their order"
    ),
}
