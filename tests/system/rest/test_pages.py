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


def new_shop(lake_server: RestServer, client: Client) -> lakefs.Repository:
    name = lake_server.new_name("shop")
    place = client.storage_config.default_namespace_prefix
    return lakefs.Repository(name, client).create(f"{place}/{name}")


@pytest.fixture
def shop(lake_server: RestServer, client: Client) -> lakefs.Repository:
    """A repository with a name of its own, for the one that the pages call `shop`."""
    return new_shop(lake_server, client)


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


def in_shell(lake_server: RestServer, folder: Path, program: Path, session: str) -> str:
    """Runs commands of lakectl; returns what they print."""
    environment = Lakectl(lake_server, folder).environment()
    done = subprocess.run(
        ["bash", "-euc", session],
        cwd=folder,
        env={**environment, "PATH": f"{program.parent}:{environment['PATH']}"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.uses("uploadObject", "getObject")
@pytest.mark.timeout(1500)
def test_the_lakectl_session_of_the_page_prints_what_the_page_says(
    lake_server: RestServer, shop: lakefs.Repository, tmp_path: Path, program: Path
) -> None:
    (session,), (printed,) = blocks("lakectl.md", "bash"), blocks("lakectl.md", "text")
    found = in_shell(lake_server, tmp_path, program, session.replace("//shop/", f"//{shop.id}/"))
    assert found.endswith(printed)
    assert "take the raise" in found


@pytest.mark.uses("uploadObject", "getObject")
@pytest.mark.timeout(1500)
def test_the_newest_state_of_a_branch_is_copied_as_the_page_says(
    lake_server: RestServer,
    client: Client,
    shop: lakefs.Repository,
    tmp_path: Path,
    program: Path,
) -> None:
    """From one repository to another one of the same server: both speak the same interface."""
    there = new_shop(lake_server, client)
    bodies = {"a.csv": b"1", "daily/b c.csv": b"2"}
    for path, body in bodies.items():
        shop.branch("main").object(path).upload(body)
    (session,) = blocks("moving-from-lakefs.md", "bash")
    first, rest = session.split("\n", 1)
    of_shop = first.replace("//shop/", f"//{shop.id}/")
    in_shell(
        lake_server, tmp_path, program, f"{of_shop}\n{rest.replace('//shop/', f'//{there.id}/')}"
    )
    main = there.branch("main")
    assert next(iter(main.log(max_amount=1))).message == "from lakeFS"
    assert list(main.uncommitted()) == []
    found = {
        each.path: there.ref("main").object(each.path).reader().read() for each in main.objects()
    }
    assert found == bodies
