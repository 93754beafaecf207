"""Settings that must be equal on all replicas: recorded in the store and compared at start.

Some settings are part of the branch protocol. For example, a reader relies on its own `drop_delay` for how
long data outlives its record, but another replica may drop that data after a different delay. So the first
process that uses such a setting writes its value here by compare-and-set. Each later process compares its
value and does not start if the two differ. A process records and compares only the settings that it uses:
auth drops nothing, so it may run without graveler's settings.

The record lies beside the fence and belongs to the store: no transfer copies it, so the first process on a
new store records its own values. To change a setting on purpose, stop all processes, remove the record
(`tarn kv settings --forget`) and start them with the new value.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from tarn.core.errors import Kind, Reason, TarnError
from tarn.kv.fence import fence_partition
from tarn.kv.port import Kv, PredicateFailedError, Versioned

__all__ = ["SETTINGS", "agree", "decode_settings", "forget_settings", "read_settings"]

SETTINGS = b"settings"
"""Key of the row, in the fence's partition. Its value: a JSON object of setting names to values as text."""
_TRIES = 10


def decode_settings(value: bytes) -> dict[str, str]:
    """Decodes the settings of a row.

    Raises:
        TarnError: CORRUPT: the value is not a JSON object of texts.
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
    """Checks that a process has the settings that the store records, and records those that are missing.

    Args:
        kv: the store that holds the record.
        installation_id: the installation of the process.
        settings: values as text, by the name of their key in the configuration.

    Raises:
        TarnError: FAILED_PRECONDITION: a value differs from the recorded one. UNAVAILABLE: other processes
            kept changing the record. CORRUPT: the record cannot be read. Also the store's errors.
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
            continue  # another process recorded its settings first
        except TarnError as error:
            if error.kind is not Kind.UNKNOWN_OUTCOME:
                raise
            continue  # the outcome is unknown: the next read shows what the record holds
        return
    text = "other processes kept changing the record of the replicas' settings; try again"
    raise TarnError(Kind.UNAVAILABLE, Reason.TOO_MANY_RETRIES, text)


async def read_settings(kv: Kv, installation_id: str) -> dict[str, str]:
    """Returns the recorded settings; empty if there is no record.

    Raises:
        TarnError: CORRUPT: the record cannot be read. Also the store's errors.
    """
    found = await _read(kv, installation_id)
    return {} if found is None else decode_settings(found.value)


async def forget_settings(kv: Kv, installation_id: str) -> None:
    """Removes the record, even an unreadable one. No process of the installation may be running.

    Raises:
        TarnError: CONFLICT: the record changed meanwhile. Also the store's errors.
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
