"""`tarn fs`: reads and writes objects through the S3 endpoint, like any other S3 client."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime
from itertools import islice
from pathlib import Path

import click

from tarn.core.byte_sizes import shown_size
from tarn_cli.exits import CliError, Exit
from tarn_cli.objects import direct
from tarn_cli.objects.local_files import FileRefusedError, files_below, refusal_of
from tarn_cli.objects.store import WORKERS_MAX, ListingLine, Objects
from tarn_cli.objects.transfer import Tally, Transfer, bytes_bar, count_bar, run_all
from tarn_cli.objects.uri import ObjectUri, parse_object, parse_prefix
from tarn_cli.output import Record
from tarn_cli.session import Group, Session, pass_session
from tarn_cli.terminal import write_lines

__all__ = ["fs"]

_CHUNK_BYTES = 1 << 20

_workers = click.option(
    "--workers",
    type=click.IntRange(1, WORKERS_MAX),
    default=8,
    show_default=True,
    help="Concurrent transfers.",
)


@click.group(cls=Group)
def fs() -> None:
    """Objects: list, read, upload, download, remove.

    An object is REPOSITORY/REF/PATH. You can read any ref and write to branches.
    """


def _shown(modified: datetime) -> str:
    """A time in UTC, to the second: `2026-11-01T12:30:00Z`. Takes a quarter of the time of `strftime`."""
    return f"{modified.isoformat()[:19]}Z"


def _record(each: ListingLine) -> Record:
    if each.modified is None:
        return {"path": each.path, "kind": "prefix"}
    return {
        "path": each.path,
        "kind": "object",
        "size_bytes": each.size,
        "modified": _shown(each.modified),
        "etag": each.etag,
    }


def _line(each: ListingLine) -> str:
    size = "" if each.size is None else shown_size(each.size)
    modified = "" if each.modified is None else _shown(each.modified)
    return f"{size:>10}  {modified:20}  {each.path}"


@fs.command()
@click.argument("uri", metavar="REPOSITORY/REF[/PREFIX]")
@click.option(
    "-r", "--recursive", is_flag=True, help="List all objects below the prefix, not one level."
)
@click.option("-n", "--limit", type=click.IntRange(0), default=0, help="0 for all.")
@pass_session
def ls(session: Session, uri: str, recursive: bool, limit: int) -> None:
    """List objects.

    \b
    Examples:
      tarn fs ls lake/main/
      tarn fs ls -r lake/v1/raw/
    """
    where = parse_prefix(uri)
    found = Objects(session.settings()).listing(where, recursive=recursive)
    shown = islice(found, limit) if limit else found
    if session.as_json:
        session.output.many(map(_record, shown), ())
        return
    write_lines(map(_line, shown))


@fs.command()
@click.argument("uri", metavar="REPOSITORY/REF/PATH")
@pass_session
def stat(session: Session, uri: str) -> None:
    """Show the size, time, ETag, type, metadata and tags of an object."""
    where = parse_object(uri)
    objects = Objects(session.settings())
    head = objects.head(where)
    session.output.one(
        {
            "path": where.path,
            "size_bytes": head["ContentLength"],
            "modified": _shown(head["LastModified"]),
            "etag": head["ETag"].strip('"'),
            "content_type": head.get("ContentType", ""),
            "metadata": head.get("Metadata", {}),
            "tags": objects.tags(where) if head.get("TagCount") else {},
        }
    )


@fs.command()
@click.argument("uri", metavar="REPOSITORY/REF/PATH")
@pass_session
def cat(session: Session, uri: str) -> None:
    """Write an object's bytes to standard output."""
    where = parse_object(uri)
    for chunk in Objects(session.settings()).read(where, _CHUNK_BYTES):
        sys.stdout.buffer.write(chunk)
    sys.stdout.buffer.flush()


@fs.command()
@click.argument("source", type=click.Path(path_type=Path, exists=True, allow_dash=True))
@click.argument("uri", metavar="REPOSITORY/BRANCH/PATH")
@click.option("-r", "--recursive", is_flag=True, help="Upload a whole folder.")
@click.option("--content-type", default="", help="Content type of a single file.")
@click.option(
    "--direct",
    "is_direct",
    is_flag=True,
    help="Write one file to the bucket of the installation itself, past the S3 endpoint.",
)
@_workers
@pass_session
def upload(
    session: Session,
    source: Path,
    uri: str,
    recursive: bool,
    content_type: str,
    is_direct: bool,
    workers: int,
) -> None:
    """Upload a file (- for standard input), or a folder with -r.

    With --direct, Tarn issues presigned URLs, the bytes go to the bucket, and Tarn links them to the path. This
    machine has to reach the bucket, but needs no key of it.

    \b
    Examples:
      tarn fs upload may.csv lake/main/raw/may.csv
      tarn fs upload may.csv lake/main/raw/
      tarn fs upload -r ./raw lake/main/raw/
    """
    where = parse_prefix(uri)
    if is_direct and (recursive or str(source) == "-"):
        raise CliError(Exit.USAGE, "--direct uploads one file", "omit --direct")
    objects = Objects(session.settings(), workers)
    if recursive:
        if not source.is_dir():
            raise CliError(Exit.USAGE, f"{source} is not a folder", "omit -r for one file")
        is_shown = session.output.progress_console.is_terminal
        total = (
            sum(size for _, size in files_below(source) if isinstance(size, int)) if is_shown else 0
        )
        count = _transfer(session, objects.uploads(source, where), "uploaded", workers, total)
        session.output.one({"uploaded": count}, f"uploaded {count} objects to {where}")
        return
    if source.is_dir():
        raise CliError(Exit.USAGE, f"{source} is a folder", "-r uploads a whole folder")
    if str(source) != "-" and (refusal := refusal_of(source.stat().st_mode)):
        hint = "- uploads standard input, e.g. of a pipe"
        raise CliError(Exit.USAGE, f"{source} {refusal}, which has no size", hint)
    is_folder = not where.path or where.path.endswith("/")
    target = parse_object(f"{where}{source.name}" if is_folder and str(source) != "-" else uri)
    if is_direct:
        _upload_directly(session, source, target, content_type, workers)
    elif str(source) == "-":
        objects.upload_stream(sys.stdin.buffer, target, content_type)
    else:
        with bytes_bar(session.output.progress_console, source.name) as (announce, advance):
            announce(source.stat().st_size)
            objects.upload(source, target, content_type, advance)
    session.output.one({"uploaded": 1, "object": str(target)}, f"uploaded {target}")


def _upload_directly(
    session: Session, source: Path, target: ObjectUri, content_type: str, workers: int
) -> None:
    from tarn.core.entry import Entry, pack  # only here: other commands need no entry

    size = source.stat().st_size
    where = target.repository, target.ref, target.path
    none = bytes(16)
    template = pack(Entry(0, 0, none, none, content_type=content_type)) if content_type else b""
    issued = session.run(
        lambda tarn: tarn.graveler.get_physical_address(
            tarn.call(), *where, template=template, part_count=direct.part_count_of(size)
        )
    )
    with bytes_bar(session.output.progress_console, source.name) as (announce, advance):
        announce(size)
        written = direct.write(source, issued, workers, advance)
    session.run(
        lambda tarn: tarn.graveler.link_physical_address(
            tarn.call(), *where, token=issued.token, size_bytes=written.size, etag=written.etag
        )
    )


@fs.command()
@click.argument("uri", metavar="REPOSITORY/REF/PATH")
@click.argument("target", type=click.Path(path_type=Path), default=".")
@click.option("-r", "--recursive", is_flag=True, help="Download all objects below a prefix.")
@_workers
@pass_session
def download(session: Session, uri: str, target: Path, recursive: bool, workers: int) -> None:
    """Download an object, or with -r all objects below a prefix.

    \b
    Examples:
      tarn fs download lake/main/raw/may.csv .
      tarn fs download -r lake/v1/raw/ ./raw
    """
    objects = Objects(session.settings(), workers)
    if recursive:
        folder = parse_prefix(uri)
        if folder.path and not folder.path.endswith("/"):
            folder = replace(folder, path=f"{folder.path}/")
        count = _transfer(session, objects.downloads(folder, target), "downloaded", workers)
        if not count:
            raise CliError(Exit.NOT_FOUND, f"there are no objects below {folder}")
        session.output.one({"downloaded": count}, f"downloaded {count} objects to {target}")
        return
    where = parse_object(uri)
    file = target / where.path.rpartition("/")[2] if target.is_dir() else target
    size = objects.head(where)["ContentLength"]
    try:
        with bytes_bar(session.output.progress_console, file.name) as (announce, advance):
            announce(size)
            objects.download(where, file, advance)
    except FileRefusedError as error:
        hint = "name another file; `tarn fs cat` writes to a pipe or device"
        raise CliError(Exit.USAGE, f"{file}: {error}", hint, reason="FILES_REFUSED") from error
    session.output.one({"downloaded": 1, "file": str(file)}, f"downloaded {file}")


def _transfer(
    session: Session, transfers: Iterator[Transfer], done: str, workers: int, total: int = 0
) -> int:
    """Runs transfers and returns how many files arrived.

    Args:
        session: of the command.
        transfers: of the files.
        done: `uploaded` or `downloaded`.
        workers: threads.
        total: bytes of all files; 0: the total grows with the files that are found.

    Raises:
        CliError: some files cannot be transferred, and all others were; or the first failure of another kind.
    """
    tally = Tally()
    doing = f"{done.removesuffix('ed')}ing"
    try:
        with bytes_bar(session.output.progress_console, doing) as (announce, advance):
            announce(total)

            def announced() -> Iterator[Transfer]:
                for each in transfers:
                    announce(0 if total else each.size)
                    yield each

            run_all((each.bound(advance, tally) for each in announced()), workers)
    except CliError as error:
        if tally.done:
            error.details = (*error.details, f"{tally.done} files had been {done}")
        raise
    except KeyboardInterrupt:
        text = f"interrupted: {tally.done} files were {done}"
        if session.as_json:
            session.output.one({done: tally.done, "interrupted": True})
        session.output.remark(text)
        raise
    if count := tally.refused_count:
        text = f"{count} of {count + tally.done} files were not {done}"
        details = [f"{name}: {why}" for name, why in sorted(tally.refused)]
        details += [f"and {more} more"] if (more := count - len(details)) else []
        raise CliError(Exit.FAILURE, text, "all others were", details, reason="FILES_REFUSED")
    return tally.done


@fs.command()
@click.argument("uri", metavar="REPOSITORY/BRANCH/PATH")
@click.option("-r", "--recursive", is_flag=True, help="Remove all objects with this prefix.")
@_workers
@pass_session
def rm(session: Session, uri: str, recursive: bool, workers: int) -> None:
    """Remove an object, or with -r all objects with a prefix.

    \b
    Examples:
      tarn fs rm lake/main/raw/may.csv
      tarn fs rm -r lake/main/raw/
    """
    objects = Objects(session.settings(), workers)
    if not recursive:
        where = parse_object(uri)
        objects.head(where)  # fails for a missing object; S3's delete does not
        objects.remove(where)
        session.output.one({"removed": 1}, f"removed {where}")
        return
    with count_bar(session.output.progress_console, "removing") as advance:
        count = run_all(objects.removals(parse_prefix(uri), advance), workers)
    session.output.one({"removed": count}, f"removed {count} objects")
