"""Values of `tarn.client` about the settings of a repository."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tarn.client.calls import several
from tarn.core.change_kind import ChangeKind
from tarn.rpc.client.transport import garbled
from tarn_proto.graveler.v1 import settings_service_pb2 as pb

__all__ = ["Protection", "RepositorySettings"]

_KINDS = {
    pb.CHANGE_KIND_WRITE: ChangeKind.WRITE,
    pb.CHANGE_KIND_COMMIT: ChangeKind.COMMIT,
    pb.CHANGE_KIND_MERGE: ChangeKind.MERGE,
    pb.CHANGE_KIND_DELETE: ChangeKind.DELETE,
    pb.CHANGE_KIND_FORCE: ChangeKind.FORCE,
}
_NUMBERS = {kind: number for number, kind in _KINDS.items()}


@dataclass(frozen=True, slots=True)
class Protection:
    """Blocks changes of the branches that match a pattern, except for some callers.

    Attributes:
        pattern: of branch names: `*` any characters, `?` one, a backslash before a literal one.
        blocked: the blocked kinds, at least one: WRITE, COMMIT, MERGE, DELETE, FORCE.
        exempt_user_ids: users whom it does not bind. They must exist when they are named first.
        exempt_roles: roles whose users it does not bind.
    """

    pattern: str
    blocked: frozenset[ChangeKind]
    exempt_user_ids: tuple[str, ...] = ()
    exempt_roles: tuple[str, ...] = ()

    @staticmethod
    def of(sent: pb.Protection) -> Protection:
        """The value of a message.

        Raises:
            TarnError: INTERNAL: it blocks a kind that this client does not know. Without that kind, a program
                that changes the rules would weaken this one.
        """
        if unknown := set(sent.blocked) - _KINDS.keys():
            raise garbled(
                f"kinds {sorted(unknown)} of the protection {sent.pattern!r}, which this client does not know;"
                " update it"
            )
        return Protection(
            sent.pattern,
            frozenset(_KINDS[each] for each in sent.blocked),
            tuple(sent.exempt_user_ids),
            tuple(sent.exempt_roles),
        )

    def message(self) -> pb.Protection:
        """The message of this value.

        Raises:
            ValueError: a blocked kind is one that no protection can block.
            TypeError: the exempt users or roles are one text.
        """
        if wrong := sorted(set(self.blocked) - _NUMBERS.keys()):
            names = ", ".join(_NUMBERS)
            raise ValueError(f"a protection cannot block {', '.join(wrong)}; it blocks {names}")
        return pb.Protection(
            pattern=self.pattern,
            blocked=sorted(_NUMBERS[each] for each in self.blocked),
            exempt_user_ids=several(self.exempt_user_ids, "exempt_user_ids"),
            exempt_roles=several(self.exempt_roles, "exempt_roles"),
        )


@dataclass(frozen=True, slots=True)
class RepositorySettings:
    """The settings of a repository.

    Attributes:
        protections: a change must pass all that match its branch.
        hidden_patterns: patterns of the branches that listings omit.
        read_only: True: nothing but these settings can be changed.
        metadata: names and values.
        etag: version of all of the above, for `if_match`.
        default_branch_id: the default branch; it has no part in `etag`.
    """

    protections: tuple[Protection, ...]
    hidden_patterns: tuple[str, ...]
    read_only: bool
    metadata: Mapping[str, str]
    etag: str
    default_branch_id: str

    @staticmethod
    def of(sent: pb.GetSettingsResponse) -> RepositorySettings:
        """The value of a message; raises as `Protection.of`."""
        return RepositorySettings(
            tuple(map(Protection.of, sent.protections)),
            tuple(sent.hidden_patterns),
            sent.read_only,
            dict(sent.metadata),
            sent.etag,
            sent.default_branch_id,
        )
