"""A conditional completion is decided once, by the row that its comparison met."""

import pytest
from lake import Lake, Running, ended, reached
from lake_upload import Upload, seal_main

from tarn.core.condition import WriteCondition
from tarn.core.errors import Kind, TarnError
from tarn.kv.port import OutcomeUnknownError

NEW = WriteCondition(if_none_match=True)
ANY_OBJECT = WriteCondition(if_match="*")


async def test_a_conditional_completion_is_refused_and_staged_by_its_condition(
    lake: Lake, upload: Upload
) -> None:
    await lake.put("k", 2)
    with pytest.raises(TarnError) as raised:
        await upload.finish(condition=NEW)
    assert raised.value.kind is Kind.FAILED_PRECONDITION
    await lake.delete("k")
    await upload.finish(condition=NEW)
    assert await lake.get("k") == 1


async def test_a_conditional_completion_that_was_written_over_is_never_refused_nor_repeated(
    lake: Lake, other: Lake, upload: Upload, running: Running
) -> None:
    await upload.dies_after_its_row(running, NEW)
    await other.delete("k")  # acknowledged: it saw the object
    await upload.take_over(other)
    with pytest.raises(OutcomeUnknownError):
        await upload.finish(other, NEW)
    assert await other.get("k") is None


async def test_a_refusal_is_unknown_while_an_earlier_attempt_may_still_land(
    lake: Lake, other: Lake, upload: Upload, running: Running
) -> None:
    held = lake.kv.hold("set_if", lake.row_key("k"))
    first = running.start(upload.finish(condition=NEW))
    await reached(held)
    await seal_main(other)
    await other.put("k", 2)
    with pytest.raises(OutcomeUnknownError):
        await upload.finish(other, NEW)
    held.open()
    await ended(first)
    assert await other.get("k") == 2


@pytest.mark.parametrize("condition", [NEW, ANY_OBJECT])
async def test_a_loser_of_a_race_is_judged_by_the_row_that_won(
    lake: Lake, other: Lake, upload: Upload, running: Running, condition: WriteCondition
) -> None:
    if condition is ANY_OBJECT:
        await lake.put("k", 3)
    held = lake.kv.hold("set_if", lake.row_key("k"))
    first = running.start(upload.finish(condition=condition))
    await reached(held)
    await other.put("k", 2)
    held.open()
    await ended(first)
    if condition is ANY_OBJECT:
        assert first.exception() is None
        assert await other.get("k") == 1
        return
    error = first.exception()
    assert isinstance(error, TarnError)
    assert error.kind is Kind.FAILED_PRECONDITION  # surely nothing was staged
    assert await other.get("k") == 2
    await other.delete("k")
    await upload.finish(condition=NEW)  # no unknown outcome remains
    assert await other.get("k") == 1


async def test_a_comparison_whose_answer_is_lost_is_settled_by_its_own_row(
    lake: Lake, upload: Upload
) -> None:
    await lake.put("k", 2)
    lake.kv.lose("set_if", lake.row_key("k"), applied=True)
    await upload.finish(condition=ANY_OBJECT)
    assert await lake.get("k") == 1


async def test_a_comparison_whose_answer_is_lost_is_settled_by_its_own_row_only(
    lake: Lake, upload: Upload
) -> None:
    await lake.put("k", 2)
    lake.kv.lose("set_if", lake.row_key("k"), applied=False)
    with pytest.raises(OutcomeUnknownError):
        await upload.finish(condition=ANY_OBJECT)
    assert await lake.get("k") == 2
