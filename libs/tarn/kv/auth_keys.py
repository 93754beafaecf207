"""The partition and keys of auth (docs/design/kv.md, "Partitions and keys")."""

from __future__ import annotations

from dataclasses import dataclass

from tarn.core.ids import AccessKeyId, UserId
from tarn.kv.port import Partition, PartitionKind

__all__ = ["AUTH", "AuthKeys"]

AUTH = "auth"


@dataclass(frozen=True, slots=True)
class AuthKeys:
    """The partition and keys that auth uses. User ids and access key ids contain no slash."""

    installation_id: str

    @property
    def partition(self) -> Partition:
        """The only partition of auth; every write to it is linearized."""
        return Partition(f"{self.installation_id}/{AUTH}", PartitionKind.REGISTER)

    @staticmethod
    def setup() -> bytes:
        """`setup`: present once the first admin exists."""
        return b"setup"

    @staticmethod
    def secrets() -> bytes:
        """`secrets`: the names of the encryption keys that the installation has been run with."""
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
        """`owned/<user uid>/<access key id>`: an index of a user's access keys; the value is unused.

        The key holds the uid, not the name, so that a re-created user does not inherit its predecessor's keys.
        """
        return f"owned/{user_uid.hex()}/{access_key_id}".encode()

    @staticmethod
    def deletion(user_uid: bytes | None) -> bytes:
        """`deletions/<user uid>` → the user whose deletion has begun. None gives the prefix of all such keys."""
        return b"deletions/" if user_uid is None else f"deletions/{user_uid.hex()}".encode()
