"""Runs of erasures discard what is uncommitted: which entries, when, and what stops them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from collector_lab import CollectorLab, collector_lab
from erasure_lab import erased, eraser_of, over
from graveler_service import reason_of
from lake_rules import ALL, protect

from tarn.block.rangefile import metarange_path
from tarn.client.erasures import ErasureClient
from tarn.collection import erase_uncommitted
from tarn.collection.erasure_files import read_certificate, read_plan
from tarn.core.entry import Entry, pack
from tarn.core.erasure import ADDRESSES_MAX
from tarn.core.errors import Kind, Reason, TarnError
from tarn.core.listing.metarange import EMPTY_METARANGE
from tarn_graveler.guards.address_age import AddressAge
from tarn_proto.graveler.v1 import collection_service_pb2 as collection_pb
from tarn_proto.graveler.v1 import erasure_service_pb2 as pb
from tarn_proto.graveler.v1.settings_service_pb2 import Protection

RUN = "d" * 32


@pytest.fixture
async def lab(tmp_path: Path) -> AsyncIterator[CollectorLab]:
    async with collector_lab(tmp_path) as lab:
        yield lab


def address_of(block: str) -> bytes:
    return bytes.fromhex(block.rpartition("/")[2])


async def branches(lab: CollectorLab) -> dict[str, str]:
    """Branches with uncommitted objects of user 7: staged, compacted, over a committed one; returns the blocks."""
    blocks = {"committed": await lab.put("main", "users/7/a"), "other": await lab.put("main", "b")}
    await lab.commit("main")
    for name in ("side", "quiet"):
        await lab.service.graveler.create_branch(lab.admin, "lake", name, "main")
    blocks["over"] = await lab.put("main", "users/7/a", b"over")
    blocks["folded"] = await lab.put("side", "users/7/folded")
    blocks["beside"] = await lab.put("side", "beside")
    await lab.service.graveler.compact_branch(lab.admin, "lake", "side")
    blocks["staged"] = await lab.put("side", "users/7/staged")
    blocks["again"] = await lab.put("side", "users/7/again")
    await lab.pass_days(2)
    return blocks


async def test_a_run_discards_what_is_uncommitted_and_says_so(lab: CollectorLab) -> None:
    blocks = await branches(lab)
    plan = await eraser_of(lab).plan("lake", "users/7/**")
    assert plan.uncommitted == {"main": 1, "side": 3}
    namespace, store = lab.namespace, lab.collector.blocks
    assert (await read_plan(store, namespace, plan.plan_id)).uncommitted == plan.uncommitted
    again = await lab.put("side", "users/7/again", b"anew")
    done = await eraser_of(lab).run("lake", plan.plan_id)
    assert done.discarded == {"main": 1, "side": 2}
    found = await read_certificate(store, namespace, plan.plan_id)
    assert found is not None
    assert found.discarded == done.discarded
    assert await lab.readable("main") == {"users/7/a": blocks["committed"], "b": blocks["other"]}
    assert await lab.readable("side") == {
        **await lab.readable("quiet"),
        "beside": blocks["beside"],
        "users/7/again": again,
    }
    await lab.commit("side")
    assert sorted(await lab.readable("side")) == ["b", "beside", "users/7/a", "users/7/again"]
    second = await eraser_of(lab).run("lake", plan.plan_id)
    assert (second.discarded, second.certificate is not None) == ({}, True), "it may be repeated"


async def test_neither_a_protection_nor_a_read_only_repository_keeps_uncommitted_entries(
    lab: CollectorLab,
) -> None:
    """Their blocks go; what a reader cannot read need not be protected."""
    await branches(lab)
    plan = await eraser_of(lab).plan("lake", "users/7/**")
    await protect(replace(lab.service, admin=lab.admin), Protection(pattern="*", blocked=ALL))
    await lab.service.graveler.set_read_only(lab.admin, "lake", True)
    assert (await eraser_of(lab).run("lake", plan.plan_id)).discarded == {"main": 1, "side": 3}


async def test_a_branch_that_is_deleted_meanwhile_has_nothing_to_discard(lab: CollectorLab) -> None:
    await branches(lab)
    plan = await eraser_of(lab).plan("lake", "users/7/**")
    service = lab.service

    class Late(ErasureClient):
        """A branch is deleted before its entries are to go."""

        async def discard_erased(self, *arguments: Any, **how: Any) -> list[pb.DiscardOutcome]:
            with suppress(TarnError):
                await service.graveler.delete_branch(lab.admin, "lake", "side")
            return await super().discard_erased(*arguments, **how)

    eraser = replace(eraser_of(lab), client=Late(service.transport))
    done = await eraser.run("lake", plan.plan_id)
    assert (done.discarded, done.certificate is not None) == ({"main": 1}, True)


async def test_entries_go_after_the_rows_and_before_the_blocks(lab: CollectorLab) -> None:
    """No commit takes an entry that cannot be read; a run that cannot discard deletes nothing."""
    blocks = await branches(lab)
    plan = await eraser_of(lab).plan("lake", "users/7/**")
    before = await lab.blocks()
    looks: list[object] = []

    class Failing(ErasureClient):
        """Answers no request to discard."""

        async def discard_erased(self, *_: Any, **__: Any) -> list[pb.DiscardOutcome]:
            looks.append(await erased(lab, blocks["staged"]))
            raise TarnError(Kind.INTERNAL, Reason.DATA_CORRUPT, "died")

    failing = replace(eraser_of(lab), client=Failing(lab.service.transport))
    with pytest.raises(TarnError, match="died"):
        await failing.run("lake", plan.plan_id)
    assert looks == [plan.plan_id], "the rows are durable"
    assert await lab.blocks() == before

    async def delete_many(namespace: str, paths: Sequence[str]) -> None:
        looks.append(sorted(await lab.readable("side")))
        await lab.collector.blocks.delete_many(namespace, paths)

    await over(lab, delete_many=delete_many).run("lake", plan.plan_id)
    assert looks[1] == ["b", "beside", "users/7/a"]


async def test_a_row_that_lands_late_is_discarded_after_the_blocks(
    lab: CollectorLab, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the completion of an upload that is older than the plan, whose age is not checked."""
    blocks = await branches(lab)
    plan = await eraser_of(lab).plan("lake", "users/7/**")
    address = address_of(blocks["staged"])
    entry = pack(Entry(4, 0, address, address))

    async def delete_many(namespace: str, paths: Sequence[str]) -> None:
        with monkeypatch.context() as patched:
            patched.setattr(AddressAge, "check", lambda *_, **__: None)
            await lab.service.stage("users/7/staged", entry, "side", call=lab.admin)
        await lab.collector.blocks.delete_many(namespace, paths)

    done = await over(lab, delete_many=delete_many).run("lake", plan.plan_id)
    assert done.discarded == {"main": 1, "side": 4}
    assert sorted(await lab.readable("side")) == ["b", "beside", "users/7/a"]


async def test_the_empty_listing_needs_no_file(lab: CollectorLab) -> None:
    await lab.put("main", "users/7/a")
    await lab.commit("main")
    await lab.service.graveler.unstage(lab.admin, "lake", "main", "users/7/a")
    await lab.service.graveler.compact_branch(lab.admin, "lake", "main")
    await lab.pass_days(2)
    path = metarange_path(EMPTY_METARANGE.metarange_id)
    await lab.collector.blocks.delete_many(lab.namespace, [path])
    assert (await eraser_of(lab).plan("lake", "users/7/**")).uncommitted == {}


async def test_only_entries_of_erased_addresses_are_discarded(lab: CollectorLab) -> None:
    blocks = await branches(lab)
    client = ErasureClient(lab.service.transport)
    entries = [(f"users/7/{name}", address_of(blocks[name])) for name in ("staged", "again")]

    async def sent(**how: bool) -> list[pb.DiscardOutcome]:
        return await client.discard_erased(lab.admin, "lake", RUN, "side", entries, **how)

    assert await reason_of(sent()) is Reason.COLLECTION_LOST
    await lab.collector.client.begin(lab.admin, "lake", RUN, collection_pb.COLLECTION_PHASE_MARK)
    assert await sent(validate_only=True) == [pb.DISCARD_OUTCOME_DISCARDED] * 2
    await client.erase_addresses(lab.admin, "lake", RUN, "a" * 32, entries[0][1])
    assert await reason_of(sent()) is Reason.PRECONDITION_FAILED
    assert "users/7/staged" in await lab.readable("side")
    await client.erase_addresses(lab.admin, "lake", RUN, "a" * 32, entries[1][1])
    assert await sent() == [pb.DISCARD_OUTCOME_DISCARDED] * 2
    assert await sent() == [pb.DISCARD_OUTCOME_ABSENT] * 2


@pytest.mark.parametrize(
    ("paths", "addresses"),
    [
        ([], b""),
        (["a"], b"a" * 32),
        (["a", "b"], b"a" * 16),
        (["a"], b"short"),
        ([""], b"a" * 16),
        (["a"] * (ADDRESSES_MAX + 1), b"a" * 16 * (ADDRESSES_MAX + 1)),
    ],
)
async def test_a_page_is_bounded_and_checked(
    lab: CollectorLab, paths: list[str], addresses: bytes
) -> None:
    request = pb.DiscardErasedRequest(
        repository_id="lake", run_id=RUN, branch_id="main", paths=paths, addresses=addresses
    )
    service = pb.DESCRIPTOR.services_by_name["ErasureService"]
    answer = lab.service.transport.unary(service, "DiscardErased", request, lab.admin)
    with pytest.raises(TarnError) as caught:
        await answer
    assert caught.value.kind is Kind.INVALID


async def test_more_entries_than_memory_holds_end_the_run_before_it_deletes(
    lab: CollectorLab, monkeypatch: pytest.MonkeyPatch
) -> None:
    await branches(lab)
    plan = await eraser_of(lab).plan("lake", "users/7/**")
    before = await lab.blocks()
    monkeypatch.setattr(erase_uncommitted, "ROWS_MAX", 2)
    with pytest.raises(TarnError, match="nothing was deleted"):
        await eraser_of(lab).run("lake", plan.plan_id)
    assert await lab.blocks() == before
