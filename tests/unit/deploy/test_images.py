"""The images that are built without a container engine: their archive, their lists of packages, and their table."""

from __future__ import annotations

import hashlib
import json
import stat
import tarfile
import tomllib
from pathlib import Path
from typing import Any

from archive import Image, Layer, write_archive, write_layer
from materials import debian_packages, document, python_packages

ROOT = Path(__file__).parents[3]
TABLE = tomllib.loads((ROOT / "deploy" / "images.toml").read_text())
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def layer(tmp_path: Path, name: str = "layer") -> Layer:
    folder = tmp_path / name
    folder.mkdir()
    (folder / "run").write_text("#!/bin/sh\n")
    (folder / "run").chmod(0o700)
    (folder / "note").write_text(name)
    (folder / "note").chmod(0o600)
    (folder / "link").symlink_to("run")
    return write_layer(tmp_path / f"{name}.tar", {"/opt/x": folder})


def image(name: str, *layers: Layer) -> Image:
    return Image(name, layers, ["/opt/x/run"], {"A": "1"}, "65532:65532", {"title": name})


def blob(archive: Path, digest: str) -> Any:
    """Returns a JSON blob of an archive, after checking its digest."""
    with tarfile.open(archive) as tar:
        file = tar.extractfile(f"blobs/sha256/{digest.removeprefix('sha256:')}")
        assert file is not None
        data = file.read()
    assert f"sha256:{hashlib.sha256(data).hexdigest()}" == digest
    return json.loads(data)


def test_files_of_a_layer_belong_to_root_and_can_be_read_by_all(tmp_path: Path) -> None:
    with tarfile.open(layer(tmp_path).path) as tar:
        members = {each.name: each for each in tar.getmembers()}
    assert members.keys() == {"opt/x", "opt/x/run", "opt/x/note", "opt/x/link"}
    assert members["opt/x/link"].issym()
    assert stat.filemode(members["opt/x/run"].mode)[1:] == "rwxr-xr-x"
    assert stat.filemode(members["opt/x/note"].mode)[1:] == "rw-r--r--"
    assert {(each.uid, each.gid, each.mtime) for each in members.values()} == {(0, 0, 0)}


def test_images_of_an_archive_share_layers_and_keep_their_own_settings(tmp_path: Path) -> None:
    low, high = layer(tmp_path, "low"), layer(tmp_path, "high")
    out = tmp_path / "images.tar"
    write_archive(out, [image("localhost/a:1", low), image("localhost/b:1", low, high)])
    with tarfile.open(out) as tar:
        names = tar.getnames()
        index_file = tar.extractfile("index.json")
        assert index_file is not None
        index = json.loads(index_file.read())
    assert len([name for name in names if low.digest in name]) == 1
    assert len(names) == len(set(names))
    found = {}
    for entry in index["manifests"]:
        manifest = blob(out, entry["digest"])
        config = blob(out, manifest["config"]["digest"])
        layers = [each["digest"] for each in manifest["layers"]]
        assert config["rootfs"]["diff_ids"] == layers
        found[entry["annotations"]["io.containerd.image.name"]] = layers, config["config"]
    assert found["localhost/a:1"][0] == [f"sha256:{low.digest}"]
    assert found["localhost/b:1"][0] == [f"sha256:{low.digest}", f"sha256:{high.digest}"]
    config = found["localhost/a:1"][1]
    assert (config["User"], config["Entrypoint"]) == ("65532:65532", ["/opt/x/run"])
    assert (config["Env"], config["StopSignal"]) == (["A=1"], "SIGTERM")


def test_the_same_input_gives_the_same_archive(tmp_path: Path) -> None:
    same = layer(tmp_path)
    for name in ("one", "two"):
        write_archive(tmp_path / name, [image("a:1", same)])
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()


def test_the_list_of_packages_has_those_of_debian_and_of_python(tmp_path: Path) -> None:
    root = tmp_path / "root"
    (root / "var/lib/dpkg").mkdir(parents=True)
    (root / "var/lib/dpkg/status").write_text(
        "Package: bash\nVersion: 5.2-2\nDescription: a shell\n with details\n\nPackage: tar\nVersion: 1.34\n"
    )
    site = tmp_path / "site"
    (site / "grpcio-1.85.1.dist-info").mkdir(parents=True)
    (site / "grpcio-1.85.1.dist-info" / "METADATA").write_text("Name: grpcio\nVersion: 1.85.1\n")
    packed = tmp_path / "root.tar"
    with tarfile.open(packed, "w") as tar:
        tar.add(root, ".")
    listed = json.loads(document("0.1.0", debian_packages(packed), python_packages(site)))
    assert [each["purl"] for each in listed["components"]] == [
        "pkg:deb/debian/bash@5.2-2",
        "pkg:deb/debian/tar@1.34",
        "pkg:pypi/grpcio@1.85.1",
    ]


def test_every_service_has_an_image_that_starts_its_command() -> None:
    commands = {row["entrypoint"][-1].rpartition("/")[2] for row in TABLE["images"].values()}
    assert set(PROJECT["scripts"]) <= commands
    for name in ("auth", "graveler", "gateway", "compactor"):
        assert TABLE["images"][name]["entrypoint"] == [f"/opt/tarn/bin/tarn-{name}"]


def test_images_run_as_nobody_in_particular() -> None:
    uid, _, gid = TABLE["user"].partition(":")
    assert int(uid) > 0
    assert int(gid) > 0
