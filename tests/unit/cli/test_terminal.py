"""What other users wrote cannot forge a line of output, nor drive the terminal of its reader."""

import ast
import json
from pathlib import Path

import pytest
from botocore.exceptions import ClientError

import tarn_cli
from tarn.client.commits import PathAnnotation
from tarn.core.errors import Kind, Reason, TarnError
from tarn_cli import __main__ as main_module
from tarn_cli.commands import annotate, diff, fs, log
from tarn_cli.conflicts import conflict_lines
from tarn_cli.exits import CliError, Exit
from tarn_cli.objects.store import ListingLine
from tarn_cli.output import Output
from tarn_cli.terminal import printable, write_line, write_lines
from tarn_proto.graveler.v1.commit_service_pb2 import Commit, CommitSummary
from tarn_proto.graveler.v1.merge_service_pb2 import MergeConflict

CODE = Path(tarn_cli.__file__).parent
HOSTILE = "a\nFAKE\r\x1b[2J\x1b]0;t\x07\x9b31m\x7f\u202egpj\u2028\u2066\ud800[red]:smile:\x00"
SHOWN = (
    "a\\nFAKE\\r\\x1b[2J\\x1b]0;t\\x07\\x9b31m\\x7f\\u202egpj\\u2028\\u2066\\ud800[red]:smile:\\x00"
)

WIRED = HOSTILE.replace("\ud800", "")  # protos hold no lone surrogates

# Who writes past `tarn_cli.terminal`, and why.
ELSEWHERE = {
    "__main__.py": {"sys.stdout", "sys.stderr"},  # their encoding; and a pipe whose reader is gone
    "audited.py": {"sys.stderr"},  # lines of the audit log, which programs read
    "commands/fs.py": {"sys.stdout"},  # the bytes of an object, as they are
    "bars.py": {"Console", "TextColumn"},  # types
    "health.py": {"sys.stderr"},  # the start of a probe takes milliseconds, without click
    "objects/transfer.py": {"Console"},  # a type
    "output.py": {"Console"},  # tables of `cell`s
}
WRITERS = {"click.echo", "click.secho", "click.style", "click.prompt", "click.confirm"}
WRITERS |= {"print", "sys.stdout", "sys.stderr", "Console", "TextColumn"}


def names_in(file: Path) -> set[str]:
    """Returns the names and attributes of names that the code of a file uses."""
    nodes = list(ast.walk(ast.parse(file.read_text())))
    found = {node.id for node in nodes if isinstance(node, ast.Name)}
    return found | {
        f"{node.value.id}.{node.attr}"
        for node in nodes
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name)
    }


def test_no_command_writes_past_the_terminal_module() -> None:
    files = {file.relative_to(CODE).as_posix(): file for file in CODE.rglob("*.py")}
    found = {name: names_in(file) & WRITERS for name, file in files.items()}
    assert found.pop("terminal.py") >= {"click.echo", "click.prompt", "click.confirm"}
    assert {name: used for name, used in found.items() if used} == ELSEWHERE


def test_a_line_stays_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    write_line(HOSTILE)
    write_lines([HOSTILE, HOSTILE], err=True, first_fg="red")
    said = capsys.readouterr()
    assert said.out == f"{SHOWN}\n"
    assert said.err == f"{SHOWN}\n{SHOWN}\n"


def test_lines_that_are_written_together_stay_lines(capsys: pytest.CaptureFixture[str]) -> None:
    paths = [f"a\n{number}" for number in range(2_500)]

    write_lines(paths)

    assert capsys.readouterr().out.splitlines() == [printable(path) for path in paths]


def test_records_and_tables_show_it_as_escapes(capsys: pytest.CaptureFixture[str]) -> None:
    output = Output(as_json=False)
    output.one({"path": HOSTILE, "metadata": {HOSTILE: HOSTILE}, "names": [HOSTILE]})
    output.one({}, HOSTILE)
    output.many([{"path": HOSTILE}], ("path",))
    output.remark(HOSTILE)
    said = capsys.readouterr()
    assert [line.rstrip() for line in said.out.splitlines()] == [
        f"path      {SHOWN}",
        f"metadata  {SHOWN}={SHOWN}",
        f"names     {SHOWN}",
        SHOWN,
        "path",
        SHOWN,
    ]
    assert said.err == f"{SHOWN}\n"


def test_json_is_exact(capsys: pytest.CaptureFixture[str]) -> None:
    Output(as_json=True).many([{"path": HOSTILE}], ())
    said = capsys.readouterr().out
    assert said.isascii()
    assert json.loads(said) == [{"path": HOSTILE}]


@pytest.mark.parametrize(
    "error",
    [
        CliError(Exit.FAILURE, HOSTILE, HOSTILE, [HOSTILE]),
        TarnError(Kind.NOT_FOUND, Reason.ENTRY_NOT_FOUND, HOSTILE),
        ClientError({"Error": {"Code": HOSTILE, "Message": HOSTILE}}, "GetObject"),
        FileNotFoundError(2, "no", HOSTILE.replace("\0", "")),
        ValueError(HOSTILE),
    ],
)
@pytest.mark.parametrize("flags", [[], ["--debug"], ["--json"]])
def test_errors_show_it_as_escapes(
    error: Exception,
    flags: list[str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def broken(*_arguments: object) -> None:
        raise error

    monkeypatch.setattr("tarn_cli.session.Session.context", broken)
    assert main_module.run([*flags, "config", "show"]) != 0
    said = capsys.readouterr().err
    assert "FAKE" in said
    assert said.replace("\n", "").isprintable()
    assert not any(line.startswith("FAKE") for line in said.splitlines())
    if flags == ["--json"]:
        assert json.loads(said)["message"]


def test_a_mistaken_argument_is_shown_as_escapes(capsys: pytest.CaptureFixture[str]) -> None:
    assert main_module.run([f"no-{HOSTILE}"]) == 2
    assert capsys.readouterr().err.replace("\n", "").isprintable()


def test_the_lines_of_commands_hold_one_line_for_each_object() -> None:
    """`write_line` gets a hostile text as part of one line: no command splits it, or styles a part of it."""
    commit = Commit(commit_id="c" * 64, message=WIRED, committer="ann", metadata={"k": WIRED})
    story = log._story(commit)
    assert [line for line in story if "FAKE" in line and not line.startswith(" ")] == [
        f"Meta:   k={WIRED}"
    ]
    assert isinstance(fs._line(ListingLine(HOSTILE)), str)
    assert HOSTILE in diff._line(diff._Change(HOSTILE, 1))
    summary = CommitSummary(commit_id=commit.commit_id, committer="ann", subject="a\nFAKE")
    assert HOSTILE in annotate._line(PathAnnotation(HOSTILE, summary, is_final=True), 3)
    assert conflict_lines(MergeConflict(path="a\nFAKE"))[0] == "! a\nFAKE"
