"""Records in the store which secrets an installation was run with.

Two data folders, each with its own secret, may be pointed at one store by mistake. Both would serve it, but
one of them could open no user's key and could not find the blocks of the other. So a process may start only with
a secret that the store knows, current or previous. It then records its current secret in addition: during a
rotation both are valid.
"""

from __future__ import annotations

from collections.abc import Sequence

from tarn.core.errors import Kind, Reason, TarnError
from tarn.kv.keys import AuthKeys
from tarn.kv.register import Register
from tarn_auth.registers import Registers

__all__ = ["check_secret", "forget_other_secrets"]

_KEPT_MAX = 16


async def check_secret(registers: Registers, installation_id: str, key_ids: Sequence[str]) -> None:
    """Checks that the store knows one of the process's secrets, and records the current one.

    Args:
        registers: auth's registers.
        installation_id: for the error.
        key_ids: `SecretBox.key_ids` of the secrets, the current one first.

    Raises:
        TarnError: FAILED_PRECONDITION if the store was made with another secret; UNAVAILABLE if it
            does not answer.
    """

    def with_ours(known: list[str]) -> list[str]:
        if known and not set(known) & set(key_ids):
            raise _foreign(installation_id)
        return known if key_ids[0] in known else [key_ids[0], *known][:_KEPT_MAX]

    await _list_of(registers).change(with_ours)


def _list_of(registers: Registers) -> Register[list[str]]:
    return registers.register(
        AuthKeys.secrets(),
        lambda value: [] if value is None else value.decode("ascii", "replace").split(),
        lambda known: " ".join(known).encode(),
        "the list of secrets",
    )


async def forget_other_secrets(registers: Registers, key_id: str) -> None:
    """Lets the store recognise one secret only, after a rotation. Does nothing if another process changes the record.

    Raises:
        TarnError: as `Register.change`.
    """
    row = _list_of(registers)
    if known := await row.read():
        await row.change(lambda found: [key_id] if found == known else found)


def _foreign(installation_id: str) -> TarnError:
    text = (
        f"the store holds an installation {installation_id!r} that was made with another secret. Give "
        "that one (installation.secret, or <data_dir>/secret of the folder that it was made with), or "
        "begin another installation: another installation.id, keyspace or data folder"
    )
    return TarnError(Kind.FAILED_PRECONDITION, Reason.INVALID_ARGUMENT, text)
