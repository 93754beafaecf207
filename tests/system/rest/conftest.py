"""Clients of lakeFS, unchanged, against the REST API of Tarn.

What a test expects is what lakeFS does: with `--peer` the same tests run against a real one (`tools/setup lakefs`).
Tests name the operations that they use (`uses`). While Tarn answers one of them with 501, the test must fail; from the
day on which it has the operation, the test must pass. What else Tarn lacks is named by `lacks`; the mark is removed
with the lack.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import lakefs
import pytest
from lakectl_command import LAKECTL
from lakefs.client import Client
from lakefs_sdk.client import LakeFSClient
from rest_clients import sdk_of
from rest_server import RestServer
from running_lakefs import beside, running_lakefs
from running_tarn import RunningTarn, launch, set_up, stop, wait_until_up
from tests.support.servers.s3_server import ACCESS_KEY_ID, SECRET_ACCESS_KEY, S3Server

from tarn_api.operations.table import HANDLERS

ROOT = Path(__file__).parents[3]
CONFIG = """\
blockstore:
  type: s3
  default_namespace_prefix: s3://tarn/lakes
  s3:
    endpoint: {endpoint}
    force_path_style: true
    part_size: 5MiB
    credentials:
      access_key_id: {key}
"""
LINKS = pytest.mark.uses("getPhysicalAddress", "linkPhysicalAddress")
OF_FIXTURES = {"main": ("uploadObject",), "presigned": ("getObject", "uploadObject")}
"""Operations that a test uses with a fixture."""


def missing(item: pytest.Item) -> list[str]:
    """Returns what a test uses and Tarn does not have."""
    used = {name for marker in item.iter_markers("uses") for name in marker.args}
    for fixture, names in OF_FIXTURES.items():
        if fixture in getattr(item, "fixturenames", ()):
            used |= set(names)
    lacks = [str(name) for marker in item.iter_markers("lacks") for name in marker.args]
    return sorted(used - HANDLERS.keys()) + lacks


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """A test of what Tarn lacks must fail."""
    here = Path(__file__).parent
    for item in items:
        if not item.path.is_relative_to(here):
            continue
        if config.getoption("--peer"):
            if item.get_closest_marker("beyond_the_peer"):
                item.add_marker(pytest.mark.skip(reason="not in the open lakeFS"))
        elif names := missing(item):
            item.add_marker(pytest.mark.xfail(reason=f"not built: {', '.join(names)}"))


@contextmanager
def tarn_over_s3(folder: Path) -> Iterator[RestServer]:
    """Starts a Tarn whose blocks are in a bucket, so that it offers presigned links."""
    config = folder / "tarn.yaml"
    (folder / "s3").mkdir()
    with S3Server(folder / "s3") as store:
        config.write_text(CONFIG.format(endpoint=beside(store), key=ACCESS_KEY_ID))
        options = ("--config", str(config), "--port", "0", "--rpc-port", "0", "--workers", "2")
        secret = {"TARN_BLOCKSTORE_S3_CREDENTIALS_ACCESS_SECRET_KEY": SECRET_ACCESS_KEY}
        supervisor = launch(folder / "data", *options, environment=secret)
        tarn = RunningTarn("single", folder / "data", folder / "credentials", supervisor)
        try:
            wait_until_up(tarn)
            set_up(tarn)
            url = tarn.state()["api"]
            yield RestServer(
                "tarn", url, tarn.access_key_id, tarn.secret_access_key, store.endpoint
            )
        finally:
            stop(tarn)


@pytest.fixture(scope="session")
def lake_server(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RestServer]:
    """The server that clients talk to: a Tarn, or with `--peer` a lakeFS, each over an S3 server."""
    start = running_lakefs if request.config.getoption("--peer") else tarn_over_s3
    with start(tmp_path_factory.mktemp("lakes")) as server:
        yield server


@pytest.fixture(scope="session")
def sdk(lake_server: RestServer) -> LakeFSClient:
    """A client of `lakefs-sdk`, of the admin."""
    return sdk_of(lake_server)


@pytest.fixture(scope="session")
def client(lake_server: RestServer) -> Client:
    """A client of `lakefs`, of the admin."""
    return Client(
        host=lake_server.url,
        username=lake_server.access_key_id,
        password=lake_server.secret_access_key,
    )


@pytest.fixture(scope="session")
def program() -> Path:
    """lakectl. The first time, Go downloads and compiles 1,400 packages: four minutes of two processors."""
    if shutil.which("go") is None:
        if not LAKECTL.exists():
            pytest.skip("needs Go 1.26 or newer: not installed")
        return LAKECTL
    command = [str(ROOT / "tools" / "setup"), "lakectl"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=1400, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return LAKECTL


@pytest.fixture
def repo(lake_server: RestServer, client: Client) -> lakefs.Repository:
    """A new, empty repository."""
    name = lake_server.new_name("lake")
    namespace = f"{client.storage_config.default_namespace_prefix}/{name}"
    return lakefs.Repository(name, client).create(namespace)


@pytest.fixture
def main(repo: lakefs.Repository) -> lakefs.Branch:
    """The branch `main` of a new repository, with one commit of three objects."""
    branch = repo.branch("main")
    for path in ("raw/a", "raw/b", "z"):
        branch.object(path).upload(path, pre_sign=False)
    branch.commit("load")
    return branch


@pytest.fixture(params=["direct", pytest.param("presigned", marks=LINKS)])
def presigned(request: pytest.FixtureRequest, client: Client) -> bool:
    """Whether bytes go through the API, or by presigned links."""
    if request.param == "presigned":
        assert client.storage_config.pre_sign_support
    return bool(request.param == "presigned")
