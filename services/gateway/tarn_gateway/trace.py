"""The facts that are collected about a request while it is served: for the access log, metrics and the audit log."""

from __future__ import annotations

from collections.abc import Callable

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
    """

    __slots__ = (
        "access_key_id",
        "auth_s",
        "code",
        "cors",
        "on_end",
        "operation",
        "outcomes",
        "path",
        "perform_s",
        "queue_s",
        "ref",
        "repository",
        "session",
        "span",
        "throttled_by",
        "user",
        "view",
    )

    def __init__(self) -> None:
        self.operation: Operation | None = None
        self.repository = ""
        self.view = ""
        self.session = ""
        self.ref = ""
        self.path = ""
        self.user = ""
        self.access_key_id = ""
        self.outcomes: list[tuple[str, str]] = []
        self.code = ""
        self.cors: list[tuple[str, str]] = []
        self.on_end: Callable[[], None] | None = None
        self.span: RequestSpan | None = None
        self.throttled_by: tuple[QuotaKind, str] | None = None
        self.auth_s = 0.0
        self.perform_s = 0.0
        self.queue_s = 0.0

    @property
    def operation_name(self) -> str:
        """The operation's name; empty until the router has determined it."""
        return "" if self.operation is None else self.operation.name
