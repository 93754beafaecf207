from __future__ import annotations

import io
import json
import logging
import re
from pathlib import Path

import pytest
import structlog
from hypothesis import given
from hypothesis import strategies as st

from tarn.rpc.process.log import (
    REQUEST_ID,
    REQUEST_KEYS,
    LineLogger,
    LogConfig,
    _JsonLine,
    _render_json,
    logging_to,
)


def lines_of(path: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.mark.parametrize(
    "key",
    [
        "authorization",
        "Authorization",
        "secret_access_key",
        "x_amz_signature",
        "caller_token",
        "X-Amz-Security-Token",
        "password",
        "signing_key",
        "cookie",
    ],
)
def test_secret_never_reaches_the_log(key: str, tmp_path: Path) -> None:
    output = tmp_path / "log"
    with logging_to(LogConfig(output=str(output))):
        log = structlog.get_logger()
        log.info("event", **{key: "hunter2"})
        log.info("event", headers={"a": [{key: "hunter2"}]})

    assert "hunter2" not in output.read_text()
    assert lines_of(output)[0][key] == "[redacted]"


def test_names_of_staging_tokens_are_no_secret(tmp_path: Path) -> None:
    output = tmp_path / "log"
    with logging_to(LogConfig(output=str(output))):
        structlog.get_logger().info("sealed", staging_token="t1", sealed_tokens=["t0"])

    assert lines_of(output)[0]["staging_token"] == "t1"
    assert lines_of(output)[0]["sealed_tokens"] == ["t0"]


def test_line_carries_level_time_event_and_request_id(tmp_path: Path) -> None:
    output = tmp_path / "log"
    outside = REQUEST_ID.set("r1")
    try:
        with logging_to(LogConfig(output=str(output))):
            structlog.get_logger().warning("went wrong", repo="lake")
            structlog.get_logger().warning("went wrong", request_id="own")
    finally:
        REQUEST_ID.reset(outside)

    first, second = lines_of(output)
    assert (first["event"], first["level"], first["repo"]) == ("went wrong", "warning", "lake")
    assert first["request_id"] == "r1"
    assert second["request_id"] == "own"
    assert str(first["timestamp"]).endswith("Z")


@pytest.mark.parametrize("form", ["json", "text"])
def test_traceback_shows_no_local_variables(form: str, tmp_path: Path) -> None:
    output = tmp_path / "log"
    with logging_to(LogConfig(output=str(output), format=form)):
        hidden = "hunter2".upper()
        try:
            raise ZeroDivisionError
        except ZeroDivisionError:
            structlog.get_logger().exception("failed")
        assert hidden

    text = output.read_text()
    assert "ZeroDivisionError" in text
    assert "HUNTER2" not in text


def test_lines_of_libraries_take_the_same_way(tmp_path: Path) -> None:
    output = tmp_path / "log"
    with logging_to(LogConfig(output=str(output))):
        logging.getLogger("cassandra").warning("node %s is down", "n1", extra={"a": 1})
        logging.getLogger("cassandra").info("chatter")

    (line,) = lines_of(output)
    assert (line["event"], line["logger"], line["level"]) == (
        "node n1 is down",
        "cassandra",
        "warning",
    )


def test_lines_below_the_level_are_not_written(tmp_path: Path) -> None:
    output = tmp_path / "log"
    with logging_to(LogConfig(output=str(output), level="warning")):
        structlog.get_logger().info("quiet")
        structlog.get_logger().error("loud")

    assert [line["event"] for line in lines_of(output)] == ["loud"]


@pytest.mark.parametrize("form", ["json", "text"])
def test_line_of_a_request_reads_like_any_other(form: str, tmp_path: Path) -> None:
    output = tmp_path / "log"
    with logging_to(LogConfig(output=str(output), format=form)):
        structlog.get_logger().info("s3", path="a b", status=200, token="hunter2")
        LineLogger.bound().write("info", "s3", {"path": "a b", "status": 200, "token": "hunter2"})

    first, second = (
        line.replace(stamp, "")
        for line in output.read_text().splitlines()
        for stamp in re.findall(r"\d{4}-[0-9T:.-]+Z", line)
    )
    assert first == second
    assert "hunter2" not in first


def test_the_previous_set_up_is_restored(tmp_path: Path) -> None:
    before = structlog.get_config()["processors"]
    with logging_to(LogConfig(output=str(tmp_path / "log"))):
        assert structlog.get_config()["processors"] is not before
    assert structlog.get_config()["processors"] is before


@pytest.mark.parametrize("wrong", [{"level": "loud"}, {"format": "xml"}])
def test_unknown_setting_is_refused(wrong: dict[str, str]) -> None:
    with pytest.raises(ValueError, match="log"):
        LogConfig(**wrong)


def test_a_line_of_text_cannot_drive_the_terminal_of_its_reader(tmp_path: Path) -> None:
    output = tmp_path / "log"
    with logging_to(LogConfig(format="text", output=str(output))):
        structlog.get_logger().warning("seen", path="a\nb\x1b[2J\x9b31m\u202e", name="ä")
    line = output.read_text().rstrip("\n")
    assert line.isprintable()
    assert line.endswith(r'path="a\nb\u001b[2J\u009b31m\u202e" name="ä"')


VALUES = (
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
)


@given(st.dictionaries(st.text(), VALUES | st.text()))
def test_plain_values_are_written_as_all_others(event: dict[str, object]) -> None:
    """Two encoders write lines: the fast one for plain values."""
    plain = _render_json(None, "info", dict(event))
    general = _render_json(None, "info", {**event, "of any type": [event]})

    assert json.loads(plain) == event
    assert json.loads(general) == {**event, "of any type": [event]}


def test_the_name_of_a_file_that_is_no_text_is_logged(tmp_path: Path) -> None:
    output = tmp_path / "log"
    with logging_to(LogConfig(output=str(output))):
        structlog.get_logger().info("read", path="a\udcffb")
        structlog.get_logger().info("read", path="after")

    assert [line["path"] for line in lines_of(output)] == ["a\udcffb", "after"]


@given(
    st.dictionaries(
        st.sampled_from(["path", "token", "request_id", "status", "exc_info", "level"]) | st.text(),
        VALUES | st.text() | st.lists(st.text(), max_size=2),
    ),
    st.sampled_from(["info", "warning", "error", "warn", "exception"]),
    st.sampled_from(["", "r7"]),
)
def test_most_lines_are_made_at_once_as_step_by_step(
    event: dict[str, object], method: str, request_id: str
) -> None:
    """The processors of a plain line are one; each of them has its turn with all other lines."""
    if event.get("exc_info"):
        event["exc_info"] = ValueError("a defect")
    with logging_to(LogConfig(output="/dev/null")):
        (line,) = structlog.get_config()["processors"]
    assert isinstance(line, _JsonLine)
    outside = REQUEST_ID.set(request_id)
    try:
        made = [
            json.loads(render(None, method, dict(event))) for render in (line, line.step_by_step)
        ]
    finally:
        REQUEST_ID.reset(outside)
    for each in made:
        del each["timestamp"]
    assert made[0] == made[1]


@given(
    st.lists(
        st.one_of(
            st.text(st.characters(), max_size=4),
            st.integers(),
            st.floats(allow_nan=False, allow_infinity=False),
            st.none(),
        ),
        min_size=len(REQUEST_KEYS),
        max_size=len(REQUEST_KEYS),
    ),
    st.sampled_from(["json", "text"]),
    st.sampled_from(["info", "warning"]),
)
def test_the_lines_of_an_event_with_always_the_same_keys_read_like_any_other(
    values: list[str | float | None], form: str, level: str
) -> None:
    """They are encoded without a dict."""
    stream = io.StringIO()
    with logging_to(LogConfig(output="/dev/null", format=form)) as lines:
        lines._stream = stream
        general = LineLogger.bound()
        general.lines_of("s3", *REQUEST_KEYS).write(level, *values)
        general.write(level, "s3", dict(zip(REQUEST_KEYS, values, strict=True)))
    first, second, *rest = re.sub(r"\d{4}-\d\d-[0-9T:.]+Z", "", stream.getvalue()).split("\n")
    assert (first, rest) == (second, [""])
