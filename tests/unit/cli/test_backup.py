"""`tarn backup` on embedded stores: the commands, their exit codes, and what they refuse."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from tarn.kv.embedded import open_embedded
from tarn.kv.embedded.files import WriteLock
from tarn.kv.keys import AuthKeys, InstallationKeys
from tarn.kv.port import Group
from tarn_auth.secret_box import SecretBox
from tarn_cli.app import cli
from tarn_cli.exits import Exit
from tarn_cli.failures import failure_of

INSTALLATION = "tarn"
SECRET = bytes(range(32))


def tarn(*arguments: object, code: int = 0) -> Any:
    """Returns the JSON output of a command that succeeds, or the error text of one that fails."""
    done = CliRunner().invoke(
        cli, ["--json", "backup", *map(str, arguments)], env={"HOME": "/nonexistent"}
    )
    if done.exception is None or (failure := failure_of(done.exception)) is None:
        assert done.exit_code == code, done.output
        return json.loads(done.stdout)
    assert failure.exit_code == code, failure
    return failure.message


def put_secret(data: Path, secret: bytes) -> None:
    data.mkdir(exist_ok=True)
    file = data / "secret"
    file.write_text(secret.hex() + "\n")
    file.chmod(0o600)


async def fill(data: Path) -> None:
    """Writes a user, the id of the key of the installation's secret, and the checkpoint of the drop list."""
    kv = await open_embedded(data / "kv" / "tarn.db", durability="os")
    auth = AuthKeys(INSTALLATION)
    (key_id,) = SecretBox((SECRET,), os.urandom).key_ids
    rows = ((auth.user("ann"), b""), (auth.secrets(), key_id.encode()))
    assert not any(await kv.set_many(auth.partition, [Group(row[0], (row,)) for row in rows]))
    keys = InstallationKeys(INSTALLATION)
    checkpoint = (keys.DONE_BEFORE, b"1800000000000000")
    assert not any(await kv.set_many(keys.cleanup, [Group(checkpoint[0], (checkpoint,))]))
    await kv.close()


@pytest.fixture
def data(tmp_path: Path) -> Path:
    folder = tmp_path / "data"
    put_secret(folder, SECRET)
    (folder / "kv").mkdir()
    (folder / "blocks").mkdir()
    asyncio.run(fill(folder))
    return folder


def test_create_list_verify_and_prune(data: Path, tmp_path: Path) -> None:
    target = tmp_path / "target"
    first = tarn("create", target, "--data-dir", data)
    assert (first["installation"], first["rows"], first["new_chunks"]) == (INSTALLATION, 3, 2)
    second = tarn("create", target, "--data-dir", data)
    assert second["new_chunks"] == 0
    assert [each["backup"] for each in tarn("list", target)] == [first["backup"], second["backup"]]
    assert tarn("verify", target, "--files-only")["findings"] == 0
    assert tarn("prune", target, "--keep", 1)["kept"] == 1
    assert len(tarn("list", target)) == 1


@pytest.mark.parametrize("files_only", [True, False])
def test_verify_names_what_is_damaged(data: Path, tmp_path: Path, files_only: bool) -> None:
    target = tmp_path / "target"
    made = tarn("create", target, "--data-dir", data)
    verify = ["verify", target, "--backup", made["backup"]]
    verify += ["--files-only"] if files_only else ["--data-dir", data]
    (manifest,) = target.rglob("manifest.json")
    index = json.loads(manifest.read_text())["index"]
    chunk = min(path for path in (target / "content").rglob("*.zst") if path.stem not in index)
    chunk.unlink()
    found = tarn(*verify, code=Exit.FINDINGS)
    assert (found["findings"], chunk.name in found["details"][0]) == (1, True)


def test_restore_needs_the_secret_and_an_empty_store(data: Path, tmp_path: Path) -> None:
    target = tmp_path / "target"
    made = tarn("create", target, "--data-dir", data)
    restore = ("restore", target, "--data-dir")
    assert "already holds" in tarn(*restore, data, code=Exit.CONFLICT)
    new = tmp_path / "new"
    assert "no backup holds it" in tarn(*restore, new, code=Exit.CONFLICT)
    put_secret(new, SECRET[::-1])
    assert "is not the one of the backup" in tarn(*restore, new, code=Exit.CONFLICT)
    put_secret(new, SECRET)
    done = tarn(*restore, new, "--backup", made["backup"])
    assert (done["backup"], done["rows"], done["as_of"]) == (made["backup"], 3, made["begin"])
    (new / "blocks").mkdir()
    assert tarn("create", target, "--data-dir", new)["new_chunks"] == 0
    other = tmp_path / "other"
    assert tarn(*restore, other, "--without-secret")["rows"] == 3


def test_restore_needs_the_store_alone(data: Path, tmp_path: Path) -> None:
    target, new = tmp_path / "target", tmp_path / "new"
    tarn("create", target, "--data-dir", data)
    put_secret(new, SECRET)
    file = new / "kv" / "tarn.db"
    file.parent.mkdir()
    running = WriteLock(file)
    refused = tarn("restore", target, "--data-dir", new, code=Exit.CONFLICT)
    assert "another process has it open; stop Tarn first" in refused
    running.close()
    assert tarn("restore", target, "--data-dir", new)["rows"] == 3


def test_what_is_not_there_is_named(data: Path, tmp_path: Path) -> None:
    target = tmp_path / "target"
    shutil.rmtree(data / "kv")
    assert "no metadata store" in tarn("create", target, "--data-dir", data, code=Exit.NOT_FOUND)
    assert not target.exists()
    assert "no finished backup" in tarn("verify", target, "--files-only", code=Exit.NOT_FOUND)
    assert "no finished backup x" in tarn(
        "verify", target, "--files-only", "--backup", "x", code=Exit.NOT_FOUND
    )
    assert "nothing names the stores" in tarn("verify", target, code=Exit.NOT_FOUND)
    assert "names no S3 server" in tarn("list", "s3://bucket/x", code=Exit.USAGE)
    assert "neither a folder" in tarn("list", "ftp://host/x", code=Exit.USAGE)
