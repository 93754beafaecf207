"""What must be equal on all replicas, noted in the store and compared.

Some settings are part of the branch protocol: a reader counts on data to outlive its record as long as
*its own* `drop_delay` says, but another replica drops it by that one's. So the first process that
uses such a setting writes its value here, by a compare-and-set; each later one compares, and one that
differs does not start. A process notes and compares only what it uses: auth drops nothing, so it may be
configured without graveler's settings.

The record lies beside the fence and, like it, belongs to the place: no transfer takes it along, so the
first process on a new store notes its own. To change a setting on purpose all processes are stopped, the
record is removed (`tarn kv settings --forget`), and they are started with the new value.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from tarn.core.errors import Kind, Reason, TarnError
from tarn.kv.fence import fence_partition
from tarn.kv.port import Kv, PredicateFailedError, Versioned

__all__ = ["SETTINGS", "agree", "decode_settings", "forget_settings", "read_settings"]

SETTINGS = b"settings"
"""The row, in the partition of the fence: JSON, an object of texts by the name of their setting."""
_TRIES = 10


def decode_settings(value: bytes) -> dict[str, str]:
    """The settings of a row.

    Raises:
        TarnError: CORRUPT.
    """
    try:
        found = json.loads(value)
    except ValueError:
        found = None
    if not isinstance(found, dict) or not all(isinstance(each, str) for each in found.values()):
        text = f"the record of the replicas' settings cannot be read: {value[:200]!r}"
        raise TarnError(Kind.CORRUPT, Reason.DATA_CORRUPT, text)
    return found


async def agree(kv: Kv, installation_id: str, settings: Mapping[str, str]) -> None:
    """Lets a process in whose settings are those that the store notes; notes what is not noted yet.

    Args:
        kv: the store.
        installation_id: whose record.
        settings: texts by the name of their key in the configuration.

    Raises:
        TarnError: FAILED_PRECONDITION, a value differs; UNAVAILABLE, others changed the record all the
            time; CORRUPT; the store's.
    """
    partition = fence_partition(installation_id)
    for _ in range(_TRIES):
        found = await _read(kv, installation_id)
        noted = {} if found is None else decode_settings(found.value)
        _compare(installation_id, noted, settings)
        if settings.keys() <= noted.keys():
            return
        value = json.dumps({**noted, **settings}, sort_keys=True, ensure_ascii=False).encode()
        try:
            await kv.set_if(partition, SETTINGS, value, None if found is None else found.predicate)
        except PredicateFailedError:
            continue  # another process noted its own
        except TarnError as error:
            if error.kind is not Kind.UNKNOWN_OUTCOME:
                raise
            continue  # what stands there decides
        return
    text = "other processes changed the record of the replicas' settings all the time"
    raise TarnError(Kind.UNAVAILABLE, Reason.TOO_MANY_RETRIES, text)


async def read_settings(kv: Kv, installation_id: str) -> dict[str, str]:
    """What is noted; empty if nothing is.

    Raises:
        TarnError: CORRUPT; the store's.
    """
    found = await _read(kv, installation_id)
    return {} if found is None else decode_settings(found.value)


async def forget_settings(kv: Kv, installation_id: str) -> None:
    """Removes the record, also one that cannot be read. No process of the installation may run.

    Raises:
        TarnError: CONFLICT, it was changed meanwhile; the store's.
    """
    found = await _read(kv, installation_id)
    if found is not None:
        await kv.delete_if(fence_partition(installation_id), SETTINGS, found.predicate)


async def _read(kv: Kv, installation_id: str) -> Versioned | None:
    (found,) = await kv.get_many(fence_partition(installation_id), [SETTINGS], settle=True)
    return found


def _compare(installation_id: str, noted: Mapping[str, str], settings: Mapping[str, str]) -> None:
    different = [
        f"{name} is {value} here and {noted[name]} on the processes that use the store"
        for name, value in sorted(settings.items())
        if name in noted and noted[name] != value
    ]
    if different:
        text = (
            f"installation {installation_id!r}: {'; '.join(different)}. It must be the same on all "
            "of them: correct the configuration of this one. To change it for all, stop every process, "
            "run `tarn kv settings --forget` on the store, and start them with the new value"
        )
        raise TarnError(Kind.FAILED_PRECONDITION, Reason.INVALID_ARGUMENT, text)
