"""The settings of repositories: their rules and metadata, one record for each repository.

The record is in the repository's own register partition, so a repository that is created again under an old name
has no rules, and a deletion removes them. Every change is a compare-and-set of the record.

The rules are cached for `RULES_CACHE_SECONDS`, counted from before they were read. So a write that another replica
admits by the former rules was admitted less than that time after the change. All other kinds of changes read the
record afresh: they are rare, and one read more does not matter to them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from tarn.aio.ttl_cache import TtlCache
from tarn.core.access.policy import Grant
from tarn.core.change_kind import ChangeKind
from tarn.core.clock import Clock, IdSource
from tarn.core.errors import Kind, Reason, TarnError
from tarn.core.review_rule import ReviewRule
from tarn.core.rules import SETTINGS_BYTES_MAX, Rules, Settings
from tarn.kv.keys import RepositoryKeys
from tarn.kv.port import Kv
from tarn.kv.records import Repository
from tarn.kv.register import Register
from tarn.kv.rules_records import decode_settings, encode_settings
from tarn_graveler.records.repositories import Repositories

__all__ = ["RULES_CACHE_SECONDS", "RepositorySettings", "etag_of", "settings_changed"]

RULES_CACHE_SECONDS = 5.0
"""How long a replica admits writes by rules that it has read (docs/user/rules.md)."""

_CACHED_MAX = 10_000
_NEVER_CHANGED = "0"


def etag_of(repository: Repository, settings: Settings) -> str:
    """Returns the version of settings; differs between the lives of a repository."""
    return f"{repository.instance_uid}-{settings.change_id.hex() or _NEVER_CHANGED}"


def settings_changed(repository_id: str, what: str) -> TarnError:
    """Returns the error for a change that expects other settings than there are."""
    text = f"{what} of repository {repository_id} changed since you read them; read them again, then decide again"
    return TarnError(Kind.CONFLICT, Reason.SETTINGS_CHANGED, text, repository=repository_id)


class RepositorySettings:
    """Reads, enforces and changes the settings of repositories."""

    def __init__(self, kv: Kv, repositories: Repositories, clock: Clock, ids: IdSource) -> None:
        self._kv = kv
        self._repositories = repositories
        self._clock = clock
        self._ids = ids
        # By repository instance.
        self._rules: TtlCache[str, Rules] = TtlCache(clock, _CACHED_MAX)
        self._when_changed: list[Callable[[], None]] = []

    async def require(
        self, repository: Repository, branch_id: str, kind: ChangeKind, caller: Grant
    ) -> None:
        """Refuses a change that a rule of the repository blocks.

        Args:
            repository: repository to change.
            branch_id: branch to change; ignored by kinds that are not about a branch.
            kind: kind of the change. For writes, the rules may be `RULES_CACHE_SECONDS` old.
            caller: grant of the caller.

        Raises:
            TarnError: DENIED, BRANCH_PROTECTED or REPOSITORY_READ_ONLY.
        """
        if kind is ChangeKind.ALWAYS:
            return
        rules = None
        if kind is ChangeKind.WRITE:
            rules = self._rules.get(repository.instance_uid)
        if rules is None:
            rules = (await self.read(repository)).rules
        rules.require(repository.repository_id, branch_id, kind, caller)

    async def review_rules(
        self, repository: Repository, branch_id: str, caller: Grant
    ) -> list[tuple[str, ReviewRule]]:
        """Returns what the merge of a pull request into a branch needs now; see `Rules.require_pull_merge`.

        Raises:
            TarnError: DENIED, BRANCH_PROTECTED or REPOSITORY_READ_ONLY.
        """
        rules = (await self.read(repository)).rules
        return rules.require_pull_merge(repository.repository_id, branch_id, caller)

    async def read(self, repository: Repository) -> Settings:
        """Returns the settings, by a read that is sent now."""
        begin = self._clock.monotonic()
        settings = await self._register(repository).read()
        uid, rules = repository.instance_uid, settings.rules
        if self._rules.get(uid) not in (None, rules):
            self._tell()
        self._rules.put(uid, rules, begin + RULES_CACHE_SECONDS)
        return settings

    def when_changed(self, tell: Callable[[], None]) -> None:
        """Has `tell` called each time that cached rules are found to differ; not at the end of their time
        (`rules_until`)."""
        self._when_changed.append(tell)

    def rules_until(self, repository: Repository) -> float:
        """Returns until when `require` judges writes by the cached rules, on the monotonic clock; a time of the past
        without any."""
        return self._rules.end_of(repository.instance_uid)

    def _tell(self) -> None:
        for tell in self._when_changed:
            tell()

    def _register(self, repository: Repository) -> Register[Settings]:
        return Register(
            self._kv,
            self._repositories.keys_of(repository).refs,
            RepositoryKeys.SETTINGS,
            lambda value: Settings() if value is None else decode_settings(value),
            _encoded,
            f"the settings of repository {repository.repository_id}",
        )

    async def change(
        self, repository: Repository, if_match: str, decide: Callable[[Settings], Settings]
    ) -> str:
        """Changes the settings by compare-and-set; returns the new ETag.

        Args:
            repository: repository to change; read afresh first, so that nothing is written for a deleted one.
            if_match: ETag that the settings must have; empty for any.
            decide: takes the current settings and returns the new ones; called for each attempt.

        Raises:
            TarnError: CONFLICT, SETTINGS_CHANGED: the settings have another ETag. REPOSITORY_NOT_FOUND.
                METADATA_TOO_LARGE: the record would be too large. Errors of `decide`. UNAVAILABLE.
                OUTCOME_UNKNOWN.
        """
        await self._repositories.require(repository)
        change_id = self._ids.nonce()

        def decided(current: Settings) -> Settings:
            if if_match not in ("", etag_of(repository, current)):
                raise settings_changed(repository.repository_id, "the settings")
            now_us = self._clock.now_us()
            return replace(decide(current), change_id=change_id, change_time_us=now_us)

        try:
            changed = await self._register(repository).change(
                decided, lambda current: current.change_id == change_id
            )
        finally:
            self._rules.pop(repository.instance_uid)
            self._tell()
        return etag_of(repository, changed)


def _encoded(settings: Settings) -> bytes:
    value = encode_settings(settings)
    if len(value) > SETTINGS_BYTES_MAX:
        text = (
            f"rules and metadata of a repository have at most {SETTINGS_BYTES_MAX} bytes together, not "
            f"{len(value)}; use patterns or roles instead of many names"
        )
        raise TarnError(Kind.INVALID, Reason.METADATA_TOO_LARGE, text)
    return value
