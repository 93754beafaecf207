import json

import pytest
from google.protobuf.timestamp_pb2 import Timestamp

from tarn_cli.output import Output, shown_time

ROWS = [{"branch": "main", "size": 12, "hidden": "x"}, {"branch": "a" * 300, "size": 3}]


def test_json_holds_every_field(capsys: pytest.CaptureFixture[str]) -> None:
    Output(as_json=True).many(ROWS, ("branch",))
    assert json.loads(capsys.readouterr().out) == ROWS


def test_a_table_in_a_pipe_is_not_folded(capsys: pytest.CaptureFixture[str]) -> None:
    Output(as_json=False).many(ROWS, ("branch", "size"))
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 3
    assert lines[2].split() == ["a" * 300, "3"]
    assert "hidden" not in lines[0]


def test_remarks_stay_out_of_the_output(capsys: pytest.CaptureFixture[str]) -> None:
    Output(as_json=False).many([], ("branch",), empty="no branches")
    Output(as_json=True).remark("not for programs")
    Output(as_json=False, quiet=True).remark("not wanted")
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err == "no branches\n"


def test_a_single_record_is_a_list_of_its_fields(capsys: pytest.CaptureFixture[str]) -> None:
    Output(as_json=False).one({"user": "ada", "roles": ["Admin", "Analyst"]})
    assert capsys.readouterr().out == "user   ada\nroles  Admin, Analyst\n"


def test_times_are_utc() -> None:
    assert shown_time(Timestamp(seconds=0)) == "1970-01-01T00:00:00Z"
