"""The Python programs of docs/user/grpc.md run as they are written, and the CLI's token is one for other tools."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from running_tarn import RunningTarn, clean_environment

from tarn.client import AsyncClient, Client
from tarn.client.operations import Operations
from tarn.rpc.wire.call import Call

PAGE = Path(__file__).parents[2] / "docs" / "user" / "grpc.md"


@pytest.mark.in_form("separate")
def test_the_python_programs_of_the_page_work(
    tarn: RunningTarn, repository: str, tmp_path: Path
) -> None:
    data = tmp_path / "data"
    data.write_text("1")
    for path in ("raw/a", "tmp/x", "tmp/y"):
        tarn.ok("fs", "upload", str(data), f"{repository}/main/{path}")
    tarn.ok("commit", f"{repository}/main", "-m", "load")
    programs = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert len(programs) == 3
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", "".join(programs)],
        cwd=tmp_path,
        env=clean_environment(
            TARN_SERVER=tarn.server,
            TARN_AUTH_SERVER=tarn.auth_server,
            TARN_ACCESS_KEY_ID=tarn.access_key_id,
            TARN_SECRET_ACCESS_KEY=tarn.secret_access_key,
            REPOSITORY=repository,
        ),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "removed 2",
        "conflicts 0",
        "parents 2",
        "raw/a",
        f"NOTHING_TO_MERGE {repository} main",
        "nope is not there",
        "['a', 'b', 'main', 'nightly']",
        "Remove temporary files",
        "load",
        "{'tmp/': 2}",
        "raw/a by load",
        "['nightly']",
        "['RESTORE', 'DELETE', 'COMMIT', 'CREATE']",
        "BRANCH_PROTECTED",
    ]
    methods = re.findall(r"`(\w+)`", PAGE.read_text().partition("| task |")[2].partition("\n\n")[0])
    assert sorted(methods) == sorted(
        name
        for name in dir(Operations)
        if not name.startswith("_") and callable(getattr(Operations, name))
        if name not in ("call", "get_caller")
    )


def test_the_token_of_the_command_line_is_one_for_other_tools(
    tarn: RunningTarn, repository: str
) -> None:
    token = tarn.ok("auth", "token").out.strip()
    assert tarn.ok("--json", "auth", "token").json.keys() == {"caller_token"}

    async def read(client: AsyncClient) -> str:
        call = Call("page", token, client.call().deadline)
        return (await client.graveler.get_branch(call, repository, "main")).branch_id

    with Client(tarn.server) as client:  # without a key pair
        assert client.run(read) == "main"
