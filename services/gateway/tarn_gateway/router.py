"""Selects the row of the table of S3 operations for a request, by address, method, and the selecting
parameters and header.

Every request ends in a `Row`, or in the refusal that S3 gives for it, by name. An operation that is
not offered must never be mistaken for an offered one (`PUT ?acl` is not PutObject). So the selecting
parameters of the whole table count for every request: `PUT /bucket/key?uploads` is not PutObject either.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import Final

from tarn_gateway.http import Headers
from tarn_gateway.operation import COPY_SOURCE, Addressed, NotOffered
from tarn_gateway.operations.not_offered import NOT_OFFERED
from tarn_gateway.operations.table import OPERATIONS, Row
from tarn_gateway.requests.address import Address
from tarn_gateway.requests.query import Query
from tarn_gateway.s3error import S3Error

__all__ = ["route"]

AnyRow = Row | NotOffered
Selectors = frozenset[str]

_LIST_TYPE: Final = "list-type"
_LIST_TYPES: Final[Mapping[str, Selectors]] = {
    "": frozenset(),
    "1": frozenset(),
    "2": frozenset({f"{_LIST_TYPE}=2"}),
}
"""The only parameter that selects by its value; version 1 of listings has no such parameter."""

_NOTHING: Final[Selectors] = frozenset()
_COPIES: Final[Selectors] = frozenset({COPY_SOURCE})


def _selectors_of(row: AnyRow) -> Selectors:
    return frozenset(row.selected_by.split())


def _all_selectors_of(row: AnyRow) -> list[Selectors]:
    selectors = _selectors_of(row)
    narrowed = isinstance(row, Row) and row.narrowed_by
    return [selectors, selectors | {narrowed}] if narrowed else [selectors]


def _rows_of(addressed: Addressed) -> dict[tuple[str, Selectors], AnyRow]:
    rows = [row for row in (*OPERATIONS, *NOT_OFFERED) if row.addressed is addressed]
    pairs = [(row.method, selectors, row) for row in rows for selectors in _all_selectors_of(row)]
    found = {(method, selectors): row for method, selectors, row in pairs}
    assert len(found) == len(pairs), "two rows of the table match one request"
    return found


def _allowed(rows: Mapping[tuple[str, Selectors], AnyRow]) -> dict[Selectors, list[str]]:
    """Returns the methods of each set of selectors, for the header `Allow`."""
    methods = defaultdict(list)
    for (method, selectors), row in rows.items():
        if isinstance(row, Row):
            methods[selectors].append(method)
    return dict(methods)


_ROWS: Final = {addressed: _rows_of(addressed) for addressed in Addressed}
_OF_SERVICE, _OF_BUCKET, _OF_KEY = (
    ({method: row for (method, selectors), row in rows.items() if not selectors}, rows)
    for rows in _ROWS.values()
)
"""Rows that a method alone selects, and all rows."""
_ALLOWED: Final = {addressed: _allowed(rows) for addressed, rows in _ROWS.items()}

_OFFERED: Final = frozenset().union(*map(_selectors_of, OPERATIONS))
_PARAMETERS: Final = frozenset(
    name.partition("=")[0] for row in (*OPERATIONS, *NOT_OFFERED) for name in _selectors_of(row)
) - {COPY_SOURCE}
_COPYING: Final = frozenset(row.method for row in OPERATIONS if COPY_SOURCE in _selectors_of(row))


def route(method: str, address: Address, query: Query, headers: Headers) -> Row:
    """Returns the operation of a request.

    Raises:
        S3Error: NotImplemented for an operation that is not offered, with its name; MethodNotAllowed, with
            the allowed methods; InvalidArgument for parameters that cannot be combined.
    """
    plain, rows = _OF_KEY if address.key else _OF_BUCKET if address.bucket else _OF_SERVICE
    parameters = query.values
    row: AnyRow | None
    copies = method in _COPYING and COPY_SOURCE in headers
    if parameters or copies:
        selectors = _PARAMETERS.intersection(parameters)
        if _LIST_TYPE in selectors:
            selectors = _with_list_type(selectors, parameters[_LIST_TYPE])
        if copies:
            selectors |= _COPIES
        row = rows.get((method, selectors))
    else:
        selectors = _NOTHING
        row = plain.get(method)
    if row.__class__ is Row:
        return row
    raise _refusal(method, address, selectors, row)


def _with_list_type(selectors: Selectors, value: str) -> Selectors:
    if value not in _LIST_TYPES:
        raise S3Error(
            "InvalidArgument",
            "list-type must be 1 or 2.",
            ArgumentName=_LIST_TYPE,
            ArgumentValue=value[:80],
        )
    return selectors - {_LIST_TYPE} | _LIST_TYPES[value]


def _refusal(method: str, address: Address, selectors: Selectors, row: AnyRow | None) -> S3Error:
    if isinstance(row, NotOffered):
        text = f"{row.name} is not implemented. {row.why}".rstrip()
        return S3Error("NotImplemented", text, Operation=row.name)
    addressed = (
        Addressed.KEY if address.key else Addressed.BUCKET if address.bucket else Addressed.SERVICE
    )
    if unknown := selectors - _OFFERED:
        name = min(unknown)
        text = f"The parameter {name} is not implemented."
        return S3Error("NotImplemented", text, Parameter=name)
    for other_method, others in _ROWS[addressed]:
        if selectors and other_method == method and selectors < others - _COPIES:
            (missing, *_) = sorted(others - selectors - _COPIES)
            text = f"{_listed(selectors)} needs {missing}, too."
            return S3Error("InvalidArgument", text, ArgumentName=missing)
    allowed = _ALLOWED[addressed].get(selectors)
    if allowed:
        on = f"{_listed(selectors)} of {addressed.value}" if selectors else addressed.value
        text = f"The method {method[:20]} is not allowed on {on}."
        headers = {"Allow": ", ".join(allowed)}
        return S3Error("MethodNotAllowed", text, headers=headers, Method=method[:20])
    text = f"{_listed(selectors)} select no operation on {addressed.value}."
    return S3Error("InvalidArgument", text, ArgumentName=min(selectors))


def _listed(selectors: Selectors) -> str:
    return ", ".join(sorted(selectors))
