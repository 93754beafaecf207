"""Names of branches and tags: each belongs to one ref, and the register of the name says to which.

Creations and deletions run meanwhile, so a suspicion is confirmed by reads in an order that decides it: a
record that is live both before and after the row of its name was read was live during that read.
"""

from __future__ import annotations

from dataclasses import dataclass

from tarn.core.errors import TarnError
from tarn.fsck.finding import Code
from tarn.fsck.session import Lake, or_corrupt, shown
from tarn.kv.keys import after_prefix
from tarn.kv.records import (
    RefKind,
    RefName,
    decode_branch,
    decode_ref_name,
    decode_tag,
    is_pending_branch,
)

__all__ = ["check_names"]


@dataclass(frozen=True, slots=True)
class _Ref:
    nonce: bytes
    is_pending: bool
    create_time_us: int


def _ref(kind: RefKind, value: bytes) -> _Ref:
    if kind is RefKind.TAG:
        tag = decode_tag(value)
        return _Ref(tag.nonce, tag.is_pending, tag.create_time_us)
    branch = decode_branch(value)
    return _Ref(branch.incarnation, is_pending_branch(value), branch.create_time_us)


async def check_names(lake: Lake) -> None:
    """Reports names that are both branch and tag, names that hold no ref, and refs that do not hold their
    name.
    """
    await _Names(lake).check()


class _Names:
    """Checks the names of one repository; uses a few hundred bytes for each branch and tag."""

    def __init__(self, lake: Lake) -> None:
        self._lake = lake
        self._reads = lake.session.reads

    async def check(self) -> None:
        names = await self._read_names()
        refs = {kind: await self._read_refs(kind) for kind in RefKind}
        for kind, found in refs.items():
            for name, ref in found.items():
                if ref.is_pending:
                    await self._check_pending(kind, name, ref)
                elif names.get(name) != RefName(kind, ref.nonce):
                    await self._check_held(kind, name)
        for name in refs[RefKind.BRANCH].keys() & refs[RefKind.TAG].keys():
            await self._check_twice(name)
        for name, held in names.items():
            namesake = refs[held.kind].get(name)
            if namesake is None or namesake.nonce != held.nonce:
                await self._check_orphan(name)

    # ---- first read; `check_refs_partition` reports unreadable rows

    async def _read_names(self) -> dict[str, RefName]:
        prefix = self._lake.keys.name("")
        found = {}
        async for key, value in self._reads.rows(
            self._lake.keys.refs, prefix, after_prefix(prefix)
        ):
            try:
                found[shown(key[len(prefix) :])] = decode_ref_name(value)
            except TarnError as error:
                or_corrupt(error)
        return found

    async def _read_refs(self, kind: RefKind) -> dict[str, _Ref]:
        prefix = self._key(kind, "")
        found = {}
        async for key, value in self._reads.rows(
            self._lake.keys.refs, prefix, after_prefix(prefix)
        ):
            try:
                found[shown(key[len(prefix) :])] = _ref(kind, value)
            except TarnError as error:
                or_corrupt(error)
        return found

    # ---- second read

    def _key(self, kind: RefKind, name: str) -> bytes:
        keys = self._lake.keys
        return keys.branch(name) if kind is RefKind.BRANCH else keys.tag(name)

    async def _now(self, kind: RefKind, name: str) -> _Ref | None:
        """Returns a branch or tag as it is now; None also for one that cannot be read."""
        found = await self._reads.get(self._lake.keys.refs, self._key(kind, name))
        try:
            return None if found is None else _ref(kind, found.value)
        except TarnError as error:
            or_corrupt(error)
            return None

    async def _holder(self, name: str) -> RefName | None:
        found = await self._reads.get(self._lake.keys.refs, self._lake.keys.name(name))
        try:
            return None if found is None else decode_ref_name(found.value)
        except TarnError as error:
            or_corrupt(error)
            return None

    async def _check_held(self, kind: RefKind, name: str) -> None:
        before = await self._now(kind, name)
        held = await self._holder(name)
        if before is None or before.is_pending or before != await self._now(kind, name):
            return
        if held != RefName(kind, before.nonce):
            holder = "nothing" if held is None else f"a {held.kind.value} {held.nonce.hex()}"
            text = f"its name belongs to {holder}, so a second ref of this name could be created"
            self._lake.find(Code.NAME_UNHELD, f"{kind.value} {name}", text)

    async def _check_twice(self, name: str) -> None:
        branch = await self._now(RefKind.BRANCH, name)
        tag = await self._now(RefKind.TAG, name)
        if branch is None or tag is None or branch.is_pending or tag.is_pending:
            return
        if branch == await self._now(RefKind.BRANCH, name):
            self._lake.find(
                Code.REF_TWICE, name, "it is both a branch and a tag; reads return the branch"
            )

    async def _check_orphan(self, name: str) -> None:
        held = await self._holder(name)
        if held is None or held.create_time_us >= self._lake.session.oldest_us:
            return
        ref = await self._now(held.kind, name)
        if (ref is None or ref.nonce != held.nonce) and held == await self._holder(name):
            text = f"reserved for a {held.kind.value} that does not exist"
            self._lake.find(Code.NAME_ORPHAN, f"name {name}", text)

    async def _check_pending(self, kind: RefKind, name: str, ref: _Ref) -> None:
        if ref.create_time_us < self._lake.session.oldest_us and ref == await self._now(kind, name):
            text = "its creation never ended"
            self._lake.find(Code.CREATION_ORPHAN, f"{kind.value} {name}", text)
