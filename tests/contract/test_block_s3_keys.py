"""The keys of the bucket are replaced while the store is open, and wrong ones are not taken."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from certificates import Authority
from tests.support.faults.http_fault_proxy import Answer, Request
from tests.support.servers.s3_server import ACCESS_KEY_ID, SECRET_ACCESS_KEY, S3Server

from tarn.block.opening import open_blocks
from tarn.block.port import BlockKey, BlockStore
from tarn.block.s3.wire import Wire
from tarn.config import Config, SecretChanges, load
from tarn.core.errors import Kind, TarnError
from tarn.rpc.process.system import SystemClock

OLD, NEW, WRONG = (ACCESS_KEY_ID, SECRET_ACCESS_KEY), ("NEWKEY", "new-secret"), ("NEWKEY", "typo")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    folder = tmp_path_factory.mktemp("two-keys")
    with S3Server(folder, more_keys=(",".join(NEW),)) as made:
        yield made


def configured(server: S3Server, keys: tuple[str, str] | None) -> Config:
    credentials = "TARN_BLOCKSTORE_S3_CREDENTIALS_ACCESS_"
    given = {} if keys is None else dict(zip(("KEY_ID", "SECRET_KEY"), keys, strict=True))
    return load(
        None,
        {
            "HOME": "/",
            "TARN_BLOCKSTORE_TYPE": "s3",
            "TARN_BLOCKSTORE_DEFAULT_NAMESPACE_PREFIX": "s3://tarn/own",
            "TARN_BLOCKSTORE_S3_ENDPOINT": server.endpoint,
            "TARN_BLOCKSTORE_S3_FORCE_PATH_STYLE": "true",
            **{credentials + name: value for name, value in given.items()},
        },
    )


class Signers:
    """Which access keys sign the requests that reach a server."""

    def __init__(self, server: S3Server) -> None:
        self.seen: set[str] = set()
        self._inner, server.proxy.before = server.proxy.before, self._before

    def _before(self, request: Request) -> Answer | None:
        _, _, rest = request.headers.get("authorization", "").partition("Credential=")
        self.seen.add(rest.partition("/")[0])
        return self._inner(request) if self._inner is not None else None


async def all_calls(blocks: BlockStore, name: str) -> None:
    """A body by obstore, and the calls that go through boto3."""
    namespace = "s3://tarn/lake"
    key = BlockKey(namespace, f"data/{name}")
    await blocks.put(key, name.encode())
    assert await blocks.read(key) == name.encode()
    await blocks.delete_many(namespace, [key.path])


async def test_new_keys_sign_everything_and_no_call_fails(server: S3Server) -> None:
    changes = SecretChanges()
    blocks = await open_blocks(configured(server, OLD), SystemClock(), secrets=changes)
    (use,) = changes.users
    signers, stopping = Signers(server), asyncio.Event()
    await all_calls(blocks, "first")

    async def load_on(number: int) -> int:
        count = 0
        while not stopping.is_set():
            await all_calls(blocks, f"load-{number}-{count}")
            count += 1
        return count

    async with asyncio.TaskGroup() as group:
        loads = [group.create_task(load_on(number)) for number in range(2)]
        await all_calls(blocks, "before")
        await use(configured(server, NEW))
        await all_calls(blocks, "after")
        stopping.set()
    assert all(load.result() > 0 for load in loads)
    assert signers.seen == {OLD[0], NEW[0]}
    signers.seen.clear()
    await all_calls(blocks, "last")
    assert signers.seen == {NEW[0]}
    await blocks.close()


async def test_wrong_or_missing_keys_leave_the_old_ones_in_use(server: S3Server) -> None:
    changes = SecretChanges()
    blocks = await open_blocks(configured(server, OLD), SystemClock(), secrets=changes)
    (use,) = changes.users
    with pytest.raises(TarnError, match=r"blockstore\.s3\.credentials") as wrong:
        await use(configured(server, WRONG))
    assert wrong.value.kind is Kind.INVALID
    assert WRONG[1] not in wrong.value.message
    with pytest.raises(TarnError, match="were removed"):
        await use(configured(server, None))
    signers = Signers(server)
    await use(configured(server, OLD))
    assert signers.seen == set()
    await all_calls(blocks, "still")
    assert signers.seen == {OLD[0]}
    await use(configured(server, NEW))
    await all_calls(blocks, "mended")
    await blocks.close()


async def test_a_missing_file_of_the_authorities_is_told(server: S3Server) -> None:
    missing = Path("/nowhere/ca.pem")
    with pytest.raises(TarnError, match=r"/nowhere/ca\.pem") as told:
        await open_blocks(with_authority(configured(server, OLD), missing), SystemClock())
    assert told.value.kind is Kind.INVALID


def with_authority(config: Config, ca: Path) -> Config:
    s3 = replace(config.blockstore.s3, tls=replace(config.blockstore.s3.tls, ca=ca))
    return replace(config, blockstore=replace(config.blockstore, s3=s3))


@pytest.fixture
def adopted(monkeypatch: pytest.MonkeyPatch) -> list[Wire]:
    """Which clients stores take into use after they were opened."""
    adopted, adopt = list[Wire](), Wire.adopt

    def noted(self: Wire, other: Wire) -> None:
        adopted.append(other)
        adopt(self, other)

    monkeypatch.setattr(Wire, "adopt", noted)
    return adopted


@pytest.mark.parametrize("keys", [OLD, None])
async def test_another_authority_makes_new_clients_once(
    server: S3Server,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    adopted: list[Wire],
    keys: tuple[str, str] | None,
) -> None:
    """Also where the machine gives the keys."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", OLD[0])
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", OLD[1])
    ca, changes = Authority(tmp_path).path, SecretChanges()
    config = with_authority(configured(server, keys), ca)
    blocks = await open_blocks(config, SystemClock(), secrets=changes)
    for use in changes.users:
        await use(config)
    assert adopted == []
    Authority(tmp_path)  # takes the place of the first
    for use in (*changes.users, *changes.users):
        await use(config)
    assert len(adopted) == 1
    await all_calls(blocks, "authority")
    await blocks.close()


async def test_an_authority_is_used_with_the_keys_in_use(
    server: S3Server, tmp_path: Path, adopted: list[Wire]
) -> None:
    """Keys that were refused or removed are not taken with it."""
    ca, changes = Authority(tmp_path).path, SecretChanges()
    config = with_authority(configured(server, OLD), ca)
    blocks = await open_blocks(config, SystemClock(), secrets=changes)
    use_keys, use_authorities = changes.users
    await use_keys(with_authority(configured(server, NEW), ca))
    for keys in (WRONG, None):
        Authority(tmp_path)  # takes the place of the one before
        changed = with_authority(configured(server, keys), ca)
        with pytest.raises(TarnError):
            await use_keys(changed)
        signers = Signers(server)
        await use_authorities(changed)
        await all_calls(blocks, "authority")
        assert signers.seen == {NEW[0]}
    assert len(adopted) == 3
    await blocks.close()
