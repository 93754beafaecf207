"""The key that an installation's graveler replicas sign their page tokens with.

Graveler does not hold the installation's secret, which is auth's alone. Its replicas share the store, so
the key lies there: random bytes in one register, made by the first replica that needs them, and never
changed. Only a value that was *read* is used. So it does not matter whose compare-and-set made the row, nor
whether an answer was lost. Whoever can read the store can forge tokens, and can read all metadata anyway.
"""

from __future__ import annotations

from tarn.core.clock import IdSource
from tarn.core.errors import Kind, Reason, TarnError
from tarn.kv.keys import InstallationKeys
from tarn.kv.port import Kv, OutcomeUnknownError, PredicateFailedError
from tarn.rpc.wire.pagination import PAGE_KEY_BYTES, Argument, PageTokens

__all__ = ["PageKeys"]

_TRIES = 8


class PageKeys:
    """Makes the page tokens of graveler's listings."""

    def __init__(self, kv: Kv, keys: InstallationKeys, ids: IdSource) -> None:
        self._kv = kv
        self._keys = keys
        self._ids = ids
        self._key: bytes | None = None

    async def tokens(self, caller: str, listing: str, **arguments: Argument) -> PageTokens:
        """The tokens of one listing; see `PageTokens`.

        Raises:
            TarnError: the key cannot be read (UNAVAILABLE) or is damaged (CORRUPT).
        """
        if self._key is None:
            self._key = await self._read()
        return PageTokens(self._key, caller, listing, **arguments)

    async def _read(self) -> bytes:
        place, row = self._keys.graveler, self._keys.PAGE_KEY
        for _ in range(_TRIES):
            (found,) = await self._kv.get_many(place, [row], settle=True)
            if found is not None:
                if len(found.value) != PAGE_KEY_BYTES:
                    text = f"the page key has {len(found.value)} bytes, not {PAGE_KEY_BYTES}"
                    raise TarnError(Kind.CORRUPT, Reason.DATA_CORRUPT, text)
                return found.value
            try:
                await self._kv.set_if(place, row, self._ids.nonce() + self._ids.nonce(), None)
            except (PredicateFailedError, OutcomeUnknownError):
                continue  # the next read tells what is there
        text = "the key of page tokens could not be stored; try again"
        raise TarnError(Kind.UNAVAILABLE, Reason.UNAVAILABLE, text)
