"""lakeFS's Hadoop file system, unchanged, in both of its modes: files of Hadoop, and tables of Spark.

One Java does all of it (`tests/harness/hadoop_lakefs_day.py`). `tools/setup hadoop-lakefs` compiles the file system.
"""

from __future__ import annotations

import json
import re
import shutil
from typing import Any

import lakefs
import pytest
from lakectl_command import LAKECTL, Lakectl
from lakefs.client import Client
from rest_clients import blocks
from rest_server import RestServer
from slowness import scaled
from spark_jobs import driver, jars_of, run_job, set_up
from tests.support.servers import s3_server

JAR = LAKECTL.with_name("hadoop-lakefs.jar")
PAGE = "hadoop-lakefs.md"
JOB_SECONDS = 240
SCHEMES = {"lakefs": "presigned", "simple": "simple"}
"""A scheme for each mode; what is not set for one is taken from `lakefs`."""

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(scaled(JOB_SECONDS) + 660)]


def settings_of_page() -> dict[str, str]:
    """Returns the settings of both blocks of the page; the mode of the second one is that of the scheme `simple`."""
    presigned, simple = (
        dict(line.split(maxsplit=1) for line in block.splitlines())
        for block in blocks(PAGE, "properties")
    )
    mode = "spark.hadoop.fs.lakefs.access.mode"
    assert (presigned[mode], simple[mode]) == ("presigned", "simple")
    return {
        **simple,
        **presigned,
        "spark.hadoop.fs.simple.impl": presigned["spark.hadoop.fs.lakefs.impl"],
        "spark.hadoop.fs.simple.access.mode": simple[mode],
    }


@pytest.fixture(scope="module")
def told(
    lake_server: RestServer, client: Client, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Any]:
    """What the day showed, by scheme and kind of work, and what the program of the page printed."""
    if shutil.which("go") is None and not JAR.exists():
        pytest.skip("needs Go 1.26 or newer: not installed")
    set_up("hadoop-lakefs")
    folder = tmp_path_factory.mktemp("hadoop")
    names = {}
    for what in (*SCHEMES, "shop"):
        names[what] = lake_server.new_name(what)
        place = client.storage_config.default_namespace_prefix
        lakefs.Repository(names[what], client).create(f"{place}/{names[what]}")
    given = {
        "spark.hadoop.fs.lakefs.endpoint": f"{lake_server.url}/api/v1",
        "spark.hadoop.fs.lakefs.access.key": lake_server.access_key_id,
        "spark.hadoop.fs.lakefs.secret.key": lake_server.secret_access_key,
        "spark.hadoop.fs.s3a.endpoint": lake_server.bucket_endpoint,
        "spark.hadoop.fs.s3a.access.key": s3_server.ACCESS_KEY_ID,
        "spark.hadoop.fs.s3a.secret.key": s3_server.SECRET_ACCESS_KEY,
    }
    settings = settings_of_page()
    assert given.keys() <= settings.keys()
    (program,) = blocks(PAGE, "python")
    plan = {
        "settings": {**settings, **given, "spark.hadoop.fs.s3a.multipart.size": "5M"},
        "store": lake_server.bucket_endpoint,
        "jars": str(jars_of()),
        "further_jars": [str(JAR), *map(str, jars_of("hadoop-lakefs").glob("*/*.jar"))],
        "server": {
            "url": lake_server.url,
            "key": lake_server.access_key_id,
            "secret": lake_server.secret_access_key,
        },
        "repositories": {scheme: names[scheme] for scheme in SCHEMES},
        "folder": str(folder),
        "program": re.sub(r"\bshop(?=[/\"])", names["shop"], program),
    }
    file = folder / "plan.json"
    file.touch(mode=0o600)
    file.write_text(json.dumps(plan))
    of_lakefs = Lakectl(lake_server, folder).environment()
    out = run_job(
        driver("hadoop_lakefs_day", str(file)),
        folder,
        {name: value for name, value in of_lakefs.items() if name.startswith("LAKECTL_")},
        seconds=JOB_SECONDS,
    )
    found: dict[str, Any] = json.loads(out.splitlines()[-1])
    return found


@pytest.mark.parametrize("scheme", SCHEMES)
def test_files_of_hadoop(told: dict[str, Any], scheme: str) -> None:
    files = told[scheme]["files"]
    assert files["ranges"] == ["0123456789", "789"]
    assert files["status"] == [
        ["raw/a.csv", False, 10],
        ["raw/deep", True, 0],
        ["raw/deep/c.txt", False, 0],
    ]
    assert files["listed"] == ["raw/a.csv", "raw/b.csv", "raw/deep"]
    assert files["tree"] == ["raw/a.csv", "raw/b.csv", "raw/deep/c.txt"]
    assert files["matching"] == ["raw/a.csv", "raw/b.csv"]
    assert files["exists"] == [True, True, True, False, False]
    assert files["of_nothing"] == "FileNotFoundException"
    assert files["again"] == "FileAlreadyExistsException"
    assert files["append"] == "UnsupportedOperationException"
    assert files["overwritten"] == "9876543210"
    assert files["empty"] == [True, ["empty/deep"], []]
    assert files["renamed"] == [True, True, False, False]
    assert files["after"] == [["cooked/b.csv", "cooked/deep/c.txt", "cooked/z.csv"], "98"]
    assert files["deleted"] == ["IOException", False, True, True, True]
    assert files["shell"] == [0, 11 << 20, "xend", 1, 0]
    assert files["left"] == []


@pytest.mark.parametrize("scheme", SCHEMES)
def test_tables_of_spark(told: dict[str, Any], scheme: str) -> None:
    assert told[scheme]["tables"] == {
        "written": {"0": [0, 2, 4], "1": [1, 3, 5]},
        "again": "PATH_ALREADY_EXISTS",
        "appended": {"0": [0, 0, 2, 4], "1": [1, 1, 3, 5]},
        "overwritten": {"0": [4], "1": [5]},
        "by_tag": {"0": [0, 0, 2, 4], "1": [1, 1, 3, 5]},
        "to_tag": "IOException",
        "left": ["table/_SUCCESS"],
    }


def test_the_program_of_the_page(told: dict[str, Any]) -> None:
    (printed,) = blocks(PAGE, "text")
    assert told["printed"] == printed
