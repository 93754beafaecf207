"""The form of a line of the audit log is stable, and its length bounded."""

from __future__ import annotations

import json

import pytest

from tarn.core.errors import Kind, Reason, TarnError
from tarn.telemetry.audit.record import AuditRecord, Outcome, line_of, outcome_of

RECORD = AuditRecord(
    1_793_491_200_123_456,
    "s3:PutObject",
    "repository/lake/branch/main/object/a",
    Outcome.OK,
    "",
    "ada",
    "AKIA",
    "127.0.0.1:5000",
    "r1",
    "",
    {"status": 200},
)


def test_the_keys_and_their_order_are_those_of_the_documentation() -> None:
    line = line_of("gateway", RECORD)
    assert line == (
        '{"audit":1,"time":"2026-11-01T00:00:00.123456Z","service":"gateway","operation":"s3:PutObject",'
        '"resource":"repository/lake/branch/main/object/a","outcome":"ok","reason":"","principal":"ada",'
        '"access_key_id":"AKIA","source":"127.0.0.1:5000","request_id":"r1","trace_id":"",'
        '"details":{"status":200}}\n'
    )


def test_a_line_is_shorter_than_what_container_runtimes_split() -> None:
    long = AuditRecord(
        0,
        "s3:PutObject",
        "\U0001f600" * 5000,
        Outcome.DENIED,
        "AccessDenied",
        "p" * 5000,
        "k" * 5000,
        "127.0.0.1:5000",
        "r" * 128,
        details={"path": "\x00" * 5000, "roles": ["é" * 1000] * 100},
    )
    line = line_of("gateway", long)
    assert len(line.encode()) < 16_000
    assert json.loads(line)["outcome"] == "denied"


def test_lone_surrogates_become_question_marks() -> None:
    line = line_of("gateway", RECORD.about("a\udc80", Outcome.OK, ""))
    assert json.loads(line.encode())["resource"] == "a?"


@pytest.mark.parametrize(
    ("kind", "outcome"),
    [
        (Kind.DENIED, Outcome.DENIED),
        (Kind.UNAUTHENTICATED, Outcome.DENIED),
        (Kind.UNKNOWN_OUTCOME, Outcome.UNKNOWN),
        (Kind.NOT_FOUND, Outcome.FAILED),
    ],
)
def test_the_outcome_follows_the_kind_of_the_error(kind: Kind, outcome: Outcome) -> None:
    assert outcome_of(TarnError(kind, Reason.INTERNAL, "x")) is outcome
    assert outcome_of(None) is Outcome.OK
