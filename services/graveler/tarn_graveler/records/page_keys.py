"""The key with which an installation's graveler replicas sign their page tokens.

Graveler does not have the installation's secret; only auth does. Its replicas share the store, so the key
is stored there: random bytes in one row, created by the first replica that needs them and never changed.
Whoever can read the store can forge tokens, but can read all metadata anyway.
"""

from __future__ import annotations

from tarn.core.clock import IdSource
from tarn.core.errors import Kind, Reason, TarnError
from tarn.kv.keys import InstallationKeys
from tarn.kv.port import Kv
from tarn.kv.register import write_once
from tarn.rpc.wire.pagination import PAGE_KEY_BYTES, Argument, PageTokens

__all__ = ["PageKeys"]


class PageKeys:
    """Creates the page tokens of graveler's listings."""

    def __init__(self, kv: Kv, keys: InstallationKeys, ids: IdSource) -> None:
        self._kv = kv
        self._keys = keys
        self._ids = ids
        self._key: bytes | None = None

    async def tokens(self, caller: str, listing: str, **arguments: Argument) -> PageTokens:
        """Returns the tokens of one listing; see `PageTokens`.

        Raises:
            TarnError: the key cannot be read (UNAVAILABLE) or is damaged (CORRUPT).
        """
        if self._key is None:
            self._key = await self._read()
        return PageTokens((self._key,), caller, listing, **arguments)

    async def _read(self) -> bytes:
        place, row = self._keys.graveler, self._keys.PAGE_KEY
        key = await write_once(self._kv, place, row, self._new_key, "the key of page tokens")
        if len(key) != PAGE_KEY_BYTES:
            text = f"the page key has {len(key)} bytes, not {PAGE_KEY_BYTES}"
            raise TarnError(Kind.CORRUPT, Reason.DATA_CORRUPT, text)
        return key

    def _new_key(self) -> bytes:
        return self._ids.nonce() + self._ids.nonce()
