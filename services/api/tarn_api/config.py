"""The settings of the REST endpoint, from the configuration of the installation."""

from __future__ import annotations

from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path

from tarn.config import Config
from tarn.rpc.client.addresses import host_and_port
from tarn_api.bodies import BodyBounds
from tarn_api.context import S3Endpoint
from tarn_api.feed.feeds import FeedLimits
from tarn_api.http import HttpBounds

__all__ = ["ApiSettings", "settings_of"]


@dataclass(frozen=True, slots=True)
class ApiSettings:
    """Settings of the REST endpoint.

    Attributes:
        host, port: the address to listen on; port 0 takes a free one.
        reuse_port: whether several processes share the port.
        access_log: whether to log every request, not only server errors.
        requests_max: most requests at once.
        failed_sign_ins: of one address in a second.
        presigned_links: whether clients get URLs of the bucket.
        processes: gateways and REST endpoints among which the rates of quotas are divided.
        namespace_prefix: begins the storage namespace of each repository.
        version: of Tarn.
        bounds: limits of the HTTP server.
        bodies: limits of the bodies of objects.
        s3: where S3 clients reach the installation.
        feeds: limits of streams of events.
        audit_folder: of the audit log's files on this machine; None: there are none.
        reports_requests: whether requests are counted by month.
    """

    host: str = "127.0.0.1"
    port: int = 8001
    reuse_port: bool = False
    access_log: bool = True
    requests_max: int = 256
    failed_sign_ins: int = 20
    presigned_links: bool = True
    processes: int = 1
    namespace_prefix: str = "local://"
    version: str = ""
    bounds: HttpBounds = field(default_factory=HttpBounds)
    bodies: BodyBounds = field(default_factory=BodyBounds)
    s3: S3Endpoint = field(default_factory=S3Endpoint)
    feeds: FeedLimits = field(default_factory=FeedLimits)
    audit_folder: Path | None = None
    reports_requests: bool = False


def settings_of(config: Config, *, reuse_port: bool = False) -> ApiSettings:
    """Returns the settings.

    Args:
        config: the installation's configuration.
        reuse_port: whether several processes of this machine listen on one address.
    """
    section, s3 = config.api, config.gateways.s3
    host, port = host_and_port(section.listen_address)
    return ApiSettings(
        host=host,
        port=port,
        reuse_port=reuse_port,
        access_log=section.access_log,
        requests_max=section.requests,
        failed_sign_ins=section.failed_sign_ins,
        presigned_links=section.presigned_links,
        processes=config.quotas.gateways,
        namespace_prefix=config.blockstore.namespace_prefix,
        version=version("tarn"),
        bounds=HttpBounds(connections_max=config.limits.connections),
        bodies=BodyBounds(
            bytes_max=config.limits.body_size_bytes, rate_min_bytes=config.limits.body_rate_bytes
        ),
        s3=S3Endpoint(
            section.s3_url.rstrip("/"),
            int(s3.listen_address.rpartition(":")[2]),
            s3.tls.cert is not None,
            s3.region,
        ),
        reports_requests=config.usage_report.enabled,
        audit_folder=config.audit.folder if config.audit.output == "file" else None,
    )
