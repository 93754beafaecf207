"""Identifiers: one type per noun, parsed once at the edge and passed inward as that type.

Every identifier that a client may send is checked here, so that no lower layer builds a key, a path or a query
from an unchecked string. The order of Python's `str` equals UTF-8 byte order, so sorted paths agree with the
order of KV keys.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from functools import lru_cache
from typing import NewType

from tarn.core.errors import Kind, Reason, TarnError

__all__ = [
    "address_time_us",
    "RepositoryId",
    "BranchId",
    "TagId",
    "CommitId",
    "RangeId",
    "MetarangeId",
    "TokenId",
    "UploadId",
    "TaskId",
    "UserId",
    "AccessKeyId",
    "PATH_BYTES_MAX",
    "parse_repository_id",
    "parse_branch_id",
    "parse_commit_id",
    "parse_new_branch_id",
    "parse_new_tag_id",
    "parse_tag_id",
    "parse_path",
    "parse_user_id",
    "physical_path",
]

RepositoryId = NewType("RepositoryId", str)
BranchId = NewType("BranchId", str)
TagId = NewType("TagId", str)
CommitId = NewType("CommitId", str)  # 64 lower-case hex digits, SHA-256 of the canonical commit
RangeId = NewType("RangeId", str)  # 64 lower-case hex digits, SHA-256 of the range's logical rows
MetarangeId = NewType("MetarangeId", str)  # likewise, of the metarange's rows
TokenId = NewType("TokenId", str)  # 32 hex digits of a UUIDv7, never reused
UploadId = NewType("UploadId", str)  # 32 hex digits of a UUIDv7
TaskId = NewType("TaskId", str)  # 32 hex digits of a UUIDv7
UserId = NewType("UserId", str)
AccessKeyId = NewType("AccessKeyId", str)

PATH_BYTES_MAX = 1024
"""S3's limit on a key, in UTF-8 bytes, applied to the path inside the repository."""

_REPOSITORY = re.compile(r"[a-z0-9][a-z0-9-]{2,62}")
_REF_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}")
_COMMIT = re.compile(r"[0-9a-f]{64}")
_HEX_64 = re.compile(r"[0-9A-Fa-f]{64}")
_USER = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.@+-]{0,127}")


def _invalid(what: str, value: str, rule: str) -> TarnError:
    shown = value if len(value) <= 80 else value[:80] + "…"
    return TarnError(
        Kind.INVALID, Reason.INVALID_ARGUMENT, f"{what} {shown!r} {rule}", field=what, value=shown
    )


def parse_repository_id(value: str) -> RepositoryId:
    """Parses a repository's name, which is also an S3 bucket name: 3 to 63 characters of `a-z 0-9 -`."""
    if not _REPOSITORY.fullmatch(value):
        rule = "must be 3 to 63 characters of a-z, 0-9 and '-', not starting with '-'"
        raise _invalid("repository", value, rule)
    return RepositoryId(value)


def _parse_ref_name(what: str, value: str) -> str:
    if not _REF_NAME.fullmatch(value):
        rule = "must be 1 to 128 characters of A-Z, a-z, 0-9, '_', '.' and '-'"
        raise _invalid(what, value, f"{rule}, starting with a letter, digit or '_'")
    if _COMMIT.fullmatch(value):
        raise _invalid(what, value, "looks like a commit id")
    return value


def _refuse_as_new(what: str, value: str) -> None:
    if _HEX_64.fullmatch(value):
        raise _invalid(what, value, "has the form of a commit id; choose another name")
    if ".." in value:
        raise _invalid(what, value, "contains '..', which separates two refs; choose another name")


def parse_new_branch_id(value: str) -> BranchId:
    """Parses the name of a branch that is to be made.

    It is no commit id in any spelling, and no range such as `main..dev`. Older releases made such branches, so names of
    branches that exist are parsed by `parse_branch_id`.
    """
    branch_id = parse_branch_id(value)
    _refuse_as_new("branch", value)
    return branch_id


def parse_new_tag_id(value: str) -> TagId:
    """Parses the name of a tag that is to be made; the same rules as for a branch."""
    tag_id = parse_tag_id(value)
    _refuse_as_new("tag", value)
    return tag_id


def parse_branch_id(value: str) -> BranchId:
    """Parses a branch's name: one path segment without characters of the ref grammar (`~ ^ @ { }`)."""
    return BranchId(_parse_ref_name("branch", value))


def parse_tag_id(value: str) -> TagId:
    """Parses a tag's name; the same rules as for a branch."""
    return TagId(_parse_ref_name("tag", value))


def parse_commit_id(value: str) -> CommitId:
    """Returns a whole commit id; refuses prefixes, which may name another commit tomorrow."""
    if not _COMMIT.fullmatch(value):
        raise _invalid("commit id", value, "must be 64 lower-case hex digits")
    return CommitId(value)


def parse_user_id(value: str) -> UserId:
    """Parses a user's name: 1 to 128 letters, digits and `_ . @ + -`."""
    if not _USER.fullmatch(value):
        raise _invalid("user", value, "must be 1 to 128 of letters, digits and '_.@+-'")
    return UserId(value)


def parse_path(value: str) -> str:
    """Parses an object's path inside a repository: 1 to 1,024 bytes of UTF-8, any character.

    Raises:
        TarnError: INVALID. Reason KEY_TOO_LONG: the path is too long. INVALID_ARGUMENT: it is empty, or holds
            lone surrogates (bytes that were not UTF-8).
    """
    if value.isascii() and 0 < len(value) <= PATH_BYTES_MAX:  # nearly always
        return value
    try:
        size = len(value.encode())
    except UnicodeEncodeError:
        raise _invalid("path", value.encode("utf-8", "replace").decode(), "is not UTF-8") from None
    if size > PATH_BYTES_MAX:
        text = f"path of {size} bytes is longer than {PATH_BYTES_MAX}"
        raise TarnError(Kind.INVALID, Reason.KEY_TOO_LONG, text, size_bytes=str(size))
    if size == 0:
        raise _invalid("path", value, "must not be empty")
    return value


def address_time_us(address: bytes) -> int:
    """Returns when an address was made, microseconds since the epoch: a UUIDv7 begins with 48 bits of milliseconds."""
    return int.from_bytes(address[:6], "big") * 1000


def physical_path(address: bytes) -> str:
    """The place of the block with this 16-byte address in its namespace: `data/<yyyymmddhh>/<uuid hex>`.

    The hour comes from the UUIDv7 (its first 48 bits are Unix milliseconds), so the address alone determines
    the file, and a listing can be limited to slices of time (docs/design/metadata.md).
    """
    hours = int.from_bytes(address[:6], "big") // 3_600_000
    return f"data/{_slice(hours)}/{address.hex()}"


@lru_cache(maxsize=256)
def _slice(hours: int) -> str:
    """`yyyymmddhh` of an hour since the epoch; cached, because a process uses few hours at a time."""
    return datetime.fromtimestamp(hours * 3600, UTC).strftime("%Y%m%d%H")
