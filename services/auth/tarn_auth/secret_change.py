"""Takes other installation secrets into use while auth serves.

Two mistakes would make key pairs unusable: a secret that belongs to another installation, and the removal of a secret
that still seals key pairs. Both are refused, and auth goes on with the secrets that it has.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

import structlog

from tarn.core.errors import Kind, Reason, TarnError
from tarn_auth.keyring import Keyring
from tarn_auth.registers import Registers
from tarn_auth.resealing import count_seals
from tarn_auth.secret_box import SecretBox
from tarn_auth.secret_mark import check_secret

__all__ = ["SecretChange"]

_log = structlog.get_logger()


class SecretChange:
    """Changes the keyring of a process.

    Args:
        registers: auth's registers.
        installation_id: for errors.
        keyring: the keys of this process.
    """

    def __init__(self, registers: Registers, installation_id: str, keyring: Keyring) -> None:
        self._registers = registers
        self._installation_id = installation_id
        self._keyring = keyring

    async def use(self, secrets: Sequence[bytes]) -> None:
        """Takes secrets into use, the current one first; does nothing if they are in use already.

        The number of key pairs decides how long it takes if a secret is removed: each of them is read.

        Raises:
            TarnError: FAILED_PRECONDITION: a removed secret still seals key pairs, or the store was made with another
                secret. UNAVAILABLE: the store does not answer. The secrets in use stay.
        """
        if tuple(secrets) == self._keyring.secrets:
            return
        box = SecretBox(secrets, os.urandom)
        await self._check_removed(box)
        await check_secret(self._registers, self._installation_id, box.key_ids)
        self._keyring.change(secrets)
        current, *others = box.key_ids
        _log.info("installation secrets changed", current_key_id=current, other_key_ids=others)

    async def _check_removed(self, box: SecretBox) -> None:
        removed = set(self._keyring.box.key_ids) - set(box.key_ids)
        if not removed:
            return
        seals = await count_seals(self._registers, box)
        count = sum(seals.by_key_id.get(key_id, 0) for key_id in removed)
        if count:
            text = (
                f"{count} secret keys are still sealed by a secret that was removed "
                f"({', '.join(sorted(removed))}): configure it as installation.previous_secret and run "
                "`tarn auth rotate-master-key`, then remove it"
            )
            raise TarnError(Kind.FAILED_PRECONDITION, Reason.INVALID_ARGUMENT, text)
