"""The chain of chunk signatures of SigV4's streaming modes.

Each chunk's signature covers the previous one, and the first covers the request's. So chunks can be neither
omitted nor swapped. The last chunk is empty, and trailers have a signature of their own.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Iterable
from typing import Final

from tarn_gateway.s3error import S3Error, broken_chunks

__all__ = ["ChunkSignatures"]

_EMPTY: Final = hashlib.sha256(b"").hexdigest()
_EXTENSION: Final = re.compile(rb"chunk-signature=([!-~]{64})")
_SIGNATURE: Final = re.compile(r"[!-~]{64}")
"""What has the length of a signature is one, right or wrong; anything else has broken the framing."""


class ChunkSignatures:
    """Verifies the chunks of one body in order.

    `begin`, `update` and `finish` are pure computation over memory and may run in a thread.

    Args:
        seed: the request's signature.
        timestamp: the request's time.
        scope: the request's credential scope.
        signing_key: the key that verified the request.
    """

    __slots__ = ("_claimed", "_hash", "_middle", "_previous", "_signing_key")

    def __init__(self, seed: str, timestamp: str, scope: str, signing_key: bytes) -> None:
        self._previous = seed
        self._middle = f"{timestamp}\n{scope}\n"
        self._signing_key = signing_key
        self._hash: hashlib._Hash | None = None
        self._claimed = ""

    def begin(self, extension: bytes) -> None:
        """Begins a chunk, which ends the previous one.

        Args:
            extension: the text after the `;` of the size line.

        Raises:
            S3Error: IncompleteBody without a signature; SignatureDoesNotMatch for the previous chunk.
        """
        self._end_chunk()
        match = _EXTENSION.fullmatch(extension)
        if match is None:
            raise broken_chunks("a chunk does not begin with its size and chunk-signature")
        self._claimed = match[1].decode("ascii")
        self._hash = hashlib.sha256()

    def update(self, data: memoryview) -> None:
        """Adds data of the current chunk."""
        assert self._hash is not None, "data follows a chunk's head"
        self._hash.update(data)

    def finish(self) -> None:
        """Ends the last chunk.

        Raises:
            S3Error: SignatureDoesNotMatch if its signature is wrong.
        """
        self._end_chunk()

    def check_trailers(self, lines: Iterable[tuple[str, str]], claimed: str) -> None:
        """Verifies the signature of the trailers, after `finish`.

        Args:
            lines: `(lower-case name, value)` in the order received, without the signature itself.
            claimed: the value of x-amz-trailer-signature.

        Raises:
            S3Error: SignatureDoesNotMatch if the signature is wrong; IncompleteBody if it is none.
        """
        if not _SIGNATURE.fullmatch(claimed):
            raise broken_chunks("x-amz-trailer-signature does not have 64 digits")
        canonical = "".join(f"{name}:{value}\n" for name, value in lines)
        digest = hashlib.sha256(canonical.encode("latin-1")).hexdigest()
        text = f"AWS4-HMAC-SHA256-TRAILER\n{self._middle}{self._previous}\n{digest}"
        self._compare(text, claimed, "trailers'")

    def _end_chunk(self) -> None:
        if self._hash is None:
            return
        digest = self._hash.hexdigest()
        self._hash = None
        text = f"AWS4-HMAC-SHA256-PAYLOAD\n{self._middle}{self._previous}\n{_EMPTY}\n{digest}"
        self._compare(text, self._claimed, "chunk's")

    def _compare(self, text: str, claimed: str, whose: str) -> None:
        expected = hmac.digest(self._signing_key, text.encode(), "sha256").hex()
        if not hmac.compare_digest(expected, claimed):
            raise S3Error(
                "SignatureDoesNotMatch",
                f"The {whose} signature that we calculated differs from yours.",
                StringToSign=text,
                SignatureProvided=claimed,
            )
        self._previous = expected
