"""A traced S3 request has spans in every service that it passes, and its log lines name the trace."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.trace import NonRecordingSpan, SpanContext, TraceFlags, use_span
from running_tarn import RunningTarn, running_tarn

from tarn.client import Client

TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"


def spans_of(log: str) -> dict[str, dict[str, Any]]:
    """Returns the spans of the trace that the console exporters wrote, by their ids."""
    decoder, found = json.JSONDecoder(), {}
    for begin in re.finditer(r'^\{\n    "name"', log, re.MULTILINE):
        try:
            span, _ = decoder.raw_decode(log, begin.start())
        except ValueError:
            continue  # lines of several processes are mixed
        if span["context"]["trace_id"] == f"0x{TRACE}":
            found[span["context"]["span_id"]] = span
    return found


def path_to(spans: dict[str, dict[str, Any]], span: dict[str, Any]) -> list[str]:
    """Returns the names from the root to a span."""
    names: list[str] = []
    at: dict[str, Any] | None = span
    while at is not None:
        names.insert(0, at["name"])
        at = spans.get(at["parent_id"])
    return names


COMMIT = [
    ["/tarn.auth.v1.SessionService/LogIn", "kv get_many"],
    ["/tarn.graveler.v1.CommitService/CreateCommit", "build", "block put"],
]
"""Of a commit that a program makes inside a span of its own: the log-in before it, and the files of its metadata."""


def commit_traced(tarn: RunningTarn) -> None:
    """Commits an object by `tarn.client`, inside a sampled span of this program."""
    repository, s3 = tarn.new_repository(), tarn.s3()
    s3.put_object(Bucket=repository, Key="main/a", Body=b"abc")
    s3.close()
    own = SpanContext(
        int(TRACE, 16), int(PARENT, 16), is_remote=False, trace_flags=TraceFlags(TraceFlags.SAMPLED)
    )
    with (
        use_span(NonRecordingSpan(own)),
        Client(
            tarn.server,
            auth_addresses=tarn.auth_server,
            access_key_id=tarn.access_key_id,
            secret_access_key=tarn.secret_access_key,
        ) as client,
    ):
        client.create_commit(repository, "main", "load")


@pytest.mark.parametrize("form", ["single", "separate"])
def test_a_request_is_traced_through_the_services(
    tmp_path: Path, form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_TRACES_EXPORTER", "console")
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "100")
    spans: dict[str, dict[str, Any]] = {}
    with running_tarn(tmp_path, form) as tarn:
        tarn.read_traced(TRACE, PARENT)
        commit_traced(tarn)
        wanted = {"S3 GetObject", "/tarn.graveler.v1.EntryService/Operate", "kv get_many"}
        wanted |= {path[0] for path in COMMIT}
        for _ in range(100):
            spans = spans_of(tarn.log.read_text())
            if wanted <= {span["name"] for span in spans.values()}:
                break
            time.sleep(0.1)
    (root,) = [span for span in spans.values() if span["name"] == "S3 GetObject"]
    assert root["parent_id"] == f"0x{PARENT}"
    assert root["attributes"]["http.response.status_code"] == 200
    paths = [path_to(spans, span) for span in spans.values()]
    lookup = ["S3 GetObject", "/tarn.graveler.v1.EntryService/Operate"]
    assert lookup in paths
    assert [*lookup, "kv get_many"] in paths
    assert ["S3 GetObject", "authenticate"] in paths
    assert ["S3 GetObject", "block read"] in paths
    for path in COMMIT:
        assert path in paths
    services = {span["resource"]["attributes"]["service.name"] for span in spans.values()}
    assert services >= ({"node"} if form == "single" else {"gateway", "graveler", "auth"})
    lines = [line for line in tarn.log.read_text().splitlines() if " s3 " in line and TRACE in line]
    assert any("operation=GetObject" in line and f"trace_id={TRACE}" in line for line in lines)
