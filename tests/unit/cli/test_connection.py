from dataclasses import dataclass

import pytest

from tarn_cli.connection import collect


@dataclass(frozen=True, slots=True)
class NumberPage:
    numbers: list[int]
    next_page_token: str


class Numbers:
    """A listing of `count` numbers, in pages of the requested size."""

    def __init__(self, count: int, page_max: int = 1000) -> None:
        self.count = count
        self.page_max = page_max
        self.requests: list[tuple[int, str]] = []

    async def page(self, size: int, token: str) -> NumberPage:
        self.requests.append((size, token))
        start = int(token or 0)
        end = min(self.count, start + min(size, self.page_max))
        return NumberPage(list(range(start, end)), str(end) if end < self.count else "")


@pytest.mark.parametrize(("count", "limit"), [(0, 0), (5, 0), (2500, 0), (2500, 7), (2500, 1500)])
async def test_as_many_pages_are_read_as_the_limit_needs(count: int, limit: int) -> None:
    numbers = Numbers(count)
    found = await collect(numbers.page, lambda page: page.numbers, limit)
    assert found == list(range(min(count, limit) if limit else count))
    assert all(int(token or 0) + size <= limit for size, token in numbers.requests if limit)


async def test_short_and_empty_pages_are_no_end() -> None:
    numbers = Numbers(10, page_max=3)
    assert await collect(numbers.page, lambda page: page.numbers, 8) == list(range(8))
    assert len(numbers.requests) == 3
