"""A rebuild that dies at any of its writes is safe: nothing opens the store, and the next attempt completes it."""

from __future__ import annotations

from pathlib import Path

import pytest
from rebuild_lab import INSTALLATION, Died, Life, Mortal, rebuild_lab, records_of

from tarn.core.errors import TarnError
from tarn.kv.fence import check_open
from tarn.kv.mem import MemKv
from tarn.snapshot.store.layout import is_empty


@pytest.mark.timeout(600)
async def test_a_rebuild_may_die_at_each_write_and_is_then_repeated(tmp_path: Path) -> None:
    """Each attempt tells the same, also when the one before had begun epochs."""
    async with rebuild_lab(tmp_path) as lab:
        await lab.lake.put("a", 1)
        await lab.lake.commit("first")
        await lab.lake.put("b", 2)
        await lab.lake.delete("a")
        await lab.drain()
        await lab.remove(lab.lake.repository.storage_namespace, (await lab.pass_files())[0])
        whole = await lab.rebuild()
        assert not whole.is_whole, "so that a repetition has something to tell"
        wanted = await records_of(lab.target, lab.lake.repository)
        moment = deaths = 0
        while True:
            moment += 1
            target, life = MemKv(), Life(moment)
            blocks = Mortal(lab.replicas.blocks, life)
            try:
                await lab.rebuild(Mortal(target, life), blocks=blocks)
            except Died:
                deaths += 1
            else:
                break
            if not await is_empty(target, INSTALLATION):
                try:
                    await check_open(target, INSTALLATION)
                except TarnError:
                    pass
                else:  # it died after its last write
                    assert await records_of(target, lab.lake.repository) == wanted
                    continue
            again = await lab.rebuild(target)
            assert again.as_record() == whole.as_record(), f"moment {moment}"
            assert await records_of(target, lab.lake.repository) == wanted, f"moment {moment}"
            await check_open(target, INSTALLATION)
        assert deaths > 20
