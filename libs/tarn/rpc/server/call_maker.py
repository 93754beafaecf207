"""Makes the calls that unary rpcs and operations of streams serve, from what their headers say."""

from __future__ import annotations

import re

from tarn.core.clock import Clock, IdSource
from tarn.rpc.wire.call import Call

__all__ = ["CallMaker"]

_REQUEST_ID = re.compile(r"[\x21-\x7e]{1,128}")


class CallMaker:
    """Makes calls within the limits of a server.

    Args:
        clock: of deadlines.
        ids: make the request ids that a header lacks.
        timeout_default_s: of calls that state none.
        timeout_max_s: the longest.
    """

    def __init__(
        self, clock: Clock, ids: IdSource, timeout_default_s: float, timeout_max_s: float
    ) -> None:
        self._clock = clock
        self._ids = ids
        self._timeout_default_s = timeout_default_s
        self._timeout_max_s = timeout_max_s

    def make(
        self,
        request_id: str,
        caller_token: str,
        timeout_s: float,
        names: frozenset[str],
        service_token: str,
        bucket: str,
    ) -> Call:
        """Returns a call; replaces a request id that is not a plain short word. A time of 0 means the default."""
        if not _REQUEST_ID.fullmatch(request_id):
            request_id = self._ids.nonce().hex()
        timeout = min(timeout_s or self._timeout_default_s, self._timeout_max_s)
        deadline = self._clock.monotonic() + timeout
        return Call(request_id, caller_token, deadline, names, service_token, bucket)
