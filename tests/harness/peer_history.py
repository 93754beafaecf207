"""A history in lakeFS, and what users see of it: through lakeFS's interface, so of Tarn's copy, too."""

from __future__ import annotations

import hashlib
from typing import Any

import lakefs
from lakefs.client import Client
from lakefs_sdk import models
from lakefs_sdk.client import LakeFSClient

__all__ = ["dump_refs", "make_history", "seen"]

LARGE = b"0123456789abcdef" * 80_000
"""More than what is copied in one piece."""


def _put(branch: lakefs.Branch, path: str, body: bytes, **more: Any) -> None:
    branch.object(path).upload(body, mode="wb", pre_sign=False, **more)


def make_history(client: Client, name: str, namespace: str) -> None:
    """Makes a repository with three branches, merges, tags, deletes, a revert, metadata and an uncommitted object."""
    repo = lakefs.Repository(name, client).create(namespace)
    main = repo.branch("main")
    for number in range(40):
        _put(main, f"raw/{number:03}", b"%d" % number)
    _put(main, "raw/é ü", b"utf-8")
    _put(main, "meta", b"m", content_type="text/plain", metadata={"Owner": "ann", "b": "e"})
    _put(main, "empty", b"")
    main.commit("load", metadata={"job": "42", "tarn.task": "forged"})
    dev = repo.branch("dev").create("main")
    _put(dev, "raw/001", b"changed")
    dev.object("raw/002").delete()
    _put(dev, "large", LARGE)
    dev.commit("work on dev\n\nin two lines")
    _put(main, "raw/003", b"changed on main")
    main.commit("meanwhile")
    dev.merge_into(main, message="merge dev")
    repo.tag("v1").create("main")
    old = repo.branch("old").create("v1")
    for number in range(10, 40):
        old.object(f"raw/{number:03}").delete()
    old.commit("shrink")
    old.revert("old")
    gone = repo.branch("gone").create("main")
    _put(gone, "lost", b"nobody sees this commit")
    gone.commit("lost")
    gone.delete()
    main.merge_into(dev, message="merge back")
    repo.tag("v2").create("dev~1")
    _put(main, "uncommitted", b"stays behind")


def dump_refs(sdk: LakeFSClient, name: str) -> str:
    """Dumps the refs into the bucket; returns the document that names the tables of the dump."""
    made = sdk.internal_api.dump_refs(name)
    return str(made.to_json())


def _listing(sdk: LakeFSClient, name: str, ref: str) -> list[Any]:
    found, after = [], ""
    while True:
        page = sdk.objects_api.list_objects(name, ref, after=after, amount=1000, user_metadata=True)
        for each in page.results:
            body = bytes(sdk.objects_api.get_object(name, ref, each.path))
            about = [each.path, each.size_bytes, each.checksum, each.content_type, each.mtime]
            found.append([*about, each.metadata or {}, hashlib.sha256(body).hexdigest()])
        if not page.pagination.has_more:
            return found
        after = page.pagination.next_offset


def _commit(found: models.Commit, ids: dict[str, str]) -> list[Any]:
    metadata = dict(found.metadata or {})
    own = metadata.pop("lakefs.commit_id", found.id)
    metadata = {key.removeprefix("lakefs."): value for key, value in metadata.items()}
    ids[found.id] = own
    committer = "" if found.committer == "lakefs" else found.committer
    return [own, committer, found.message, found.creation_date, metadata, found.parents]


def seen(sdk: LakeFSClient, name: str) -> dict[str, Any]:
    """Returns what users see of a repository: of each branch and tag its history and its objects, with their bytes.

    Commits have their ids of lakeFS, also in Tarn.
    """
    refs = [f"branch {each.id}" for each in sdk.branches_api.list_branches(name).results]
    refs += [f"tag {each.id}" for each in sdk.tags_api.list_tags(name).results]
    shown: dict[str, Any] = {"default": sdk.repositories_api.get_repository(name).default_branch}
    for ref in refs:
        place = ref.partition(" ")[2]
        ids: dict[str, str] = {}
        log = [_commit(each, ids) for each in sdk.refs_api.log_commits(name, f"{place}~0").results]
        for each in log:
            each[-1] = [ids[parent] for parent in each[-1]]
        shown[ref] = {"log": sorted(log), "objects": _listing(sdk, name, f"{place}~0")}
    return shown
