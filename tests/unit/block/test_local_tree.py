"""The tree of files: walks cannot leave it, and listings read only a part of it."""

import errno
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tarn.block.local.tree import Tree

SEGMENT = st.text(alphabet="a-./b\u00e9", min_size=1, max_size=3).filter(
    lambda name: "/" not in name and name not in {".", ".."} and not name.startswith(".")
)
PATH = st.lists(SEGMENT, min_size=1, max_size=4).map("/".join)


@pytest.fixture
def tree(tmp_path: Path) -> Iterator[Tree]:
    (tmp_path / "root").mkdir()
    tree = Tree(tmp_path / "root", sync=True)
    yield tree
    tree.close()


def _create(tree: Tree, *names: str) -> None:
    os.close(tree.create(names[:-1], names[-1]))


def _names(directory: Path) -> list[str]:
    return [path.name for path in directory.iterdir()]


def _descriptors() -> int:
    return len(_names(Path("/proc/self/fd")))


def _listed(tree: Tree, prefix: str = "", after: str = "", limit: int = 1000) -> list[str]:
    return [info.path for info in tree.list_files(["ns"], prefix, after, limit)]


@settings(deadline=None)
@given(
    paths=st.sets(PATH, max_size=12),
    prefix=st.one_of(st.just(""), PATH, PATH.map(lambda path: path + "/")),
    after=st.one_of(st.just(""), PATH, PATH.map(lambda path: path + "/")),
    limit=st.integers(1, 5),
)
def test_listing_equals_sorted_paths(
    tmp_path_factory: pytest.TempPathFactory, paths: set[str], prefix: str, after: str, limit: int
) -> None:
    root = tmp_path_factory.mktemp("tree")
    tree = Tree(root, sync=False)
    try:
        created = set()
        for path in sorted(paths):
            if not any(
                other.startswith(path + "/") for other in paths
            ):  # a directory of another program program program
                _create(tree, "ns", *path.split("/"))
                created.add(path)
        wanted = sorted(path for path in created if path.startswith(prefix) and path > after)
        assert _listed(tree, prefix, after, limit) == wanted[:limit]
    finally:
        tree.close()


def test_listing_opens_only_directories_on_its_way(
    tree: Tree, monkeypatch: pytest.MonkeyPatch
) -> None:
    for hour in range(10, 40):
        for name in "ab":
            _create(tree, "ns", "data", str(hour), name)
        _create(tree, "ns", "other", str(hour), "x")
    opened = 0
    scandir = os.scandir

    def count(fd: int) -> object:
        nonlocal opened
        opened += 1
        return scandir(fd)

    monkeypatch.setattr(os, "scandir", count)
    assert _listed(tree, "", "data/30/a", 3) == ["data/30/b", "data/31/a", "data/31/b"]
    assert opened <= 4  # the namespace, data, 30 and 31
    opened = 0
    assert _listed(tree, "data/35/", "", 10) == ["data/35/a", "data/35/b"]
    assert opened == 1


def test_listing_skips_files_that_are_not_blocks(tree: Tree, tmp_path: Path) -> None:
    home = tmp_path / "root" / "ns"
    _create(tree, "ns", "data", "x")
    _create(tree, "ns", ".tmp", "draft")
    (home / "link").symlink_to("data")
    (home / "data" / "link").symlink_to("x")
    os.mkfifo(home / "data" / "fifo")
    Path(os.fsdecode(os.fsencode(home) + b"/\xff")).touch()
    assert _listed(tree) == ["data/x"]
    assert _listed(tree, "data/") == ["data/x"]


@pytest.mark.parametrize(
    "names", [("ns", "link", "secret"), ("ns", "leaf"), ("ns", "up", "root", "x")]
)
def test_planted_links_are_refused(tree: Tree, tmp_path: Path, names: tuple[str, ...]) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret").write_text("s")
    _create(tree, "ns", "x")
    home = tmp_path / "root" / "ns"
    (home / "link").symlink_to(outside)
    (home / "leaf").symlink_to(outside / "secret")
    (home / "up").symlink_to("../..")
    for call in (tree.open_read, tree.stat):
        with pytest.raises(OSError, match="link") as caught:
            call(names)
        assert caught.value.errno == errno.ELOOP
    with pytest.raises(OSError, match=r"link|File exists"):
        tree.create(names[:-1], names[-1])
    with pytest.raises(OSError, match=r"link|File exists"):
        tree.link(("ns", "x"), names)
    if len(names) > 2:
        with pytest.raises(OSError, match="link"):
            tree.remove(names, keep=1)
    assert (outside / "secret").read_text() == "s"
    assert [path.name for path in outside.iterdir()] == ["secret"]


def test_removing_a_planted_link_leaves_its_target(tree: Tree, tmp_path: Path) -> None:
    _create(tree, "ns", "x")
    (tmp_path / "root" / "ns" / "leaf").symlink_to(tmp_path / "root" / "ns" / "x")
    tree.remove(("ns", "leaf"), keep=1)
    assert _listed(tree) == ["x"]


def test_fifo_does_not_hang_a_reader(tree: Tree, tmp_path: Path) -> None:
    (tmp_path / "root" / "ns").mkdir()
    os.mkfifo(tmp_path / "root" / "ns" / "fifo")
    with pytest.raises(FileNotFoundError):
        tree.open_read(("ns", "fifo"))


def test_remove_takes_empty_directories_and_no_more(tree: Tree, tmp_path: Path) -> None:
    _create(tree, "ns", "data", "1", "a")
    _create(tree, "ns", "data", "2", "b")
    tree.remove(("ns", "data", "1", "a"), keep=1)
    assert _names(tmp_path / "root" / "ns" / "data") == ["2"]
    tree.remove(("ns", "data", "2", "b"), keep=1)
    tree.remove(("ns", "data", "2", "b"), keep=1)
    assert _names(tmp_path / "root") == ["ns"]
    assert _names(tmp_path / "root" / "ns") == []


def test_link_makes_a_directory_that_a_neighbour_removed(
    tree: Tree, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _create(tree, "ns", "source")
    link, failures = os.link, 2

    def removed_meanwhile(*arguments: object, **options: object) -> None:
        nonlocal failures
        if failures:
            failures -= 1
            (tmp_path / "root" / "ns" / "data").rmdir()
        link(*arguments, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(os, "link", removed_meanwhile)
    tree.link(("ns", "source"), ("ns", "data", "x"))
    assert _listed(tree) == ["data/x", "source"]


def test_new_directories_are_synced_from_their_parents(
    tree: Tree, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[str] = []
    fsync = os.fsync

    def record(fd: int) -> None:
        synced.append(str(Path(f"/proc/self/fd/{fd}").readlink()).removeprefix(str(tmp_path)))
        fsync(fd)

    monkeypatch.setattr(os, "fsync", record)
    with tree.open_dir(["ns", "data"], create=True):
        pass
    assert synced == ["/root", "/root/ns"]
    with tree.open_dir(["ns", "data"], create=True):
        pass
    assert len(synced) == 2
    other = Tree(tmp_path / "root", sync=True)  # must not rely on the sync of the first
    with other.open_dir(["ns", "data"], create=True):
        pass
    other.close()
    assert len(synced) == 4


def test_no_descriptor_is_left_open(tree: Tree) -> None:
    _create(tree, "ns", "data", "x")
    before = _descriptors()
    for names in (
        ("ns", "data", "x"),
        ("ns", "data", "y"),
        ("ns", "no", "x"),
        ("ns", "data", "x", "y"),
    ):
        for call in (tree.stat, lambda names: os.close(tree.open_read(names))):
            try:
                call(names)
            except OSError:
                continue
    _listed(tree, limit=1)
    assert _descriptors() == before
