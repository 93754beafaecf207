"""The S3 requests of one client: signed, sent once, on a connection that is replaced now and then."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import quote, urlsplit

from botocore.auth import S3SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

from chaos.wire import Answer, BrokenError, Wire, Wires

__all__ = ["LostError", "S3Client", "Target"]

_REGION = "us-east-1"
_REFUSED_PAUSE_SECONDS = 0.02


@dataclass(frozen=True, slots=True)
class Target:
    """An installation, as clients see it.

    Attributes:
        endpoints: S3 URLs, of one node or of several.
        servers: `host:port` of graveler's rpc.
        auth_server: `host:port` of auth's rpc.
        repository: the repository to work on.
        branches: its branches.
    """

    endpoints: tuple[str, ...]
    servers: tuple[str, ...]
    auth_server: str
    access_key_id: str
    secret_access_key: str = field(repr=False)
    repository: str = "chaos"
    branches: tuple[str, ...] = ("main", "dev")


class LostError(Exception):
    """No answer came: the outcome is unknown."""


class S3Client:
    """Sends one request at a time and never repeats one.

    Args:
        patience_seconds: time after which it hangs up.
        rides: requests on one connection, on average. New connections reach restarted workers.
    """

    def __init__(
        self,
        target: Target,
        wires: Wires,
        rng: random.Random,
        *,
        patience_seconds: float,
        rides: int,
    ) -> None:
        self._target = target
        self.repository = target.repository
        self._wires = wires
        self._random = rng
        self.patience_seconds = patience_seconds
        self._rides = rides
        self._wire: Wire | None = None
        self._endpoint = ""
        credentials = Credentials(target.access_key_id, target.secret_access_key)
        self._signer = S3SigV4Auth(credentials, "s3", _REGION)

    async def ready(self) -> None:
        """Returns when it is connected, however long that takes; a refused connection is not a request."""
        if (
            self._wire is not None
            and self._wire.is_usable
            and self._random.random() > 1 / self._rides
        ):
            return
        self.close()
        while self._wire is None:
            self._endpoint = self._random.choice(self._target.endpoints)
            where = urlsplit(self._endpoint)
            assert where.hostname is not None, "an endpoint is a URL"
            assert where.port is not None, "with a port"
            try:
                async with asyncio.timeout(self.patience_seconds):
                    self._wire = await self._wires.open(where.hostname, where.port)
            except OSError:
                await asyncio.sleep(_REFUSED_PAUSE_SECONDS)

    async def ask(
        self,
        method: str,
        key: str,
        query: Mapping[str, str] | None = None,
        *,
        headers: Mapping[str, str] | None = None,
        body: bytes = b"",
        patience_seconds: float | None = None,
    ) -> Answer:
        """Sends a request on the connection that `ready` opened; a key begins with its ref.

        Raises:
            LostError: the connection broke, or the answer took too long.
        """
        wire = self._wire
        assert wire is not None, "ready comes first"
        head = self._head(method, key, query or {}, headers or {}, body)
        try:
            async with asyncio.timeout(patience_seconds or self.patience_seconds):
                return await wire.ask(method, head, body)
        except BrokenError as error:
            self.close()
            raise LostError("connection lost") from error
        except TimeoutError as error:
            self.close()
            raise LostError("hung up") from error

    def _head(
        self,
        method: str,
        key: str,
        query: Mapping[str, str],
        headers: Mapping[str, str],
        body: bytes,
    ) -> bytes:
        path = "/" + quote(f"{self._target.repository}/{key}" if key else self._target.repository)
        if query:
            pairs = sorted((quote(k, safe=""), quote(v, safe="")) for k, v in query.items())
            path += "?" + "&".join(f"{name}={value}" for name, value in pairs)
        request = AWSRequest(method, self._endpoint + path, headers=dict(headers), data=body)
        self._signer.add_auth(request)
        lines = [f"{method} {path} HTTP/1.1", f"host: {urlsplit(self._endpoint).netloc}"]
        lines += [f"{name}: {value}" for name, value in request.headers.items()]
        lines += [f"content-length: {len(body)}", "", ""]
        return "\r\n".join(lines).encode()

    def close(self) -> None:
        """Hangs up; idempotent."""
        if self._wire is not None:
            self._wires.close(self._wire)
            self._wire = None
