"""The images that are built without a container engine: their archive, their lists of packages, and their table."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import stat
import tarfile
import tomllib
import zipfile
from pathlib import Path
from typing import Any

import pytest
from archive import Image, Layer, write_archive, write_layer
from build import Build
from materials import debian_packages, document, jar_packages, python_packages
from root_files import architecture_problem, base_layer

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
    return Image(
        name, layers, ["/opt/x/run"], {"A": "1"}, "65532:65532", "riscv64", {"title": name}
    )


def config_of(image: Image) -> dict[str, Any]:
    return dict(json.loads(image.config()))


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
    digests = write_archive(out, [image("localhost/a:1", low), image("localhost/b:1", low, high)])
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
        assert digests.pop(entry["annotations"]["io.containerd.image.name"]) == entry["digest"]
    assert digests == {}
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


def test_a_layer_that_was_written_again_is_refused(tmp_path: Path) -> None:
    same = layer(tmp_path)
    same.path.write_bytes(b"another")
    with pytest.raises(RuntimeError, match="written again"):
        write_archive(tmp_path / "out.tar", [image("a:1", same)])
    assert not (tmp_path / "out.tar").exists()


def test_two_tags_of_an_image_have_lists_of_packages_of_their_own(tmp_path: Path) -> None:
    build = Build(TABLE, tmp_path, tmp_path, no_cache=False)
    layers = [build.listed("auth", tag) for tag in ("0.10.0", "0.10.0-next")]
    write_archive(tmp_path / "out.tar", [image(f"a:{one.digest}", one) for one in layers])
    assert layers[0].digest != layers[1].digest


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
    listed = json.loads(
        document("tarn/x", "0.10.0", debian_packages(packed), python_packages(site))
    )
    assert listed["metadata"]["component"]["name"] == "tarn/x"
    assert [each["purl"] for each in listed["components"]] == [
        "pkg:deb/debian/bash@5.2-2",
        "pkg:deb/debian/tar@1.34",
        "pkg:pypi/grpcio@1.85.1",
    ]


def jar(path: Path, *coordinates: tuple[str, str, str]) -> None:
    """Makes a jar that names its coordinates, and those of jars that it swallowed."""
    path.parent.mkdir(exist_ok=True)
    with zipfile.ZipFile(path, "w") as archive:
        for group, artifact, version in coordinates:
            text = f"#made by Maven\nversion={version}\ngroupId={group}\nartifactId={artifact}\n"
            archive.writestr(f"META-INF/maven/{group}/{artifact}/pom.properties", text)


def test_the_list_of_packages_has_jars_with_their_maven_coordinates(tmp_path: Path) -> None:
    swallowed = ("com.google.guava", "guava", "32.0")
    jar(tmp_path / "jars/s3-2.29.52.jar", swallowed, ("software.amazon.awssdk", "s3", "2.29.52"))
    jar(tmp_path / "jars/netty-all-4.1-linux-x86_64.jar", ("io.netty", "netty-all", "4.1"))
    jar(tmp_path / "scala-library-2.13.17.jar")
    jar(tmp_path / "unnamed.jar", swallowed)
    jar(tmp_path / "cassandra-all-5.0.8.jar")
    pom = ROOT / "tools" / "cassandra" / "pom.xml"
    listed = json.loads(document("tarn/jobs", "0.10.0", jar_packages(tmp_path, pom)))["components"]
    assert [(each["purl"], each["version"]) for each in listed] == [
        ("pkg:generic/scala-library@2.13.17", "2.13.17"),
        ("pkg:generic/unnamed@unknown", "unknown"),
        ("pkg:maven/io.netty/netty-all@4.1?classifier=linux-x86_64", "4.1"),
        ("pkg:maven/org.apache.cassandra/cassandra-all@5.0.8", "5.0.8"),
        ("pkg:maven/software.amazon.awssdk/s3@2.29.52", "2.29.52"),
    ]
    data = (tmp_path / "scala-library-2.13.17.jar").read_bytes()
    sha1 = hashlib.sha1(data, usedforsecurity=False).hexdigest()
    assert listed[0]["hashes"] == [{"alg": "SHA-1", "content": sha1}]


def test_an_image_names_its_architecture_and_its_health_check(tmp_path: Path) -> None:
    plain = image("a:1", layer(tmp_path))
    assert config_of(plain)["architecture"] == "riscv64"
    assert "Healthcheck" not in config_of(plain)["config"]
    checked = dataclasses.replace(plain, health=["/opt/x/health"])
    check = config_of(checked)["config"]["Healthcheck"]
    assert check["Test"] == ["CMD", "/opt/x/health"]
    assert check["Timeout"] == 10_000_000_000


def test_only_the_architecture_of_the_wheels_is_built() -> None:
    assert architecture_problem("amd64") is None
    assert "arm64" in (architecture_problem("arm64") or "")


MMDEBSTRAP = """#!/bin/sh
here=$(dirname "$0")
for last; do :; done
case " $* " in
*" --simulate "*) cat "$here/archive" ;;
*) echo built >>"$here/builds"; cp "$here/archive" "$last" ;;
esac
"""
"""A stand-in: its archive is a file beside it, and each root file system is a line of another."""


@pytest.fixture
def archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What Debian's archive tells; `builds` beside it has a line for each root file system that was built."""
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / "mmdebstrap").write_text(MMDEBSTRAP)
    (folder / "mmdebstrap").chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
    (folder / "archive").write_text("Inst tar (1.34 Debian:12.12/stable [amd64]) []\nConf tar\n")
    return folder / "archive"


def test_a_security_update_replaces_the_kept_root_file_system(
    tmp_path: Path, archive: Path
) -> None:
    cache = tmp_path / "cache"
    cache.mkdir()
    builds = archive.with_name("builds")

    def built() -> Layer:
        return base_layer(["tar"], "bookworm", cache)

    assert built() == built()
    assert len(builds.read_text().splitlines()) == 1
    archive.write_text("Inst tar [1.34] (1.34+deb12u1 Debian-Security:12/stable [amd64])\n")
    updated = built()
    assert len(builds.read_text().splitlines()) == 2
    assert [*cache.iterdir()] == [updated.path]
    base_layer(["tar"], "bookworm", cache, rebuild=True)
    assert len(builds.read_text().splitlines()) == 3


def test_without_the_archive_nothing_is_built(
    tmp_path: Path, archive: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    archive.write_text("E: no route to host\n")
    with pytest.raises(RuntimeError, match="did not tell the versions of bookworm"):
        base_layer(["tar"], "bookworm", tmp_path)
    assert "no route to host" in capsys.readouterr().err


def test_services_have_a_health_check_and_the_address_that_it_asks() -> None:
    for name in ("auth", "graveler", "gateway", "api", "compactor"):
        row = TABLE["images"][name]
        assert row["health"] == ["/opt/tarn/bin/tarn-health"]
        assert row["environment"] == {"TARN_RPC_HEALTH_ADDRESS": "127.0.0.1:8090"}


def test_every_service_has_an_image_that_starts_its_command() -> None:
    commands = {row["entrypoint"][-1].rpartition("/")[2] for row in TABLE["images"].values()}
    commands |= {
        row["health"][0].rpartition("/")[2] for row in TABLE["images"].values() if "health" in row
    }
    assert set(PROJECT["scripts"]) <= commands
    for name in ("auth", "graveler", "gateway", "api", "compactor"):
        assert TABLE["images"][name]["entrypoint"] == [f"/opt/tarn/bin/tarn-{name}"]


def test_images_run_as_nobody_in_particular() -> None:
    uid, _, gid = TABLE["user"].partition(":")
    assert int(uid) > 0
    assert int(gid) > 0
