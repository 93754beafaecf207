"""Opens an S3 store: makes the clients, and checks immediately that the server is suitable.

The check writes, reads, lists and removes an object of its own. It finds problems that would otherwise
appear later: a missing bucket, credentials that may read but not write, a wrong region, a server
without conditional writes.
"""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

import boto3
import botocore.config
import botocore.session
import structlog
from botocore.exceptions import BotoCoreError
from obstore.store import S3Store

from tarn.block.s3.checking import ServerCheck
from tarn.block.s3.faults import CallError, Failure
from tarn.block.s3.names import namespace_of
from tarn.block.s3.objects import Abilities, Objects
from tarn.block.s3.retrying import Retrying
from tarn.block.s3.settings import S3Limits, S3Settings
from tarn.block.s3.store import S3BlockStore
from tarn.block.s3.wire import Wire
from tarn.core.clock import Clock
from tarn.core.errors import Kind, Reason, TarnError

if TYPE_CHECKING:
    from collections.abc import Callable

    from obstore.store import ClientConfig, S3Config, S3Credential

__all__ = ["open_s3"]

_THREADS_MAX: Final = 256
_BYTES_PER_SECOND_MIN: Final = 1 << 20
"""Speed of the slowest transfer that obstore waits for, bytes per second; see `Retrying`."""
_CREDENTIALS_SECONDS: Final = 300
"""Seconds for which obstore may use credentials; boto3 renews them in time."""

_log = structlog.get_logger()

_SETTINGS: Final = {
    Failure.NO_BUCKET: "blockstore.default_namespace_prefix names a bucket that does not exist",
    Failure.REFUSED: "check blockstore.s3.credentials and the permissions of docs/operate/blockstores.md",
    Failure.REGION: "blockstore.s3.region is not the bucket's",
    Failure.BUSY: "check blockstore.s3.endpoint",
}


async def open_s3(
    settings: S3Settings,
    *,
    clock: Clock,
    chance: random.Random,
    limits: S3Limits | None = None,
) -> S3BlockStore:
    """Opens a store; the caller closes it.

    Args:
        settings: the server and its credentials.
        clock: measures deadlines.
        chance: makes stamps and jitter; must not repeat from process to process.
        limits: the limits of this process.

    Raises:
        TarnError: the server cannot be used; the message gives the reason and the setting to check.
    """
    limits = limits or S3Limits()
    retrying = Retrying(limits, clock, chance)
    wire, abilities = await _checked_wire(settings, limits, retrying, chance)
    if not abilities.put_if_absent:
        _log.warning("object store has no conditional writes", namespace=settings.namespace)
    objects = Objects(wire, retrying, abilities, limits, chance)

    async def reconnect(changed: S3Settings) -> None:
        wire.adopt((await _checked_wire(changed, limits, retrying, chance))[0])

    return S3BlockStore(wire, objects, settings, reconnect)


async def _checked_wire(
    settings: S3Settings, limits: S3Limits, retrying: Retrying, chance: random.Random
) -> tuple[Wire, Abilities]:
    """Returns the clients of a server that can be used with its credentials, and its optional features.

    Raises:
        TarnError: as `open_s3`.
    """
    ns = namespace_of(settings.namespace)
    try:
        session = _session(settings)
        buckets = _Buckets(session, settings, limits)
        wire = Wire(_boto(session, settings, limits), buckets, _threads(limits))
    except (BotoCoreError, OSError, ValueError) as error:  # OSError: the file of the authorities
        text = f"cannot open the block store {settings.namespace}: {error}"
        raise TarnError(Kind.INVALID, Reason.INVALID_ARGUMENT, text) from error
    stamp = chance.randbytes(16).hex()
    probe = ns.own(f"probe/{stamp}")
    try:
        abilities = await _checked(ServerCheck(wire, retrying, probe, stamp), settings)
    except BaseException:
        await wire.close()
        raise
    return wire, abilities


def _threads(limits: S3Limits) -> int:
    return min(limits.requests, _THREADS_MAX)


def _session(settings: S3Settings) -> Any:  # noqa: ANN401 - boto3 has no types
    core = botocore.session.Session(profile=settings.profile)
    if settings.credentials_file is not None:
        core.set_config_variable("credentials_file", str(settings.credentials_file))
    if settings.access_key_id is not None:
        core.set_credentials(
            settings.access_key_id, settings.secret_access_key, settings.session_token
        )
    return boto3.session.Session(botocore_session=core)


def _boto(session: Any, settings: S3Settings, limits: S3Limits) -> Any:  # noqa: ANN401
    config = botocore.config.Config(
        signature_version="s3v4",  # presigned URLs have version 2 otherwise, which few servers take
        s3={
            "addressing_style": "path" if settings.path_style else "virtual",
            # The signature covers the bytes of a part: damaged parts are refused.
            "payload_signing_enabled": True,
        },
        # Checksums only where S3 requires them: other servers do not know the newer ones.
        request_checksum_calculation="when_required",
        response_checksum_validation="when_required",
        retries={"total_max_attempts": 1},  # `Retrying` repeats
        connect_timeout=limits.connect_seconds,
        read_timeout=limits.attempt_seconds,
        max_pool_connections=_threads(limits),
        tcp_keepalive=True,
    )
    verify = {} if settings.ca is None else {"verify": str(settings.ca)}
    return session.client(
        "s3",
        region_name=settings.region,
        endpoint_url=settings.endpoint,
        config=config,
        **verify,
    )


class _Buckets:
    """Makes the obstore of a bucket, with the credentials of the boto3 session."""

    def __init__(self, session: Any, settings: S3Settings, limits: S3Limits) -> None:  # noqa: ANN401
        self._session = session
        self._settings = settings
        self._client: ClientConfig = {
            "connect_timeout": timedelta(seconds=limits.connect_seconds),
            "timeout": timedelta(
                seconds=limits.attempt_seconds + limits.part_bytes / _BYTES_PER_SECOND_MIN
            ),
            "allow_http": (settings.endpoint or "").startswith("http://"),
        }
        if settings.ca is not None:
            self._client["root_certificate"] = settings.ca.read_bytes()

    def __call__(self, bucket: str) -> S3Store:
        settings = self._settings
        config: S3Config = {
            "region": settings.region,
            "virtual_hosted_style_request": not settings.path_style,
        }
        if settings.endpoint is not None:
            config["endpoint"] = _endpoint(settings, bucket)
        provider: Callable[[], S3Credential] | None = None
        if settings.access_key_id is not None:
            config["access_key_id"] = settings.access_key_id
            config["secret_access_key"] = settings.secret_access_key or ""
            if settings.session_token is not None:
                config["session_token"] = settings.session_token
        else:
            provider = self._credentials
        return S3Store(
            bucket,
            config=config,
            client_options=self._client,
            retry_config={"max_retries": 0},  # `Retrying` repeats
            credential_provider=provider,
        )

    def _credentials(self) -> S3Credential:
        """Called by obstore in its own thread; boto3 renews expiring credentials."""
        found = self._session.get_credentials()
        if found is None:
            raise ValueError("no AWS credentials are configured; set blockstore.s3.credentials")
        frozen = found.get_frozen_credentials()
        return {
            "access_key_id": frozen.access_key,
            "secret_access_key": frozen.secret_key,
            "token": frozen.token,
            "expires_at": datetime.now(UTC) + timedelta(seconds=_CREDENTIALS_SECONDS),  # noqa: TID251 - compared with obstore's own clock
        }


def _endpoint(settings: S3Settings, bucket: str) -> str:
    """Returns the endpoint in obstore's form: with the bucket in the host name, unless in path style."""
    endpoint = settings.endpoint or ""
    if settings.path_style:
        return endpoint
    url = urlsplit(endpoint)
    return f"{url.scheme}://{bucket}.{url.netloc}{url.path}"


async def _checked(check: ServerCheck, settings: S3Settings) -> Abilities:
    """Returns the server's optional features.

    Raises:
        TarnError: INVALID with the setting to check; UNAVAILABLE if the server does not answer.
    """
    doing = f"open the block store {settings.namespace}"
    try:
        return await check.run()
    except CallError as fault:
        advice = _SETTINGS.get(fault.failure, "")
        text = f"cannot {doing} at {settings.endpoint or 'AWS'}: {fault}"
        raise TarnError(
            Kind.INVALID, Reason.INVALID_ARGUMENT, f"{text}; {advice}".rstrip("; ")
        ) from fault
    except TarnError as error:
        advice = _SETTINGS[Failure.BUSY]
        raise TarnError(
            error.kind, error.reason, f"cannot {doing}: {error.message}; {advice}"
        ) from error
