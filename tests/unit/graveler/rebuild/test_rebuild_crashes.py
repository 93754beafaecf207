"""A rebuild that dies at any of its writes is safe: nothing opens the store, and the next attempt completes it."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import pytest
from rebuild_lab import INSTALLATION, rebuild_lab, records_of

from tarn.core.errors import TarnError
from tarn.kv.fence import check_open
from tarn.kv.mem import MemKv
from tarn.snapshot.store.layout import is_empty

_WRITES = {"set_many", "set_if", "delete_many", "delete_if", "drop_partition", "put"}


class Died(BaseException):
    """The process is gone."""


class Life:
    """Counts the moments at which a process may die, and lets it die at one of them."""

    def __init__(self, die_at: int) -> None:
        self.moments = 0
        self.die_at = die_at

    def step(self) -> None:
        self.moments += 1
        if self.moments == self.die_at:
            raise Died


class Mortal:
    """A store whose process may die before and after each write: the write is then made, or not."""

    def __init__(self, store: Any, life: Life) -> None:
        self._store = store
        self._life = life

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._store, name)
        if name not in _WRITES:
            return method

        async def write(*values: Any, **options: Any) -> Any:
            self._life.step()
            answer = method(*values, **options)
            result = await answer if inspect.isawaitable(answer) else answer
            self._life.step()
            return result

        return write


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
                await lab.rebuild(Mortal(target, life), blocks=blocks)  # type: ignore[arg-type]
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
