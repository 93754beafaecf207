"""`tarn kv` on embedded stores: the commands, their exit codes, and what they print."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from installation_rows import INSTALLATION, sample_installation, write_rows

from tarn.kv.agreement import agree
from tarn.kv.embedded import open_embedded
from tarn.kv.port import Group, Partition, PartitionKind
from tarn_cli.app import cli
from tarn_cli.exits import CliError, Exit
from tarn_cli.failures import failure_of

TOKEN = next(each for each in sample_installation() if each.name.endswith("main:t3"))


def tarn(*arguments: object, code: int = 0) -> Any:
    """Returns the JSON output of a command that succeeds, or the error text of one that fails."""
    done = CliRunner().invoke(
        cli, ["--json", "kv", *map(str, arguments)], env={"HOME": "/nonexistent"}
    )
    if done.exception is None:
        assert code == 0, done.output
        return json.loads(done.stdout)
    failure = failure_of(done.exception)
    assert failure is not None, done.exception
    assert failure.exit_code == code, failure
    return failure.message


def url(folder: Path) -> str:
    return f"embedded://{folder}?installation={INSTALLATION}"


async def fill(folder: Path) -> None:
    kv = await open_embedded(folder / "tarn.db", durability="os")
    await write_rows(kv, sample_installation())
    await kv.close()


async def put(folder: Path, partition: Partition, key: bytes, value: bytes) -> None:
    kv = await open_embedded(folder / "tarn.db", durability="os")
    await kv.set_many(partition, [Group(key, ((key, value),))])
    await kv.close()


async def note(folder: Path, settings: dict[str, str]) -> None:
    kv = await open_embedded(folder / "tarn.db", durability="os")
    await agree(kv, INSTALLATION, settings)
    await kv.close()


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    asyncio.run(fill(tmp_path / "lake"))
    return tmp_path / "lake"


def test_dump_load_and_verify(lake: Path, tmp_path: Path) -> None:
    dump, target = tmp_path / "dump", tmp_path / "target"
    done = tarn("dump", "--config", url(lake), dump)
    assert (done["rows"], done["unreferenced_partitions"]) == (74, 1)
    assert done["new_chunks"] > 0
    assert tarn("verify", dump)["rows"] == 74
    assert tarn("load", "--config", url(target), dump)["rows"] == 74
    for first, second in ((dump, url(target)), (url(target), dump), (url(lake), url(target))):
        assert tarn("verify", first, second)["different_rows"] == 0
    assert "only an empty store is filled" in tarn("load", "--config", url(lake), dump, code=5)
    again = tarn("dump", "--config", url(lake), dump)
    assert (again["rows"], again["new_chunks"]) == (74, 0), "only what is new is written"


def test_migrate_closes_the_old_store_and_reopen_opens_it(lake: Path, tmp_path: Path) -> None:
    target = url(tmp_path / "target")
    assert tarn("migrate", "--from", url(lake), "--to", target)["changed_meanwhile"] == 0
    assert "has moved elsewhere" in tarn("dump", "--config", url(lake), tmp_path / "dump", code=5)
    assert "--force opens it" in tarn("reopen", url(lake), code=5)
    assert tarn("reopen", "--force", url(lake))["was"] == "moved"
    assert tarn("reopen", url(lake))["was"] == "open"


def test_settings_are_shown_and_forgotten_when_no_tarn_runs(lake: Path, tmp_path: Path) -> None:
    assert tarn("settings", "--config", url(lake))["settings"] == {}
    asyncio.run(note(lake, {"graveler.drop_delay": "60000ms"}))
    shown = tarn("settings", "--config", url(lake))
    assert shown["settings"] == {"graveler.drop_delay": "60000ms"}
    with opened(lake):  # a running Tarn has agreed on them
        assert tarn("settings", "--config", url(lake)) == shown
        assert "stop Tarn first" in tarn("settings", "--config", url(lake), "--forget", code=5)
    done = tarn("settings", "--config", url(lake), "--forget")
    assert done == {**shown, "forgotten": True}
    assert tarn("settings", "--config", url(lake))["settings"] == {}
    assert tarn("reopen", url(lake))["was"] == "open"
    tarn("settings", "--config", url(tmp_path / "absent"), code=3)


def test_settings_stay_behind_when_an_installation_moves(lake: Path, tmp_path: Path) -> None:
    asyncio.run(note(lake, {"metadata.db.cassandra.local_datacenter": "berlin"}))
    target = url(tmp_path / "target")
    tarn("migrate", "--from", url(lake), "--to", target)
    assert tarn("settings", "--config", target)["settings"] == {}
    assert tarn("settings", "--config", url(lake))["settings"] != {}
    assert "has moved elsewhere" in tarn("settings", "--config", url(lake), "--forget", code=5)


def test_verify_tells_what_differs_and_fails(lake: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    asyncio.run(fill(other))
    asyncio.run(put(other, TOKEN, b"key/raw/00007", b"other"))
    asyncio.run(put(other, Partition(f"{INSTALLATION}/x", PartitionKind.PLAIN), b"\xff", b""))
    done = CliRunner().invoke(cli, ["--json", "kv", "verify", url(lake), url(other)])
    assert isinstance(done.exception, CliError)
    assert done.exception.exit_code is Exit.FAILURE
    assert json.loads(done.stdout)["differences"] == [
        {"partition": TOKEN.name, "key": "key/raw/00007", "how": "other value"},
        {"partition": f"{INSTALLATION}/x", "key": "0xff", "how": "only in the second"},
    ]


@contextmanager
def opened(folder: Path) -> Iterator[None]:
    """Holds the store open, as a running Tarn does."""
    with asyncio.Runner() as runner:
        kv = runner.run(open_embedded(folder / "tarn.db", durability="os"))
        yield
        runner.run(kv.close())


def test_a_store_that_is_in_use_is_not_touched(lake: Path, tmp_path: Path) -> None:
    with opened(lake):
        for command in (
            ("dump", "--config", url(lake), tmp_path / "dump"),
            ("migrate", "--from", url(lake), "--to", url(tmp_path / "target")),
            ("reopen", url(lake)),
        ):
            assert "stop Tarn first" in tarn(*command, code=5)
        # Reading is allowed.
        assert tarn("verify", url(lake), url(lake.parent / "lake2"), code=3)


def test_a_missing_store_is_not_created(tmp_path: Path) -> None:
    absent = url(tmp_path / "absent")
    tarn("dump", "--config", absent, tmp_path / "dump", code=3)
    tarn("migrate", "--from", absent, "--to", url(tmp_path / "target"), code=3)
    tarn("reopen", absent, code=3)
    tarn("load", "--config", absent, tmp_path / "no-dump", code=3)
    tarn("verify", tmp_path, code=3)
    assert list(tmp_path.iterdir()) == []


def test_secrets_must_be_the_same(lake: Path, tmp_path: Path) -> None:
    """Users' keys are sealed with the secret: with another one at the target, no user could log in."""
    files = []
    for name, store in (("a", lake), ("b", tmp_path / "target")):
        file = tmp_path / f"{name}.yaml"
        file.write_text(
            f"data_dir: {tmp_path / name}\ninstallation: {{id: {INSTALLATION}}}\n"
            f"metadata: {{db: {{embedded: {{path: {store}}}}}}}\n"
        )
        (tmp_path / name).mkdir()
        (tmp_path / name / "secret").write_text(f"{name}0" * 32)
        (tmp_path / name / "secret").chmod(0o600)
        files.append(file)
    said = tarn("migrate", "--from", files[0], "--to", files[1], code=2)
    assert "different secrets" in said


@pytest.mark.parametrize("arguments", [("verify", "dump", "dump"), ("verify", "{lake}")])
def test_verify_needs_something_to_compare(
    arguments: tuple[str, ...], lake: Path, tmp_path: Path
) -> None:
    (tmp_path / "dump").mkdir()
    shown = [
        each.format(lake=url(lake)).replace("dump", str(tmp_path / "dump")) for each in arguments
    ]
    assert "give two stores" in tarn(*shown, code=2)
