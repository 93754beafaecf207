"""The gateway's settings, from the configuration of the installation."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import inf

from tarn.config import Config
from tarn.rpc.client.addresses import host_and_port
from tarn_gateway.anonymous import AnonymousBounds
from tarn_gateway.backend import Bounds, BucketMode
from tarn_gateway.bodies.payload import PayloadPolicy
from tarn_gateway.http import HttpLimits

__all__ = ["GatewaySettings", "settings_of"]


@dataclass(frozen=True, slots=True)
class GatewaySettings:
    """Settings of the S3 endpoint.

    Attributes:
        host, port: the address to listen on; port 0 takes a free one.
        reuse_port: whether several processes share the port (one gateway per core).
        region: returned to clients that ask, and the only region accepted in signatures.
        domains: lower-case host names whose subdomains are buckets (virtual-host addressing); requests
            to other host names use path style.
        sigv2: whether Signature Version 2 is accepted beside version 4.
        bucket_mode: what CreateBucket makes.
        access_log: whether to log every request, not only server errors.
        slow_operation_s: a request that takes longer is logged with its phases.
        limits: limits of the HTTP server.
        bounds: limits of operations.
        gateways: gateways among which the rates of quotas are divided.
        anonymous: limits of requests without a signature.
        reports_requests: whether graveler is told how many requests were answered.
    """

    host: str = "127.0.0.1"
    port: int = 8000
    reuse_port: bool = False
    region: str = "us-east-1"
    domains: tuple[str, ...] = ()
    sigv2: bool = False
    bucket_mode: BucketMode = "view"
    access_log: bool = True
    slow_operation_s: float = inf
    limits: HttpLimits = field(default_factory=HttpLimits)
    bounds: Bounds = field(default_factory=Bounds)
    gateways: int = 1
    anonymous: AnonymousBounds = field(default_factory=AnonymousBounds)
    reports_requests: bool = False

    def __post_init__(self) -> None:
        if not 0 <= self.port <= 65_535:
            raise ValueError(f"gateway port {self.port} is not 0 to 65535")
        if not self.region:
            raise ValueError("the gateway needs a region, such as us-east-1")
        if bad := [name for name in self.domains if name != name.lower() or not name]:
            raise ValueError(f"gateway domain {bad[0]!r} must be lower case and not empty")


def settings_of(config: Config, *, reuse_port: bool = False) -> GatewaySettings:
    """Returns the gateway's settings.

    Args:
        config: the installation's configuration.
        reuse_port: whether several processes of this machine listen on one address.
    """
    section = config.gateways.s3
    host, port = host_and_port(section.listen_address)
    return GatewaySettings(
        host=host,
        port=port,
        reuse_port=reuse_port,
        region=section.region,
        sigv2=section.sigv2,
        bucket_mode=section.bucket_mode,
        access_log=section.access_log,
        slow_operation_s=config.telemetry.slow_operation_ms / 1000,
        domains=(section.domain_name.lower(),) if section.domain_name else (),
        gateways=config.quotas.gateways,
        reports_requests=config.usage_report.enabled,
        anonymous=AnonymousBounds(
            config.limits.anonymous_requests / config.quotas.gateways,
            config.limits.anonymous_address_requests / config.quotas.gateways,
            max(1, config.limits.connections // 4),
        ),
        limits=HttpLimits(
            connections_max=config.limits.connections,
            unidentified_max=max(1, config.limits.connections // 2),
            body_rate_min_bytes=config.limits.body_rate_bytes,
        ),
        bounds=Bounds(
            payload=PayloadPolicy(object_bytes_max=config.limits.body_size_bytes),
            document_memory_bytes=config.limits.document_memory_bytes,
        ),
    )
