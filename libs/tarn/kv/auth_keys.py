"""The partition and keys of auth (docs/design/kv.md, "Partitions and keys")."""

from __future__ import annotations

from dataclasses import dataclass

from tarn.core.ids import AccessKeyId, UserId
from tarn.kv.port import Partition, PartitionKind

__all__ = ["AUTH", "AuthKeys"]

AUTH = "auth"


@dataclass(frozen=True, slots=True)
class AuthKeys:
    """Where auth keeps what it knows. User ids and access key ids hold no slash."""

    installation_id: str

    @property
    def partition(self) -> Partition:
        """All of it is linearised."""
        return Partition(f"{self.installation_id}/{AUTH}", PartitionKind.REGISTER)

    @staticmethod
    def setup() -> bytes:
        """`setup`: present once the first admin exists."""
        return b"setup"

    @staticmethod
    def secrets() -> bytes:
        """`secrets`: names of the keys of the secrets that the installation was run with."""
        return b"secrets"

    @staticmethod
    def user(user_id: UserId | str) -> bytes:
        """`users/<user id>`."""
        return f"users/{user_id}".encode()

    @staticmethod
    def credential(access_key_id: AccessKeyId | str) -> bytes:
        """`credentials/<access key id>`."""
        return f"credentials/{access_key_id}".encode()

    @staticmethod
    def owned(user_uid: bytes, access_key_id: AccessKeyId | str) -> bytes:
        """`owned/<user uid>/<access key id>`: which keys a user has; the value says nothing.

        By uid, not by name, so that a re-created user does not find those of its namesake.
        """
        return f"owned/{user_uid.hex()}/{access_key_id}".encode()

    @staticmethod
    def deletion(user_uid: bytes | None) -> bytes:
        """`deletions/<user uid>` → the user: a deletion that was begun; None for where they start."""
        return b"deletions/" if user_uid is None else f"deletions/{user_uid.hex()}".encode()
