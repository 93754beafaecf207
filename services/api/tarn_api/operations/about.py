"""What clients ask before they work: health, version, configuration, set-up."""

from __future__ import annotations

from typing import Final

from tarn.block.port import PresignsParts, PresignsWrites
from tarn_api.context import Context
from tarn_rest import operations as op
from tarn_rest import schemas

__all__ = [
    "get_auth_capabilities",
    "get_config",
    "get_setup_state",
    "get_storage_config",
    "get_version",
    "health_check",
    "post_stats_events",
]

_INTERFACE: Final = "1.84.0"
"""The release of lakeFS whose interface this is: clients compare versions."""

_CONTEXT: Final = "lakeFS"
"""lakectl warns of a server of another edition for each other text."""


async def health_check(context: Context, at: op.HealthCheck) -> None:
    """Says that this process answers."""


async def get_config(context: Context, at: op.GetConfig) -> schemas.Config:
    """Returns all that clients ask to choose how they move bytes."""
    storage = _storage(context)
    return schemas.Config(
        version_config=_version(context), storage_config=storage, storage_config_list=[]
    )


async def get_version(
    context: Context,
    at: op.GetLakeFSVersion,
) -> schemas.VersionConfig:
    """Returns the version."""
    return _version(context)


async def get_storage_config(
    context: Context,
    at: op.GetStorageConfig,
) -> schemas.StorageConfig:
    """Returns the part of the configuration about the block store."""
    return _storage(context)


async def get_setup_state(
    context: Context,
    at: op.GetSetupState,
) -> schemas.SetupState:
    """Tells whether the first admin exists, and that there are no policies to be managed. Needs no caller."""
    found = await context.backend.auth.get_setup_state(context.read())
    return schemas.SetupState(
        state="initialized" if found.is_set_up else "not_initialized",
        comm_prefs_missing=False,
        login_config=schemas.LoginConfig(
            rbac="none", login_url="", login_cookie_names=[], logout_url=""
        ),
    )


async def get_auth_capabilities(
    context: Context,
    at: op.GetAuthCapabilities,
) -> schemas.AuthCapabilities:
    """Tells that no invitation and no password is sent by mail."""
    return schemas.AuthCapabilities(invite_user=False, forgot_password=False)


async def post_stats_events(
    context: Context,
    at: op.PostStatsEvents,
    body: schemas.StatsEventsList,
) -> None:
    """Takes the counts that clients send about themselves, and drops them."""


def _version(context: Context) -> schemas.VersionConfig:
    return schemas.VersionConfig(
        version=_INTERFACE,
        version_context=_CONTEXT,
        latest_version=_INTERFACE,
        upgrade_recommended=False,
        upgrade_url="",
    )


def _storage(context: Context) -> schemas.StorageConfig:
    prefix = context.backend.namespace_prefix
    writes = isinstance(context.blocks, PresignsWrites) and isinstance(
        context.blocks, PresignsParts
    )
    links = context.linking_blocks is not None and writes
    return schemas.StorageConfig(
        blockstore_description=f"blocks of Tarn {context.backend.version}",
        blockstore_type=prefix.partition("://")[0],
        blockstore_namespace_example=f"{prefix}example",
        # Of what clients may send, not of what Tarn makes: the place is Tarn's choice.
        blockstore_namespace_validity_regex="^(s3|gs|https?|mem|local|transient)://.*$",
        default_namespace_prefix=prefix,
        pre_sign_support=links,
        pre_sign_support_ui=False,
        import_support=False,
        import_validity_regex="^$",
        pre_sign_multipart_upload=links,
    )
