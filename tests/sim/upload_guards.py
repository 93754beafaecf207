"""Guards of multipart uploads, and the replacements that disable them (see `lake_guards`)."""

from collections.abc import Sequence
from typing import Any

from tests.support.faults.guards import Guard, Weakening

import tarn_graveler.handlers.uploads
import tarn_graveler.uploads.completion
from tarn.core.branch import Branch
from tarn.core.ids import UploadId
from tarn.core.levels import FeatureGate
from tarn.kv.keys import RepositoryKeys
from tarn.kv.port import Group
from tarn.kv.records import Repository
from tarn_graveler.uploads.completion import StagingAttempt, _Fate
from tarn_graveler.uploads.records import RecordedAttempts
from tarn_graveler.uploads.state import Claim, Uploads

__all__ = ["RARE_UPLOAD_GUARDS", "UPLOAD_GUARDS"]


async def _no_attempts(self: RecordedAttempts) -> Sequence[StagingAttempt]:
    """Lets every attempt act as if it were the first one."""
    self._read = await self._records.read(self._repository, self._upload_id)
    return []


async def _not_landed(self: Any, record: Branch, attempts: Sequence[StagingAttempt]) -> Any:
    """Lets a later attempt ignore the outcome of the earlier ones."""
    del record, attempts
    return _Fate.NOT_LANDED, frozenset()


_begin_complete = Uploads.begin_complete


async def _always_claims(
    self: Uploads,
    repository: Repository,
    upload_id: str,
    manifest_hash: bytes,
    claim_id: bytes = b"",
) -> Claim:
    """Lets a repeated completion complete a completed upload again."""
    claim = await _begin_complete(self, repository, upload_id, manifest_hash, claim_id)
    return claim if claim.op_id else Claim(self._ids.nonce(), b"")


async def _any_manifest(
    self: Uploads,
    repository: Repository,
    upload_id: str,
    manifest_hash: bytes,
    claim_id: bytes = b"",
) -> Claim:
    """Answers a repeated completion with other parts like the first one."""
    return await _begin_complete(self, repository, upload_id, bytes(32), claim_id)


async def _record_anyway(self: Uploads, repository: Repository, upload_id: str, part: Any) -> None:
    """Records a part even if its upload has ended."""
    key = RepositoryKeys.upload_part(UploadId(upload_id), part.part_number)
    row = (key, part.SerializeToString())
    (error,) = await self._kv.set_many(self._days.of(repository, upload_id), [Group(key, (row,))])
    if error is not None:
        raise error


def _no_life(features: FeatureGate, branch: Branch) -> bytes:
    """Lets an upload be completed on any branch of the name."""
    del features, branch
    return b""


def _no_rivals(self: Any, record: Branch, attempts: Sequence[StagingAttempt]) -> None:
    """Takes an upload beneath a newer row for done, although another attempt may still set it over that row."""
    del self, record, attempts


_complete = RecordedAttempts.complete


async def _complete_anyway(self: RecordedAttempts, entry: bytes, *, unless_added: bool) -> bool:
    """Records the answer although another attempt has begun since."""
    del unless_added
    return await _complete(self, entry, unless_added=False)


UPLOAD_GUARDS: Sequence[Guard] = (
    Guard(
        "completion-replays",
        "uploads",
        "I1",
        "a repeated completion of an upload stages its object again",
        (
            Weakening(Uploads, "begin_complete", _always_claims),
            Weakening(RecordedAttempts, "load", _no_attempts),
        ),
        runs=60,
    ),
    Guard(
        "completion-once",
        "uploads",
        "I1 I3",
        "a repeated completion under its claim writes its row as if it were the first",
        (Weakening(RecordedAttempts, "load", _no_attempts),),
        runs=600,
    ),
    Guard(
        "completion-looks",
        "uploads",
        "I1 I3",
        "a later attempt does not check whether an earlier one landed",
        (Weakening(tarn_graveler.uploads.completion._Staging, "_fate", _not_landed),),
        runs=600,
    ),
    Guard(
        "completion-compares",
        "uploads",
        "I0",
        "a completion with other parts gets the answer of the earlier one",
        (Weakening(Uploads, "begin_complete", _any_manifest),),
        runs=300,
    ),
    Guard(
        "parts-until-the-end",
        "uploads",
        "I0",
        "an upload that has ended takes parts",
        (Weakening(Uploads, "record_part", _record_anyway),),
        runs=300,
    ),
)

RARE_UPLOAD_GUARDS: Sequence[Guard] = (
    Guard(
        "upload-of-its-life",
        "uploads",
        "I0 I1",
        "an upload is completed on a later branch of the name",
        (Weakening(tarn_graveler.handlers.uploads, "life_to_note", _no_life),),
        runs=200,
    ),
    Guard(
        "completion-rivals",
        "uploads",
        "I3",
        "an upload beneath a newer row is done while another attempt may set it over that row",
        (Weakening(tarn_graveler.uploads.completion._Staging, "_check_rivals", _no_rivals),),
        runs=200,
    ),
    Guard(
        "completion-unless-added",
        "uploads",
        "I3",
        "the answer of such an upload is recorded although another attempt has begun since",
        (Weakening(RecordedAttempts, "complete", _complete_anyway),),
        runs=200,
    ),
)
"""Guards for which no seed is recorded; `tests.sim.rare_guards` names the tests that detect their absence."""
