"""The sessions of the pages about lakeFS's clients print what the pages say."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import lakefs
import pytest
from lakectl_command import Lakectl
from lakefs.client import Client
from rest_clients import blocks
from rest_server import RestServer


@pytest.fixture
def shop(lake_server: RestServer, client: Client) -> lakefs.Repository:
    """A repository with a name of its own, for the one that the pages call `shop`."""
    name = lake_server.new_name("shop")
    place = client.storage_config.default_namespace_prefix
    return lakefs.Repository(name, client).create(f"{place}/{name}")


@pytest.mark.uses("uploadObject", "getObject")
@pytest.mark.parametrize("page", ["lakefs-python.md", "lakefs-spec.md"])
def test_the_program_of_a_page(
    lake_server: RestServer, shop: lakefs.Repository, tmp_path: Path, page: str
) -> None:
    (program,), (printed,) = blocks(page, "python"), blocks(page, "text")
    name = shop.id if page == "lakefs-spec.md" else lake_server.new_name("shop")
    program = re.sub(r"\bshop(?=[/\"])", name, program)
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=tmp_path,
        env=Lakectl(lake_server, tmp_path).environment(),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == printed.replace("shop/", f"{name}/")


@pytest.mark.uses("uploadObject", "getObject")
@pytest.mark.timeout(1500)
def test_the_session_of_lakectl(
    lake_server: RestServer, shop: lakefs.Repository, tmp_path: Path, program: Path
) -> None:
    (session,), (printed,) = blocks("lakectl.md", "bash"), blocks("lakectl.md", "text")
    environment = Lakectl(lake_server, tmp_path).environment()
    done = subprocess.run(
        ["bash", "-euc", session.replace("//shop/", f"//{shop.id}/")],
        cwd=tmp_path,
        env={**environment, "PATH": f"{program.parent}:{environment['PATH']}"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.endswith(printed)
    assert "take the raise" in done.stdout
