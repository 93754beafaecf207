"""The facts that are collected about a request while it is served: for the access log, metrics and the audit log."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tarn.core.quota import QuotaKind
from tarn.telemetry.tracing import RequestSpan
from tarn_gateway.operation import Operation

__all__ = ["Trace"]


class Trace:
    """Facts about a request, each recorded as soon as the handler knows it.

    `view` is the name of the bucket view, as it was sent; empty if the bucket is a repository. `outcomes` is the list
    of the same name of the `S3Request`. `session` is the id of the session key that was issued. `throttled_by` is the
    limit of the rate that refused it.
    `on_end` is called when the request has ended.
    `queue_s` are seconds for which the request waited for its turn.
    `cors` are the headers that tell a browser about the answer, whatever it is.

    What is not known yet is an attribute of the class: most facts of most requests never differ from it.
    """

    operation: Operation | None = None
    repository = ""
    view = ""
    session = ""
    ref = ""
    path = ""
    user = ""
    access_key_id = ""
    outcomes: Sequence[tuple[str, str]] = ()
    code = ""
    cors: Sequence[tuple[str, str]] = ()
    on_end: Callable[[], None] | None = None
    span: RequestSpan | None = None
    throttled_by: tuple[QuotaKind, str] | None = None
    auth_s = 0.0
    perform_s = 0.0
    queue_s = 0.0

    @property
    def operation_name(self) -> str:
        """The operation's name; empty until the router has determined it."""
        return "" if self.operation is None else self.operation.name
