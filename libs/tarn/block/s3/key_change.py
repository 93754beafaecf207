"""The settings of an S3 store from a configuration, and other keys of it while the store is open."""

from __future__ import annotations

from tarn.block.s3.settings import S3Settings
from tarn.block.s3.store import S3BlockStore
from tarn.config import Config, Secret
from tarn.config.sections import Blockstore
from tarn.core.errors import Kind, Reason, TarnError

__all__ = ["KeyChange", "settings_of"]


def settings_of(blockstore: Blockstore) -> S3Settings:
    """Returns the server that a configuration names, and the credentials for it."""
    section = blockstore.s3
    keys = section.credentials
    return S3Settings(
        blockstore.namespace_prefix.rstrip("/"),
        region=section.region,
        endpoint=section.endpoint.rstrip("/") if section.endpoint is not None else None,
        path_style=section.force_path_style,
        ca=section.tls.ca,
        access_key_id=keys.access_key_id,
        secret_access_key=_revealed(keys.access_secret_key),
        session_token=_revealed(keys.session_token),
        profile=section.profile,
        credentials_file=section.credentials_file,
        spool=section.spool,
    )


class KeyChange:
    """Tells a store of other keys of its bucket (`tarn.config.SecretChanges`).

    Args:
        store: the open store.
        settings: those that it was opened with.
    """

    def __init__(self, store: S3BlockStore, settings: S3Settings) -> None:
        self._store = store
        self._used = settings

    async def use(self, config: Config) -> None:
        """Takes the keys of a configuration into use; does nothing if they are in use already.

        Raises:
            TarnError: FAILED_PRECONDITION: there are none any more. As `S3BlockStore.use_keys`.
        """
        settings = settings_of(config.blockstore)
        if settings == self._used:
            return
        if settings.access_key_id is None and self._used.access_key_id is not None:
            text = "blockstore.s3.credentials were removed; restart to use those of the profile or the machine"
            raise TarnError(Kind.FAILED_PRECONDITION, Reason.INVALID_ARGUMENT, text)
        await self._store.use_keys(settings)
        self._used = settings


def _revealed(secret: Secret | None) -> str | None:
    return None if secret is None else secret.reveal()
