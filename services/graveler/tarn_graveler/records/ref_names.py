"""Names of branches and tags: one register, `names/<name>`, decides whether a name is a branch or a tag.

A branch and a tag of one name must never both exist: a read would return the branch where the user means
the tag. So both are created by `claiming`, with the register of their name as the second step: it holds
the kind and the nonce of the ref that holds the name (a branch's nonce is its incarnation). Branch and
tag records keep their own keys, so reads and listings cost no more; only creation takes three
compare-and-sets instead of one.

Removing the record of a branch or a tag frees the name immediately. The remaining row of the name is
dead; `release` removes it, or the next creation of the name takes it over.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from tarn.core.clock import Clock, IdSource
from tarn.core.errors import Kind, Reason, TarnError
from tarn.kv.keys import RepositoryKeys
from tarn.kv.port import Kv, Partition
from tarn.kv.records import (
    RefKind,
    RefName,
    Repository,
    decode_branch,
    decode_ref_name,
    decode_tag,
    encode_ref_name,
    is_pending_branch,
)
from tarn_graveler.records.claiming import Claiming, Holder, Plan, Stage, StoredClaim
from tarn_graveler.records.repositories import Repositories

__all__ = ["RefNames"]

_REASONS = {RefKind.BRANCH: Reason.BRANCH_EXISTS, RefKind.TAG: Reason.TAG_EXISTS}


def _look_at_branch(value: bytes) -> StoredClaim:
    stage = Stage.PENDING if is_pending_branch(value) else Stage.LIVE
    return StoredClaim(decode_branch(value).incarnation, stage)


def _look_at_tag(value: bytes) -> StoredClaim:
    tag = decode_tag(value)
    return StoredClaim(tag.nonce, Stage.PENDING if tag.is_pending else Stage.LIVE)


_LOOKS = {RefKind.BRANCH: _look_at_branch, RefKind.TAG: _look_at_tag}


def _key(kind: RefKind, name: str) -> bytes:
    return RepositoryKeys.branch(name) if kind is RefKind.BRANCH else RepositoryKeys.tag(name)


class RefNames:
    """Creates branches and tags, and frees their names."""

    def __init__(self, kv: Kv, repositories: Repositories, clock: Clock, ids: IdSource) -> None:
        self._kv = kv
        self._repositories = repositories
        self._clock = clock
        self._claiming = Claiming(kv, clock)
        self._ids = ids

    async def create(
        self,
        repository: Repository,
        kind: RefKind,
        name: str,
        encode: Callable[[bytes, bool], bytes],
        before_live: Callable[[], Awaitable[None]] | None = None,
    ) -> bytes:
        """Creates a branch or a tag; returns its nonce.

        Args:
            repository: repository of the ref; may be unpublished.
            kind: branch or tag.
            name: name of the ref, already validated.
            encode: returns the record for a nonce; its second argument says whether the record is
                pending.
            before_live: called while the pending record holds the name, before it goes live; `encode` may depend on its
                findings.

        Raises:
            TarnError: BRANCH_EXISTS, TAG_EXISTS, REPOSITORY_NOT_FOUND, UNAVAILABLE: not created.
            OutcomeUnknownError: it cannot be determined whether it was created.
        """

        def exists(which: RefKind = kind) -> TarnError:
            text = f"{which.value} {name} already exists in {repository.repository_id}"
            metadata = {"repository": str(repository.repository_id), which.value: name}
            return TarnError(Kind.ALREADY_EXISTS, _REASONS[which], text, **metadata)

        refs = self._repositories.keys_of(repository).refs

        def holder_of(value: bytes) -> Holder:
            held = decode_ref_name(value)
            look, taken = _LOOKS[held.kind], exists(held.kind)
            return Holder(refs, _key(held.kind, name), held.nonce, look, taken)

        plan = Plan(
            partition=refs,
            key=_key(kind, name),
            what=f"{kind.value} {name}",
            new_nonce=self._ids.nonce,
            encode=encode,
            look=_LOOKS[kind],
            exists=lambda _: exists(),
        )
        await self._refuse_other(refs, kind, name, exists)
        claim = await self._claiming.place(plan)
        try:
            mine = encode_ref_name(RefName(kind, claim.nonce, self._clock.now_us()))
            await self._claiming.win(claim, refs, RepositoryKeys.name(name), mine, holder_of)
            # A deletion of the repository marks its record first and then every branch, also pending
            # ones: either this read sees the mark, or the pending record is marked and cannot go live.
            await self._repositories.require(repository)
            if before_live is not None:
                await before_live()
            await self._claiming.finish(claim)
        except TarnError as error:
            if error.kind is not Kind.UNKNOWN_OUTCOME:
                await self._claiming.withdraw(claim)
            raise
        return claim.nonce

    async def _refuse_other(
        self, refs: Partition, kind: RefKind, name: str, exists: Callable[[RefKind], TarnError]
    ) -> None:
        """Refuses early if a live ref of the other kind has the name; the register decides between
        concurrent creations.
        """
        other = RefKind.TAG if kind is RefKind.BRANCH else RefKind.BRANCH
        (found,) = await self._kv.get_many(refs, [_key(other, name)])
        if found is not None and _LOOKS[other](found.value).stage is Stage.LIVE:
            raise exists(other)

    async def release(self, repository: Repository, name: str) -> None:
        """Removes the row of a name that no ref holds, after its branch or tag was removed.

        A failure is not raised, because it has no visible effect: the next creation of the name takes the
        row over.
        """
        refs, row = self._repositories.keys_of(repository).refs, RepositoryKeys.name(name)
        try:
            (held,) = await self._kv.get_many(refs, [row])
            if held is None:
                return
            holder = decode_ref_name(held.value)
            # Read after the name, as in `Claiming.win`.
            (record,) = await self._kv.get_many(refs, [_key(holder.kind, name)], settle=True)
            if record is None or _LOOKS[holder.kind](record.value).nonce != holder.nonce:
                await self._kv.delete_if(refs, row, held.predicate)
        except TarnError:
            return
