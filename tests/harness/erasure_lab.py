"""Erasures over the real graveler, and a lake with objects to erase."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from collector_lab import CollectorLab

from tarn.client.erasures import ErasureClient
from tarn.collection.erasing import Eraser

__all__ = ["erased", "eraser_of", "history", "over", "planned"]


def eraser_of(lab: CollectorLab) -> Eraser:
    return Eraser(lab.collector, ErasureClient(lab.service.transport), "ann")


async def erased(lab: CollectorLab, block: str) -> str:
    """The plan that erased a block, as a gateway asks; empty if none did."""
    address = bytes.fromhex(block.rpartition("/")[2])
    return await lab.service.graveler.find_erased(lab.admin, "lake", "main", "any", address)


async def history(lab: CollectorLab) -> dict[str, str]:
    """A lake with an object of user 7 in a commit, in an older one, in staged rows, and others beside it."""
    blocks = {"old": await lab.put("main", "users/7/a", b"old")}
    blocks["other"] = await lab.put("main", "users/77/a", b"other")
    await lab.commit("main")
    await lab.service.graveler.create_branch(lab.admin, "lake", "side", "main")
    blocks["new"] = await lab.put("main", "users/7/a", b"newer")
    await lab.commit("main")
    blocks["hidden"] = await lab.put("side", "users/7/b", b"h")
    await lab.commit("side")
    await lab.service.graveler.unstage(lab.admin, "lake", "side", "users/7/b")
    blocks["staged"] = await lab.put("side", "users/7/deep/c", b"staged")
    return blocks


async def planned(lab: CollectorLab, pattern: str = "users/7/**") -> tuple[dict[str, str], str]:
    blocks = await history(lab)
    await lab.pass_days(2)
    return blocks, (await eraser_of(lab).plan("lake", pattern)).plan_id


def over(lab: CollectorLab, **changed: object) -> Eraser:
    """An eraser whose store has other methods."""
    store = lab.collector.blocks

    class Changed:
        """The store of the lab, with some methods replaced."""

        def __getattr__(self, name: str) -> object:
            return changed.get(name) or getattr(store, name)

        async def kept_versions(self, namespace: str) -> str:
            """As the store, or as the test says."""
            return str(changed.get("versions", ""))

    blocks: Any = Changed()
    return replace(eraser_of(lab), collector=replace(lab.collector, blocks=blocks))
