"""Refs, names and paths as clients write them."""

from __future__ import annotations

from tests.fuzz.targets.refusals import gateway
from tests.support.fuzz.target import PropertyError, Target

from tarn.core.errors import Kind, TarnError
from tarn.core.ids import (
    parse_branch_id,
    parse_path,
    parse_repository_id,
    parse_tag_id,
    parse_user_id,
)
from tarn.core.moments import Ago, At, Back, Moment, iso_time
from tarn.core.refs import branch_to_write, is_commit_id, may_be_prefix, parse_ref
from tarn_gateway.http import BodyReader, Headers, Request
from tarn_gateway.s3error import S3Error

__all__ = ["TARGET"]

_YEAR_1, _YEAR_9999 = -62_135_596_800_000_000, 253_370_764_800_000_000
_UNITS = (("weeks", 604_800), ("days", 86_400), ("hours", 3600), ("minutes", 60), ("seconds", 1))
_REQUEST = Request("GET", b"/lake", b"", Headers([]), BodyReader(0))


def _check(data: bytes) -> str:
    # Surrogates: paths from a command line may not be UTF-8; requests never contain them.
    text = data.decode("utf-8", "surrogateescape")
    words = []
    for parse in (
        _ref,
        parse_repository_id,
        parse_branch_id,
        parse_tag_id,
        parse_user_id,
        parse_path,
    ):
        try:
            parse(text)
            words.append("taken")
        except TarnError as error:
            if error.kind is not Kind.INVALID:
                raise PropertyError(f"a name is answered {error!r}") from error
            words.append(error.reason)
    return " ".join(words)


def _ref(text: str) -> None:
    found = parse_ref(text)
    spelled = found.base
    if isinstance(found.moment, At) and not _YEAR_1 <= found.moment.time_us < _YEAR_9999:
        return  # a zone puts it outside of the calendar, which cannot be written in UTC
    if found.moment is not None:
        spelled += f"@{{{_spelled(found.moment)}}}"
    elif found.committed and not found.steps:
        spelled += "@"
    spelled += "".join(f"{'^' if step.is_parent else '~'}{step.count}" for step in found.steps)
    if len(spelled) <= 512 and parse_ref(spelled) != found:
        raise PropertyError(f"{spelled!r} is not what {text!r} says")
    if is_commit_id(found.base) and may_be_prefix(found.base):
        raise PropertyError("an id is no prefix of itself")
    gateway(_REQUEST, lambda: branch_to_write(text))


def _spelled(moment: Moment) -> str:
    match moment:
        case Back(count):
            return str(count)
        case At(time_us):
            return iso_time(time_us)
        case Ago(age_us):
            seconds = age_us // 1_000_000
            for unit, length in _UNITS:
                if not seconds % length and seconds // length < 1_000_000:
                    return f"{seconds // length} {unit} ago"
    raise PropertyError(f"{moment} cannot be written")


TARGET = Target(
    "refs",
    _check,
    refusals=(TarnError, S3Error),
    traced=("tarn.core.refs", "tarn.core.moments", "tarn.core.ids", "tarn_gateway.s3request"),
    tokens=(
        b"~",
        b"^",
        b"@",
        b"@{",
        b"}",
        b"@{2}",
        b" days ago",
        b".weeks.ago",
        b"2026-11-01",
        b"T12:30:00.5Z",
        b"+01:30",
        b"~999999",
        b"^0",
        b"main",
        b"a" * 64,
        b"-",
        b".",
        b"/",
        b"\n",
        b"\xff",
    ),
    input_bytes_max=2048,
    share=0.25,
)
