"""Names of objects on the command line: `repository/ref/path`, with or without `tarn://`.

S3 clients use the same string with `s3://` or `s3a://` in front. Both are also accepted, so that a
name can be copied from any of them.
"""

from __future__ import annotations

from dataclasses import dataclass

from tarn.core.ids import RepositoryId, parse_path, parse_repository_id
from tarn_cli.exits import CliError, Exit

__all__ = [
    "ObjectUri",
    "RefUri",
    "parse_object",
    "parse_prefix",
    "parse_ref",
    "parse_ref_of",
    "parse_repository",
]

_SCHEMES = ("tarn://", "s3://", "s3a://")


@dataclass(frozen=True, slots=True)
class RefUri:
    """A ref of a repository, e.g. `lake/main`."""

    repository: RepositoryId
    ref: str

    def __str__(self) -> str:
        return f"{self.repository}/{self.ref}"


@dataclass(frozen=True, slots=True)
class ObjectUri:
    """A path on a ref, or a prefix of paths (perhaps empty), e.g. `lake/main/raw/2026.csv`."""

    repository: RepositoryId
    ref: str
    path: str

    @property
    def key(self) -> str:
        """The S3 key in the repository's bucket."""
        return f"{self.ref}/{self.path}"

    def __str__(self) -> str:
        return f"{self.repository}/{self.ref}/{self.path}"


def _without_scheme(text: str) -> str:
    for scheme in _SCHEMES:
        if text.startswith(scheme):
            return text[len(scheme) :]
    if "://" in text:
        raise CliError(Exit.USAGE, f"{text!r} has a scheme other than tarn://, s3:// and s3a://")
    return text


def parse_repository(text: str) -> RepositoryId:
    """Parses `lake`.

    Raises:
        CliError: the text names more than a repository.
        TarnError: INVALID, a name that no repository can have.
    """
    name = _without_scheme(text).rstrip("/")
    if "/" in name:
        raise CliError(Exit.USAGE, f"{text!r} is not a repository", "expected e.g. lake")
    return parse_repository_id(name)


def parse_ref(text: str) -> RefUri:
    """Parses `lake/main`, `lake/main~2`, `lake/v1`, `lake/<commit id>`.

    Raises:
        CliError: the text names no ref, or a path after it.
        TarnError: INVALID, a name that no repository can have.
    """
    repository, _, ref = _without_scheme(text).rstrip("/").partition("/")
    if not ref or "/" in ref:
        raise CliError(Exit.USAGE, f"{text!r} is not a ref", "expected e.g. lake/main")
    return RefUri(parse_repository_id(repository), ref)


def parse_ref_of(text: str, repository: RepositoryId) -> str:
    """Parses a ref of a known repository: `main~2`, or `lake/main~2`, for the repository `lake`.

    Raises:
        CliError: the text names no ref, a path, or a ref of another repository.
        TarnError: INVALID, a name that no repository can have.
    """
    if text and "/" not in text:
        return text
    uri = parse_ref(text)
    if uri.repository != repository:
        raise CliError(Exit.USAGE, f"{uri} is not a ref of repository {repository}")
    return uri.ref


def parse_prefix(text: str) -> ObjectUri:
    """Parses `lake/main` or `lake/main/raw/`: the prefix of a listing or of a recursive command.

    Raises:
        CliError: the text names no ref.
        TarnError: INVALID, a name that no repository can have.
    """
    repository, _, rest = _without_scheme(text).partition("/")
    ref, _, path = rest.partition("/")
    if not ref:
        raise CliError(Exit.USAGE, f"{text!r} names no ref", "expected e.g. lake/main/raw/")
    return ObjectUri(parse_repository_id(repository), ref, path)


def parse_object(text: str) -> ObjectUri:
    """Parses `lake/main/raw/2026.csv`: one object.

    Raises:
        CliError: the text names no ref or no path.
        TarnError: INVALID, a name that no repository or no object can have.
    """
    uri = parse_prefix(text)
    if not uri.path:
        raise CliError(Exit.USAGE, f"{text!r} names no object", "expected e.g. lake/main/raw/a.csv")
    parse_path(uri.path)
    return uri
