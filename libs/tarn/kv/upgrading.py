"""Raises the feature level of a store: the last step of an upgrade (docs/operate/upgrade.md).

    level 1 → next_level 2 → every lease of an older release has ended → level 2

From the second step on, a release that does not support level 2 refuses the store; it gives its last answer within
`LEASE_SECONDS`. So when the level becomes 2 and features of level 2 are written, no such process reads or writes any
more, whatever it missed. An interrupted raise is continued by the next one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tarn.core.clock import Clock
from tarn.core.errors import Kind, Reason, TarnError
from tarn.core.levels import LEVEL_MAX, StoreLevel
from tarn.kv.fence import QUIET_SECONDS, check_open, read_store, write_fence
from tarn.kv.keys import AuthKeys, InstallationKeys
from tarn.kv.port import Kv, PredicateFailedError
from tarn.kv.replicas import ReplicaRow, read_replicas

__all__ = ["begin_level", "raise_level"]


async def begin_level(kv: Kv, installation_id: str) -> None:
    """Gives a new installation the highest level; does nothing if the store holds one already.

    Raises:
        TarnError: errors of the store.
    """
    fence, level, predicate = await read_store(kv, installation_id)
    if fence is not None or level != StoreLevel() or predicate is not None:
        return
    if await _is_used(kv, installation_id):
        return
    try:
        await write_fence(kv, installation_id, None, None, level=StoreLevel(LEVEL_MAX, LEVEL_MAX))
    except PredicateFailedError:
        return  # another process of a new installation was first


async def _is_used(kv: Kv, installation_id: str) -> bool:
    """Whether a process has ever served the installation: auth and graveler both write a row at their first start."""
    auth = AuthKeys(installation_id)
    if any(await kv.get_many(auth.partition, [auth.secrets(), auth.setup()])):
        return True
    return bool(await kv.scan(InstallationKeys(installation_id).graveler, b"", None, 1))


async def raise_level(
    kv: Kv, installation_id: str, clock: Clock, *, is_shared: bool, said: Callable[[str], None]
) -> StoreLevel:
    """Raises the level of a store to the highest one of this release. Returns the level before.

    Args:
        kv: the store. If `is_shared` is False, no other process has it open.
        installation_id: the installation.
        clock: for the wait, and to tell expired rows of replicas.
        is_shared: other processes may have the store open, and answer on leases.
        said: called with each step, for people.

    Raises:
        TarnError: FAILED_PRECONDITION: replicas of an older release run, a transfer has closed the store, or the level
            is higher than this release supports. CONFLICT: another process changed the record; call it again. Also the
            store's errors; the finished steps stay, and the next call continues.
    """
    await check_open(kv, installation_id)
    _, before, predicate = await read_store(kv, installation_id)
    if before.level >= LEVEL_MAX:
        return before
    if is_shared:
        _refuse_old(await read_replicas(kv, installation_id, clock.now_us()))
    raising = StoreLevel(before.level, LEVEL_MAX)
    if before != raising:
        said(
            f"raising the feature level from {before.level} to {LEVEL_MAX}: older releases are refused from now on"
        )
        await write_fence(kv, installation_id, None, predicate, level=raising)
    if is_shared:
        said(f"waiting {QUIET_SECONDS:.0f} s until no older release can have a request under way")
        await clock.sleep(QUIET_SECONDS)
    fence, found, predicate = await read_store(kv, installation_id)
    if fence is not None or found != raising:
        text = "another process changed the store's record meanwhile; run the command again"
        raise TarnError(Kind.CONFLICT, Reason.REF_MOVED, text)
    level = StoreLevel(LEVEL_MAX, LEVEL_MAX)
    await write_fence(kv, installation_id, None, predicate, level=level)
    return before


def _refuse_old(replicas: Sequence[ReplicaRow]) -> None:
    old = [each for each in replicas if each.level_max < LEVEL_MAX]
    if old:
        names = ", ".join(f"{each.service} {each.version} on {each.host}" for each in old[:5])
        text = (
            f"{len(old)} replicas do not support feature level {LEVEL_MAX}: {names}. Replace or stop them first; the "
            "row of one that was killed expires after 90 s"
        )
        raise TarnError(Kind.FAILED_PRECONDITION, Reason.FEATURE_LEVEL, text)
