"""The sections about rpcs between services; see `tarn.config.sections`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tarn.config.setting import setting
from tarn.config.values import Number, Sort, Within

__all__ = ["Rpc", "RpcTls"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RpcTls:
    """Mutual TLS between services; all three or none is set."""

    ca: Path | None = setting(
        None, "Authorities that must have signed the other services' certificates, PEM."
    )
    cert: Path | None = setting(None, "Certificate of this service, PEM.")
    key: Path | None = setting(None, "Private key of this service, PEM.")
    gateway_name: str = setting(
        "gateway",
        "DNS name in the certificates of gateways. Auth gives signing keys to the holders of such a certificate, so no "
        "certificate of a user may have it.",
    )
    graveler_name: str = setting(
        "graveler", "DNS name in the certificates of graveler, which auth tells whose a token is."
    )
    compactor_name: str = setting(
        "compactor", "DNS name in the certificates of compactors, which get a compactor's token."
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Rpc:
    """How services accept rpcs."""

    listen_address: str | None = setting(
        None,
        "Address on which this service accepts rpcs; its first address below if not given.",
        Sort.ADDRESS,
    )
    replica_address: str | None = setting(
        None,
        "A further address on which this process accepts rpcs. `tarn up` sets it for each of its workers, which share "
        "`listen_address`, so that the compactor can reach every one of them.",
        Sort.ADDRESS,
    )
    tls: RpcTls
    allow_plaintext: bool = setting(
        "false",
        "Lets a service accept rpcs from other machines without TLS. Tokens and signing keys then cross the network as "
        "they are: use it only behind a mesh that encrypts. Gateways, graveler and compactors need "
        "`installation.secret` then, to prove to auth that they are services.",
    )
    reflection: bool = setting(
        "false",
        "Lets any client list the rpcs and their messages, for tools such as grpcurl (docs/user/grpc.md).",
    )
    health_address: str | None = setting(
        None,
        "A further address, without TLS, on which this process answers gRPC health checks and nothing else, for the "
        "probes of Kubernetes. The empty service name stands for readiness: not before the start is complete, not "
        "after the process was asked to stop. The service `live` stands for the process, whatever its stores do. "
        "`tarn up` refuses the key, because it runs several processes.",
        Sort.ADDRESS,
    )
    concurrent_max: int = setting(
        "1024",
        "Rpcs of authenticated callers that a process serves at once, streams included; more are refused.",
        Number(128, 65_536),
    )
    unauthenticated_max: int = setting(
        "64",
        "The same for callers that have not shown a valid token yet: who logs in, and the first call with a token "
        "until it is accepted. When all are taken, a new one takes the place of one that waits for its client. Each "
        "may hold the memory of one message, 4 MiB.",
        Number(8, 4096),
    )
    operations_max: int = setting(
        "16384",
        "Operations of streams, such as reads and writes of entries, that a process works on at once; streams wait "
        "above this number. Callers without a valid token have an eighth of it apart.",
        Number(4096, 1_000_000),
    )
    operations_size_bytes: int = setting(
        "256MiB",
        "Memory for the messages that brought these operations, and for requests above 64 KiB; streams wait, and "
        "requests are refused, above it. Callers without a valid token have an eighth of it apart.",
        Within(Sort.SIZE, "4MiB", "64GiB"),
    )
    drain_timeout_ms: int = setting(
        "25s",
        "How long a process that is asked to stop waits for its running requests; then it ends them. Longer than the "
        "longest commit, if no commit may be cut short; shorter than the time after which the process is killed.",
        Within(Sort.DURATION, "0s", "1h"),
    )
