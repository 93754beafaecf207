import json
import subprocess
import sys
from collections.abc import Iterator

import click
import pytest

from tarn.core.quota import Limits
from tarn_cli.__main__ import run
from tarn_cli.app import cli


def commands(
    group: click.Group, context: click.Context, path: str = "tarn"
) -> Iterator[tuple[str, click.Command]]:
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        if isinstance(command, click.Group):
            yield from commands(command, context, f"{path} {name}")
        else:
            yield f"{path} {name}", command


EVERY = dict(commands(cli, click.Context(cli)))


@pytest.mark.parametrize("path", EVERY)
def test_every_command_explains_itself_and_speaks_json(path: str) -> None:
    command = EVERY[path]
    assert command.help
    assert "\\b" not in command.help  # click's mark, as text
    assert any("--json" in parameter.opts for parameter in command.params)
    for parameter in command.params:
        if isinstance(parameter, click.Option):
            assert parameter.help, f"{path} {parameter.opts}"


def test_help_and_usage_have_their_exit_codes(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--help"]) == 0
    assert run(["branch", "create", "--help"]) == 0
    assert "tarn branch create lake/fix --from main~1" in capsys.readouterr().out
    assert run(["branch", "create"]) == 2
    assert run(["no-such-command"]) == 2
    assert run(["repo", "list", "--no-such-option"]) == 2


@pytest.mark.parametrize(
    "words",
    [
        ["commit", "lake/main", "-m", ""],
        ["merge", "lake/dev", "lake/main", "--as", ""],
        ["branch", "move", "lake/main", "v1", "--yes", "--expect", ""],
        ["repo", "set-default", "lake", "main", "--expect", ""],
        ["repo", "protect", "lake", "main", "--if-match", ""],
        ["repo", "read-only", "lake", "--if-match", ""],
        ["repo", "metadata", "lake", "--set", "a=b", "--if-match", ""],
    ],
)
def test_an_empty_value_does_not_turn_a_safeguard_off(
    words: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As that of a variable of a script that is not set."""

    def sent(*_arguments: object) -> None:
        raise AssertionError("the command was sent")

    monkeypatch.setattr("tarn_cli.session.Session.run", sent)
    assert run(words) == 2
    assert words[-2] in capsys.readouterr().err


def test_a_bug_is_reported_in_one_line_unless_debugged(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(*_arguments: object) -> None:
        raise ZeroDivisionError("a bug")

    monkeypatch.setattr("tarn_cli.session.Session.context", broken)
    assert run(["config", "show"]) == 1
    said = capsys.readouterr().err
    assert said == "tarn: unexpected ZeroDivisionError: a bug (--debug shows the traceback)\n"
    assert run(["--debug", "config", "show"]) == 1
    assert "in broken" in capsys.readouterr().err
    assert run(["--json", "config", "show"]) == 1
    assert json.loads(capsys.readouterr().err)["error"] == "UNEXPECTED"


def test_a_mistake_in_the_arguments_is_json_for_programs(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run(["--json", "repo", "list", "--no-such-option"]) == 2
    told = json.loads(capsys.readouterr().err)
    assert (told["error"], told["exit_code"]) == ("USAGE", 2)


def test_a_quota_without_a_limit_is_not_shown_as_none_allowed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It showed 0 for every limit that is not set."""
    monkeypatch.setattr("tarn_cli.session.Session.run", lambda *_: Limits(branches=10))
    assert run(["quota", "set", "lake", "--branches", "10"]) == 0
    rows = dict(line.split(maxsplit=1) for line in capsys.readouterr().out.splitlines())
    assert (rows["branches"], rows["staged_objects"]) == ("10", "no limit")
    assert run(["--json", "quota", "set", "lake", "--branches", "10"]) == 0
    assert json.loads(capsys.readouterr().out)["staged_objects"] == 0


def test_the_replicas_of_an_installation_are_a_table(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """They were printed as Python's dictionaries."""
    replica = {
        "service": "node",
        "version": "1",
        "host": "vm",
        "pid": 7,
        "supports": "1 to 2",
        "age_s": 3,
    }
    record = {"installation": "tarn", "level": 1, "raising_to": None, "replicas": [replica]}
    monkeypatch.setattr("tarn_cli.commands.upgrade._config", lambda *_: None)
    monkeypatch.setattr("tarn_cli.commands.upgrade._with_store", lambda *_, **__: record)
    assert run(["upgrade", "status"]) == 0
    said = capsys.readouterr().out
    assert "{" not in said
    assert "None" not in said
    assert said.splitlines()[-1].split() == ["node", "1", "vm", "7", "1", "to", "2", "3"]


def test_start_up_leaves_out_what_a_command_does_not_need() -> None:
    """Users notice the start-up time: importing grpc, boto3 and pyarrow takes a second."""
    code = "import sys; from tarn_cli.__main__ import run; run(['--help']); print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    loaded = set(done.stdout.splitlines()[-1].split())
    assert loaded & {"grpc", "boto3", "pyarrow", "numpy"} == set()
