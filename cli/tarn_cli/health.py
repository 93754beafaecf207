"""Asks a service on this machine whether it serves: `tarn-health`, for the health checks of containers.

The service answers at `rpc.health_address`. Kubernetes asks it over gRPC without this command.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Mapping, Sequence

import grpc
from grpc_health.v1 import health_pb2

__all__ = ["check", "main"]

ADDRESS = "TARN_RPC_HEALTH_ADDRESS"
"""The variable of `rpc.health_address`."""

_LOOPBACK = {"0.0.0.0": "127.0.0.1", "": "127.0.0.1", "[::]": "[::1]"}  # noqa: S104 - it is never bound


def check(address: str, service: str, timeout_s: float) -> str | None:
    """Asks for the health of a service; returns why it is not healthy, None if it is.

    Args:
        address: `host:port` that the process listens on. For all addresses of the machine, the loopback is asked.
        service: empty for readiness, `live` for the process.
        timeout_s: how long to wait for the answer.
    """
    host, _, port = address.rpartition(":")
    target = f"{_LOOPBACK.get(host, host)}:{port}"
    # A proxy of the environment is for other machines.
    with grpc.insecure_channel(target, options=[("grpc.enable_http_proxy", 0)]) as channel:
        request = health_pb2.HealthCheckRequest(service=service)
        ask = channel.unary_unary(
            "/grpc.health.v1.Health/Check",
            request_serializer=health_pb2.HealthCheckRequest.SerializeToString,
            response_deserializer=health_pb2.HealthCheckResponse.FromString,
        )
        try:
            answer = ask(request, timeout=timeout_s)
        except grpc.RpcError as error:
            if error.code() is grpc.StatusCode.DEADLINE_EXCEEDED:
                return f"no answer from {target} within {timeout_s:g} s"
            return f"{target} does not answer: {error.details()}"
    if answer.status == health_pb2.HealthCheckResponse.SERVING:
        return None
    status = health_pb2.HealthCheckResponse.ServingStatus.Name(answer.status)
    return f"{target} answers {status}: it starts, or it was asked to stop"


def main(arguments: Sequence[str] | None = None, environ: Mapping[str, str] = os.environ) -> int:
    """Returns 0 if the service serves; otherwise says why on standard error, and returns 1."""
    parser = argparse.ArgumentParser(
        prog="tarn-health",
        description="Asks a Tarn service on this machine whether it serves. Exit code 0: yes, 1: no.",
    )
    parser.add_argument(
        "--address",
        default=environ.get(ADDRESS, ""),
        metavar="HOST:PORT",
        help=f"rpc.health_address of the service; default: the variable {ADDRESS}",
    )
    parser.add_argument(
        "--service", default="", help="'live' asks for the process, without it for readiness"
    )
    parser.add_argument("--timeout", type=float, default=5, metavar="SECONDS", help="default: 5")
    options = parser.parse_args(arguments)
    if options.address:
        problem = check(options.address, options.service, options.timeout)
    else:
        problem = f"no address: set rpc.health_address by {ADDRESS}, or give --address"
    if problem is None:
        return 0
    sys.stderr.write(f"tarn-health: {problem}\n")
    return 1


if __name__ == "__main__":
    sys.exit(main())
