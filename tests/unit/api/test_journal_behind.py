"""A repository whose bucket takes no files of the journal refuses writes, and says when to try again."""

from __future__ import annotations

from pathlib import Path

from rest_service import running_rest

from tarn.block.mem import MemBlockStore
from tarn.block.port import BlockKey
from tarn.core.errors import Kind, Reason, TarnError

OBJECT = "/repositories/lake/branches/main/objects?path=a"


class RefusingBlocks(MemBlockStore):
    """Takes no files of the journal while `refuses`."""

    refuses = False

    async def put(self, key: BlockKey, data: bytes | bytearray | memoryview) -> None:
        if self.refuses and key.path.startswith("_tarn/journal/"):
            raise TarnError(Kind.UNAVAILABLE, Reason.UNAVAILABLE, "the bucket is read-only")
        await super().put(key, data)


async def test_uploads_wait_for_the_bucket_and_deletes_do_not(tmp_path: Path) -> None:
    async with running_rest(tmp_path, store=RefusingBlocks, keeps_events=True) as rest:
        blocks, drain = rest.service.replicas.blocks, rest.service.replica.drain
        assert isinstance(blocks, RefusingBlocks)
        assert drain is not None
        assert (await rest.ask("POST", OBJECT, b"1")).status == 201
        await drain.round()
        blocks.refuses = True
        assert (await rest.ask("POST", OBJECT, b"2")).status == 201
        for _ in range(2):
            rest.service.clock.advance(3600)
            await drain.round()
        refused = await rest.ask("POST", OBJECT, b"3")
        assert refused.status == 503
        assert int(refused.headers["retry-after"]) >= 1
        assert "lake takes no writes now" in refused.message
        assert (await rest.ask("GET", f"{OBJECT.replace('branches', 'refs')}")).body == b"2"
        assert (await rest.ask("DELETE", OBJECT)).status == 204
        blocks.refuses = False
        await drain.round()
        assert (await rest.ask("POST", OBJECT, b"4")).status == 201
