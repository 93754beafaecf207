"""Names of refs that fields offer: browsers search in them while somebody types, without a script.

A page offers the first names only. Whoever types the beginning of another one gets those that begin with it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from tarn.core.errors import Kind, Reason, TarnError
from tarn_api.context import Context

__all__ = ["Missing", "branches_offered", "missing_of", "refs_offered"]

OFFERED_MAX: Final = 200
"""Names of each kind that a page offers; it has them all in itself."""
_SIMILAR_MAX: Final = 20


@dataclass(frozen=True, slots=True)
class Missing:
    """A ref that does not exist.

    Attributes:
        field: of the form that names it.
        name: as it was written.
        similar: some names that begin with it.
    """

    field: str
    name: str
    similar: list[str]


async def branches_offered(
    context: Context, repository: str, prefix: str = "", amount: int = 0
) -> list[str]:
    """Returns the first names of branches that begin with a prefix; none to whoever may not list them."""
    with _unless_denied():
        page = await context.graveler.list_branches(
            context.read(), repository, prefix=prefix, page_size=amount or OFFERED_MAX
        )
        return [each.branch_id for each in page.branches]
    return []


async def refs_offered(
    context: Context, repository: str, prefix: str = "", amount: int = 0
) -> list[str]:
    """Returns the first names of branches and tags that begin with a prefix; none to whoever may not list them."""
    found = await branches_offered(context, repository, prefix, amount)
    with _unless_denied():
        page = await context.graveler.list_tags(
            context.read(), repository, prefix=prefix, page_size=amount or OFFERED_MAX
        )
        found += [each.tag_id for each in page.tags]
    return found


@contextmanager
def _unless_denied() -> Iterator[None]:
    try:
        yield
    except TarnError as error:
        if error.kind is not Kind.DENIED:
            raise


async def missing_of(
    context: Context, repository: str, fields: Iterable[tuple[str, str]], error: TarnError
) -> Missing:
    """Returns the field whose ref does not exist, with names that begin with what was written.

    Args:
        context: of the request.
        repository: the repository.
        fields: names of fields with the refs that they name.
        error: of graveler.

    Raises:
        TarnError: the error, if it is about something else.
    """
    name = error.metadata.get("ref", "")
    field = next((field for field, ref in fields if ref == name), "")
    if error.reason is not Reason.REF_NOT_FOUND or not field:
        raise error
    return Missing(field, name, await refs_offered(context, repository, name, _SIMILAR_MAX))
