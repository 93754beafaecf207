"""Logs: one JSON object (or one line of text) per event, with secrets removed and request ids added.

An event is a constant lower-case phrase; variable data are keys. `REQUEST_ID` is added to every line that
is written while a request is served. Libraries that use the standard `logging` write through the same
processors.
"""

from __future__ import annotations

import json
import logging
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path
from typing import TextIO

import msgspec
import structlog
from structlog.typing import EventDict, Processor, WrappedLogger

from tarn.rpc.process.log_lines import LogLines
from tarn.rpc.process.system import SystemClock
from tarn.telemetry.tracing import TRACEPARENT, trace_id

__all__ = [
    "EventLines",
    "LineLogger",
    "LogConfig",
    "REQUEST_ID",
    "add_request_id",
    "logging_to",
    "redact",
]

REQUEST_ID: ContextVar[str] = ContextVar("tarn_request_id", default="")
"""The request being served. A separate variable, because setting it costs a tenth of structlog's bind."""

REQUEST_KEYS = (
    *("operation", "method", "repo", "ref", "path", "user", "code", "status", "duration_ms"),
    *("request_id", "bytes_in", "bytes_out", "remote"),
)
"""The keys of the access log's lines, in their order."""

REDACTED = "[redacted]"

_SECRET = re.compile(
    r"authorization|cookie|secret|signature|signing_key|token|password", re.IGNORECASE
)
# Staging tokens are partitions, not secrets (docs/glossary.md): operators need to see them.
_NO_SECRET = frozenset({"token_id", "staging_token", "sealed_token", "sealed_tokens"})
_DEPTH_MAX = 8
_PLAIN = frozenset({str, int, float, bool, type(None), bytes})


@dataclass(frozen=True, slots=True)
class LogConfig:
    """Level, format and destination of log lines.

    Attributes:
        level: `debug`, `info`, `warning` or `error`.
        format: `json` or `text`.
        output: `-` for standard output, `=` for standard error, else a file to append to.
    """

    level: str = "info"
    format: str = "json"
    output: str = "="

    def __post_init__(self) -> None:
        if self.level not in {"debug", "info", "warning", "error"}:
            raise ValueError(f"log level {self.level!r} is none of debug, info, warning, error")
        if self.format not in {"json", "text"}:
            raise ValueError(f"log format {self.format!r} is neither json nor text")


class LineLogger(structlog.BoundLoggerBase):
    """Writes the one line of a request as the configured loggers do, at a third of their cost: they
    pass its values as keywords, which copies them in each call."""

    @classmethod
    def bound(cls) -> LineLogger:
        """Returns a logger for the current configuration."""
        logger: LineLogger = structlog.wrap_logger(None, wrapper_class=cls).bind()
        return logger

    def write(self, level: str, event: str, values: EventDict) -> None:
        """Writes a line, regardless of the configured level.

        Args:
            level: `info`, `warning` or `error`.
            event: a constant phrase.
            values: the line's other keys; the processors modify it.
        """
        values["event"] = event
        line: object = values
        try:
            for processor in self._processors:
                line = processor(self._logger, level, line)  # type: ignore[arg-type]  # only the last one's is none
        except structlog.DropEvent:
            return
        getattr(self._logger, level)(line)

    def lines_of(self, event: str, *keys: str) -> EventLines:
        """Returns what writes the lines of an event that always has these keys, among them `request_id`."""
        return EventLines(self, event, keys, self._processors, self._logger)


class EventLines:
    """Writes the lines of one event with always the same keys, as `LineLogger.write` does. Lines in JSON are encoded
    from their values, without a dict, and their keys are judged once: a fifth of the instructions.

    Made by `LineLogger.lines_of`.
    """

    def __init__(
        self,
        general: LineLogger,
        event: str,
        keys: tuple[str, ...],
        processors: Iterable[Processor],
        logger: WrappedLogger,
    ) -> None:
        assert "request_id" in keys, "the line of a request names it"
        self._general = general
        self._event = event
        self._keys = keys
        self._logger = logger
        self._stamp = _Stamp().text
        self._line_of: Callable[..., msgspec.Struct] | None = None
        (first, *others) = processors
        if isinstance(first, _JsonLine) and not others and not _any_secret(keys):
            self._line_of = msgspec.defstruct("Line", [*keys, "event", "level", "timestamp"])

    def write(self, level: str, *values: str | float | None) -> None:
        """Writes a line, regardless of the configured level.

        Args:
            level: `info`, `warning` or `error`.
            values: of the keys, in their order.
        """
        line_of = self._line_of
        if line_of is not None and not TRACEPARENT.get():
            try:
                line = _encode_plain(line_of(*values, self._event, level, self._stamp())).decode()
            except (UnicodeEncodeError, OverflowError):
                pass  # see `_json_of_plain`
            else:
                getattr(self._logger, level)(line)
                return
        self._general.write(level, self._event, dict(zip(self._keys, values, strict=True)))


@contextmanager
def logging_to(config: LogConfig) -> Iterator[LogLines]:
    """Configures structlog and `logging` for the block; restores the previous configuration after it.

    Yields the writer of the lines.
    """
    before = structlog.get_config()
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    with _opened(config.output) as stream:
        lines = LogLines(stream)
        _configure(config, stream, lines)
        try:
            yield lines
        finally:
            lines.flush()
            root.handlers[:], root.level = handlers, level
            structlog.configure(**before)


def redact(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    """Replaces the values of keys that look like secrets, at any depth."""
    # Every line passes through here, and nearly all have a known set of keys with plain values.
    if _PLAIN.issuperset(map(type, event.values())) and not _any_secret(tuple(event)):
        return event
    for key, value in event.items():
        if _looks_secret(key):
            event[key] = REDACTED
        elif type(value) not in _PLAIN:
            event[key] = _redacted(key, value, _DEPTH_MAX)
    return event


def add_request_id(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    """Adds the ids of the request being served, and of its trace if it is sampled, unless the line has them."""
    request_id = REQUEST_ID.get()
    if request_id:
        event.setdefault("request_id", request_id)
    if traced := trace_id():
        event.setdefault("trace_id", traced)
    return event


@lru_cache(maxsize=4096)
def _looks_secret(key: str) -> bool:
    return key not in _NO_SECRET and _SECRET.search(key) is not None


@lru_cache(maxsize=1024)
def _any_secret(keys: tuple[str, ...]) -> bool:
    return any(map(_looks_secret, keys))


def _redacted(key: object, value: object, depth: int) -> object:
    if isinstance(key, str) and _looks_secret(key):
        return REDACTED
    if depth and isinstance(value, dict):
        return {inner: _redacted(inner, part, depth - 1) for inner, part in value.items()}
    if depth and isinstance(value, list | tuple):
        return [_redacted("", part, depth - 1) for part in value]
    return value


@lru_cache(maxsize=8)
def _second(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S")


class _Stamp:
    """Adds the time; most lines of a busy process share a second, which is formatted once."""

    def __init__(self) -> None:
        self._now_us = SystemClock().now_us

    def __call__(self, _logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
        event["timestamp"] = self.text()
        return event

    def text(self) -> str:
        """Returns the time of now."""
        seconds, micros = divmod(self._now_us(), 1_000_000)
        return f"{_second(seconds)}.{micros:06d}Z"


class _JsonLine:
    """The processors of a line in JSON, as one.

    Nearly all lines have plain values, no secret and no exception. For these, the steps of the processors are done
    here at once.
    """

    def __init__(self, shared: list[Processor]) -> None:
        self._shared = shared
        self._stamp = _Stamp()

    def __call__(self, logger: WrappedLogger, method: str, event: EventDict) -> str:
        if (
            "exc_info" in event
            or method not in _LEVELS
            or not _PLAIN_IN_JSON.issuperset(map(type, event.values()))
            or _any_secret(tuple(event))
            or TRACEPARENT.get()
        ):
            return self.step_by_step(logger, method, event)
        if request_id := REQUEST_ID.get():
            event.setdefault("request_id", request_id)
        event["level"] = method
        event["timestamp"] = self._stamp.text()
        return _json_of_plain(event)

    def step_by_step(self, logger: WrappedLogger, method: str, event: EventDict) -> str:
        """Renders any line: each processor in its turn."""
        for processor in self._shared:
            event = processor(logger, method, event)  # type: ignore[assignment]  # only the last one's is none
        return _render_json(logger, method, event)


_LEVELS = frozenset({"debug", "info", "warning", "error", "critical"})
"""Names of methods that are those of levels, too."""

_encode = json.JSONEncoder(ensure_ascii=False, default=str, separators=(",", ":")).encode
# A quarter of the time. It is asked for values that both write alike only.
_encode_plain = msgspec.json.Encoder().encode
_PLAIN_IN_JSON = frozenset({str, int, float, bool, type(None)})


def _render_json(_logger: WrappedLogger, _method: str, event: EventDict) -> str:
    if _PLAIN_IN_JSON.issuperset(map(type, event.values())):
        return _json_of_plain(event)
    return _encode(event)


def _json_of_plain(event: EventDict) -> str:
    try:
        return _encode_plain(event).decode()
    except (UnicodeEncodeError, OverflowError):  # lone surrogates, and very large integers
        return _encode(event)


def _render_text(_logger: WrappedLogger, _method: str, event: EventDict) -> str:
    """`time level event key=value …`; strings that could be misread are quoted. A traceback follows."""
    trace = event.pop("exception", None)
    head = f"{event.pop('timestamp', '')} {event.pop('level', ''):<7} {event.pop('event', '')}"
    line = " ".join([head, *(f"{key}={_word(value)}" for key, value in event.items())])
    return line if trace is None else f"{line}\n{trace}"


def _word(value: object) -> str:
    if type(value) is str and value.isascii() and value.isprintable() and " " not in value:
        return value
    if isinstance(value, int | float):
        return str(value)
    text = _encode(value)
    return (
        text if text.isprintable() else json.dumps(value, default=str)
    )  # it may be read on a terminal


@contextmanager
def _opened(output: str) -> Iterator[TextIO]:
    if output == "-":
        yield sys.stdout
    elif output == "=":
        yield sys.stderr
    else:
        # The log lines flush it. A lone surrogate must not keep a line from being written.
        with Path(output).open("a", encoding="utf-8", errors="backslashreplace") as stream:
            yield stream


def _configure(config: LogConfig, stream: TextIO, lines: LogLines) -> None:
    level = logging.getLevelNamesMapping()[config.level.upper()]
    shared: list[Processor] = [
        add_request_id,
        structlog.processors.add_log_level,
        _Stamp(),
        redact,
        # Tracebacks never show local variables, as the prettier formatters do: those hold secrets.
        structlog.processors.format_exc_info,
    ]
    last: Processor = _render_json if config.format == "json" else _render_text
    structlog.configure(
        processors=[_JsonLine(shared)] if config.format == "json" else [*shared, last],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=lambda *_: lines,
        cache_logger_on_first_use=False,
    )
    handler = logging.StreamHandler(stream)
    strip = structlog.stdlib.ProcessorFormatter.remove_processors_meta
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=[structlog.stdlib.add_logger_name, *shared], processors=[strip, last]
        )
    )
    root = logging.getLogger()
    # Libraries chatter at info; their warnings are worth a line.
    root.handlers[:], root.level = [handler], max(level, logging.WARNING)
