"""What clients ask before they work: health, version, configuration, set-up."""

from __future__ import annotations

from typing import Final

import msgspec
from starlette.responses import Response

from tarn.block.port import PresignsParts, PresignsWrites
from tarn.core.access.actions import QUOTAS, Action
from tarn_api.answers import JSON_LINES, Whole
from tarn_api.context import Context
from tarn_api.errors import ApiError
from tarn_rest import operations as op
from tarn_rest import schemas

__all__ = [
    "get_auth_capabilities",
    "get_config",
    "get_setup_state",
    "get_storage_config",
    "get_usage_report_summary",
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


async def get_usage_report_summary(
    context: Context, at: op.GetUsageReportSummary
) -> Whole | Response:
    """Tells how many requests the installation answered, by month; as text, if the client accepts only that."""
    counts = context.backend.request_counts
    if counts is None:
        raise ApiError(404, "usage report is not enabled", reason="NOT_ENABLED")
    context.require(Action.READ_QUOTAS, QUOTAS)
    await counts.flush()
    found = await context.graveler.get_request_counts(context.read())
    reports = []
    for each in found.months:
        year, _, month = each.month.partition("-")
        reports.append(schemas.UsageReport(year=int(year), month=int(month), count=each.count))
    if context.request.headers.get("accept") == "text/plain":
        lines = [f"Usage for installation ID: {found.installation_id}\n"]
        lines += [f"{each.year}-{each.month:02}: {each.count:12}\n" for each in reports]
        return Response("".join(lines), media_type="text/plain")
    report = schemas.InstallationUsageReport(installation_id=found.installation_id, reports=reports)
    return Whole(200, JSON_LINES, msgspec.json.encode(report))


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
