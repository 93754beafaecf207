"""A transaction: a branch of its own for one command, and a session key that writes to nothing else (`tarn tx run`).

The branch expires by itself, and the key within the hour, so a crash leaves nothing that has to be cleaned up. While
the command runs, both are renewed.
"""

from __future__ import annotations

import contextlib
import random
import secrets
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from tarn.aio.backoff import backoff_seconds
from tarn.core.access.actions import REPOSITORIES, Action
from tarn.core.errors import Kind, Reason, TarnError
from tarn_cli.exits import CliError, Exit
from tarn_cli.foreground import merged, previewed
from tarn_cli.session import Session
from tarn_proto.auth.v1.session_key_service_pb2 import (
    Binding,
    CreateSessionKeyRequest,
    CreateSessionKeyResponse,
    Permission,
)
from tarn_proto.graveler.v1.merge_service_pb2 import (
    MergeConflict,
    MergeRequest,
    PreviewMergeRequest,
)

if TYPE_CHECKING:  # `tarn --help` does without
    from tarn_cli.connection import Connection

__all__ = ["Ending", "Plan", "Transaction", "begin", "plan"]

REPOSITORY_VARIABLE: Final = "TARN_TX_REPOSITORY"
BRANCH_VARIABLE: Final = "TARN_TX_BRANCH"
_SHOWN_VARIABLE: Final = "TARN_TX_BUCKETS"
_KEY_SECONDS: Final = 3_600
_RENEW_SECONDS: Final = 1_200.0
_RETRY_SECONDS: Final = 60.0
_JOIN_SECONDS: Final = 5.0
_MERGES_MAX: Final = 12
_PAGE_SIZE: Final = 1000
_REGION: Final = "us-east-1"
_HIDDEN: Final = (
    "AWS_CONTAINER_CREDENTIALS_FULL_URI",
    "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
    "AWS_CREDENTIAL_EXPIRATION",
    "AWS_DEFAULT_PROFILE",
    "AWS_ENDPOINT_URL_STS",
    "AWS_IGNORE_CONFIGURED_ENDPOINT_URLS",
    "AWS_PROFILE",
    "AWS_ROLE_ARN",
    "AWS_SECURITY_TOKEN",
    "AWS_WEB_IDENTITY_TOKEN_FILE",
)
"""Variables that would take precedence over those of the transaction, or contradict them."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What a transaction is about.

    Attributes:
        repository: its repository.
        onto: the branch into which it is merged.
        is_nested: `onto` is the branch of the enclosing transaction.
        buckets: bucket names that show the branch of the transaction.
        branch_seconds: after which the branch expires, unless it is renewed.
    """

    repository: str
    onto: str
    is_nested: bool
    buckets: tuple[str, ...]
    branch_seconds: int


@dataclass(frozen=True, slots=True)
class Ending:
    """How a transaction ended.

    Attributes:
        outcome: `merged`, `nothing` (there was nothing to merge) or `conflict`.
        commit: the new head of the branch into which it was merged; empty otherwise.
        conflicts: the paths in conflict.
    """

    outcome: str
    commit: str = ""
    conflicts: list[MergeConflict] = field(default_factory=list)


async def plan(
    tarn: Connection,
    environment: Mapping[str, str],
    *,
    repository: str,
    onto: str,
    buckets: Sequence[str],
    branch_seconds: int,
) -> Plan:
    """Completes what the user left out: the enclosing transaction's repository and branch, else the only repository and
    its default branch; and the bucket views that show that branch.

    Raises:
        CliError: USAGE: there are several repositories, or none.
        TarnError: errors of the calls.
    """
    from tarn_cli.connection import collect

    outer = environment.get(REPOSITORY_VARIABLE, "")
    repository = repository or outer or await _only_repository(tarn)
    if not onto and repository == outer:
        onto = environment.get(BRANCH_VARIABLE, "")
    if not onto:
        onto = (await tarn.graveler.get_repository(tarn.call(), repository)).default_branch_id
    is_nested = repository == outer and onto == environment.get(BRANCH_VARIABLE)
    if not buckets:
        views = await collect(
            lambda size, token: tarn.graveler.list_buckets(
                tarn.call(), views_only=True, page_size=size, page_token=token
            ),
            lambda page: [each.view for each in page.buckets],
        )
        shown = environment.get(_SHOWN_VARIABLE, "").split() if is_nested else []
        buckets = [
            each.bucket_id for each in views if (each.repository_id, each.ref) == (repository, onto)
        ] + shown
    return Plan(repository, onto, is_nested, tuple(buckets), branch_seconds)


async def _only_repository(tarn: Connection) -> str:
    page = await tarn.graveler.list_repositories(tarn.call(), page_size=2)
    if len(page.repositories) != 1:
        hint = "name the repository: --repo lake"
        raise CliError(Exit.USAGE, "there is not exactly one repository", hint)
    return page.repositories[0].repository_id


def begin(session: Session, wanted: Plan) -> Transaction:
    """Makes the branch and the session key of a transaction.

    Raises:
        TarnError: errors of the calls. Whatever was made by then is deleted, or expires.
    """
    from tarn.rpc.process.system import SystemClock

    now = datetime.fromtimestamp(SystemClock().now_us() // 1_000_000, UTC)
    branch = f"tx-{now:%Y%m%dT%H%M%S}-{secrets.token_hex(4)}"

    async def work(tarn: Connection) -> tuple[str, CreateSessionKeyResponse]:
        if wanted.is_nested:
            await _commit(tarn, wanted.repository, wanted.onto, f"before {branch}", {})
        made = await tarn.graveler.create_branch(
            tarn.call(),
            wanted.repository,
            branch,
            wanted.onto,
            time_to_live_s=wanted.branch_seconds,
        )
        try:
            key = await tarn.auth.create_session_key(tarn.call(), _key_request(wanted, branch))
        except BaseException:
            with contextlib.suppress(TarnError):
                await tarn.graveler.delete_branch(tarn.call(), wanted.repository, branch)
            raise
        return made.commit_id, key

    base, key = session.run(work)
    return Transaction(session, wanted, branch, base, key)


def _key_request(wanted: Plan, branch: str) -> CreateSessionKeyRequest:
    """The session key of a transaction reads what its user reads, and writes to its branch only."""
    own = f"repository/{wanted.repository}/branch/{branch}"
    reads = [Action.LIST_REPOS.value, Action.READ_REPO.value]
    return CreateSessionKeyRequest(
        duration_s=_KEY_SECONDS,
        description=f"transaction {wanted.repository}/{branch}",
        permissions=[
            Permission(actions=reads, resources=[REPOSITORIES]),
            Permission(actions=[Action.WRITE_REPO.value], resources=[own, f"{own}/object/*"]),
        ],
        bindings=[
            Binding(bucket_id=each, repository_id=wanted.repository, ref=branch)
            for each in wanted.buckets
        ],
    )


async def _commit(
    tarn: Connection, repository: str, branch: str, message: str, metadata: Mapping[str, str]
) -> None:
    """Commits the changes of a branch, if there are any. A lost answer is settled by the next attempt."""
    for attempt in range(_MERGES_MAX):
        try:
            await tarn.graveler.create_commit(
                tarn.call(), repository, branch, message, metadata=metadata
            )
        except TarnError as error:
            if error.reason is Reason.NOTHING_TO_COMMIT:
                return
            is_lost = error.kind in (Kind.UNKNOWN_OUTCOME, Kind.CONFLICT)
            if not is_lost or attempt == _MERGES_MAX - 1:
                raise
        else:
            return


class Transaction:
    """A transaction that has begun.

    Attributes:
        branch: its branch.
    """

    def __init__(
        self,
        session: Session,
        wanted: Plan,
        branch: str,
        base: str,
        key: CreateSessionKeyResponse,
    ) -> None:
        self._session = session
        self._plan = wanted
        self._base = base
        self._key = key
        self.branch = branch

    def environment(self, outer: Mapping[str, str]) -> dict[str, str]:
        """Returns the environment of the command: that of this process, with the key, the endpoint and the names."""
        settings, wanted = self._session.settings(), self._plan
        made = {name: value for name, value in outer.items() if name not in _HIDDEN}
        made |= {
            "AWS_ACCESS_KEY_ID": self._key.session_key.access_key_id,
            "AWS_SECRET_ACCESS_KEY": self._key.secret_access_key,
            "AWS_SESSION_TOKEN": self._key.session_token,
            "AWS_ENDPOINT_URL": settings.endpoint,
            "AWS_ENDPOINT_URL_S3": settings.endpoint,
            "AWS_REGION": outer.get("AWS_REGION") or _REGION,
            "AWS_DEFAULT_REGION": outer.get("AWS_REGION") or _REGION,
            REPOSITORY_VARIABLE: wanted.repository,
            BRANCH_VARIABLE: self.branch,
            "TARN_TX_ONTO": wanted.onto,
            "TARN_TX_URI": f"s3://{wanted.repository}/{self.branch}/",
            _SHOWN_VARIABLE: " ".join(wanted.buckets),
        }
        if settings.endpoint_ca:
            made["AWS_CA_BUNDLE"] = settings.endpoint_ca
        return made

    @contextlib.contextmanager
    def renewed(self) -> Iterator[None]:
        """Within the block, the key and the branch are renewed."""
        ended = threading.Event()
        thread = threading.Thread(target=self._renew, args=(ended,), daemon=True)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join(_JOIN_SECONDS)

    def _renew(self, ended: threading.Event) -> None:
        async def work(tarn: Connection) -> None:
            key = self._key.session_key.access_key_id
            await tarn.graveler.set_branch_expiry(
                tarn.call(), self._plan.repository, self.branch, self._plan.branch_seconds
            )
            await tarn.auth.renew_session_key(tarn.call(), key, duration_s=_KEY_SECONDS)

        pause = _RENEW_SECONDS
        while not ended.wait(pause):
            try:
                self._session.run(work)
                pause = _RENEW_SECONDS
            except (TarnError, CliError) as error:
                pause = _RETRY_SECONDS
                self._session.output.remark(f"the transaction was not renewed: {error}")

    def end_key(self) -> None:
        """Ends the session key; it would expire by itself."""
        key = self._key.session_key.access_key_id

        async def work(tarn: Connection) -> None:
            await tarn.auth.end_session_key(tarn.call(), key)

        try:
            self._session.run(work)
        except (TarnError, CliError) as error:
            self._session.output.remark(f"session key {key} expires within the hour: {error}")

    def discard(self) -> bool:
        """Deletes the branch; returns whether it is gone. Otherwise it expires."""

        async def work(tarn: Connection) -> None:
            await tarn.graveler.delete_branch(tarn.call(), self._plan.repository, self.branch)

        try:
            self._session.run(work)
        except TarnError as error:
            if error.reason is not Reason.BRANCH_NOT_FOUND:
                text = f"branch {self._plan.repository}/{self.branch} expires by itself: {error}"
                self._session.output.remark(text)
                return False
        return True

    def complete(self, message: str) -> Ending:
        """Commits what the command has written, and merges it as one commit.

        Raises:
            TarnError, CliError: it is not merged, or perhaps not; the branch is kept.
        """
        wanted = self._plan
        text = message or f"Transaction {self.branch}"
        metadata = {"transaction": self.branch}

        async def commit(tarn: Connection) -> str:
            await _commit(tarn, wanted.repository, self.branch, text, metadata)
            found = await tarn.graveler.get_branch(tarn.call(), wanted.repository, self.branch)
            return found.commit_id

        if self._session.run(commit) == self._base:
            return Ending("nothing")
        request = MergeRequest(
            repository_id=wanted.repository,
            branch_id=wanted.onto,
            source_ref=self.branch,
            message=text,
            metadata=metadata,
            squash=True,
        )
        return self._merge(request)

    def _merge(self, request: MergeRequest) -> Ending:
        """Merges, again if the branch has moved meanwhile."""
        rng = random.Random()  # noqa: S311 - jitter
        for attempt in range(_MERGES_MAX):
            try:
                return Ending("merged", merged(self._session, request).commit_id)
            except TarnError as error:
                if error.reason is Reason.NOTHING_TO_MERGE:
                    return Ending("nothing")
                if error.reason is Reason.MERGE_CONFLICT:
                    return Ending("conflict", conflicts=self._conflicts())
                if error.reason is Reason.BRANCH_DIRTY and self._plan.is_nested:
                    self._commit_outer()
                elif error.kind is not Kind.CONFLICT or attempt == _MERGES_MAX - 1:
                    raise
            time.sleep(backoff_seconds(rng, attempt))
        raise CliError(Exit.CONFLICT, f"{self._plan.onto} kept changing during the merge")

    def _commit_outer(self) -> None:
        """Commits what the enclosing transaction has written meanwhile: its own end makes one commit of it all."""
        wanted = self._plan
        message = f"before {self.branch} is merged"
        self._session.run(lambda tarn: _commit(tarn, wanted.repository, wanted.onto, message, {}))

    def _conflicts(self) -> list[MergeConflict]:
        wanted = self._plan
        preview = previewed(
            self._session,
            PreviewMergeRequest(
                repository_id=wanted.repository,
                destination_ref=wanted.onto,
                source_ref=self.branch,
                page_size=_PAGE_SIZE,
            ),
        )
        return list(preview.conflicts)
