"""Refs, names and paths as clients write them."""

from __future__ import annotations

from tests.fuzz.targets.refusals import gateway

from tarn.core.errors import Kind, TarnError
from tarn.core.ids import (
    parse_branch_id,
    parse_path,
    parse_repository_id,
    parse_tag_id,
    parse_user_id,
)
from tarn.core.refs import is_commit_id, may_be_prefix, parse_ref
from tarn.testing.fuzz.target import PropertyError, Target
from tarn_gateway.http import BodyReader, Headers, Request
from tarn_gateway.s3error import S3Error
from tarn_gateway.s3request import branch_to_write

__all__ = ["TARGET"]

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
    if found.committed and not found.steps:
        spelled += "@"
    spelled += "".join(f"{'^' if step.is_parent else '~'}{step.count}" for step in found.steps)
    if parse_ref(spelled) != found and len(spelled) <= 512:
        raise PropertyError(f"{spelled!r} is not what {text!r} says")
    if is_commit_id(found.base) and may_be_prefix(found.base):
        raise PropertyError("an id is no prefix of itself")
    gateway(_REQUEST, lambda: branch_to_write(text))


TARGET = Target(
    "refs",
    _check,
    refusals=(TarnError, S3Error),
    traced=("tarn.core.refs", "tarn.core.ids", "tarn_gateway.s3request"),
    tokens=(
        b"~",
        b"^",
        b"@",
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
