"""Builds Tarn's container images without a container engine and without a registry (`make images`).

The root file system comes from Debian's packages (mmdebstrap, as root), Python packages from wheels with the
versions of constraints.txt, and Tarn from its own wheel. `deploy/images.toml` says what each image is made of. All
images are in one OCI archive and share their layers.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path
from typing import Any

from archive import Image, Layer, write_archive, write_layer
from materials import debian_packages, document, python_packages

ROOT = Path(__file__).parents[2]
TABLE = ROOT / "deploy" / "images.toml"
HOME = "/opt/tarn"
"""The virtual environment in the images."""

_PLATFORMS = ("manylinux_2_28_x86_64", "manylinux_2_17_x86_64", "manylinux2014_x86_64")
_LEFT_OUT = ("doc", "man", "locale", "info")


def main() -> int:
    """Builds the images; prints the archive's path."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=ROOT / "dist", help="folder of the archive")
    parser.add_argument("--tag", help="tag of the images; the project's version if not given")
    parser.add_argument("--only", action="append", default=[], metavar="IMAGE", help="build these")
    options = parser.parse_args()
    table = tomllib.loads(TABLE.read_text())
    tag = options.tag or version()
    if shutil.which("mmdebstrap") is None:
        sys.stderr.write("mmdebstrap is missing: apt-get install mmdebstrap (Debian, Ubuntu)\n")
        return 1
    options.out.mkdir(parents=True, exist_ok=True)
    out = options.out / f"tarn-images-{tag}.tar"
    with tempfile.TemporaryDirectory(dir=options.out) as work:
        images = [
            image_of(name, row, table, tag, Path(work))
            for name, row in table["images"].items()
            if name in options.only or not options.only
        ]
        write_archive(out, images)
    say(f"{out}: {', '.join(image.name for image in images)}")
    return 0


def version() -> str:
    """Returns the version of the project."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return str(project["version"])


def image_of(name: str, row: dict[str, Any], table: dict[str, Any], tag: str, work: Path) -> Image:
    """Returns one image; its layers are built once for all images with the same content."""
    base = base_layer([*table["debian"], *row.get("debian", ())], table["release"])
    layers = [base]
    if row.get("jars"):
        layers.append(jars_layer(work))
    else:
        layers.append(python_layer(base, tag, work))
    return Image(
        name=f"{table['prefix']}{name}:{tag}",
        layers=layers,
        entrypoint=row["entrypoint"],
        environment=table["environment"],
        user=table["user"],
        labels={
            "org.opencontainers.image.title": f"tarn {name}",
            "org.opencontainers.image.description": row["description"],
            "org.opencontainers.image.version": tag,
            "org.opencontainers.image.licenses": "Apache-2.0",
            "org.opencontainers.image.revision": revision(),
        },
    )


def base_layer(packages: list[str], release: str) -> Layer:
    """Returns the layer of Debian packages, from the cache if the same list was built before."""
    key = hashlib.sha256(" ".join([release, *packages]).encode()).hexdigest()[:12]
    path = cache() / f"base-{key}.tar"
    if not path.exists():
        say(f"root file system of {release}: {' '.join(packages)}")
        partial = path.with_suffix(".partial")
        left_out = [f"--dpkgopt=path-exclude=/usr/share/{name}/*" for name in _LEFT_OUT]
        run(
            *("mmdebstrap", "--quiet", "--format=tar", "--variant=minbase"),
            *(f"--include={','.join(packages)}", *left_out),
            '--essential-hook=mkdir -p "$1"/usr/share/man/man1',  # a JRE's scripts need it
            '--customize-hook=rm -rf "$1"/var/cache/apt/* "$1"/var/lib/apt/lists/* "$1"/var/log/*',
            *(release, str(partial)),
        )
        partial.replace(path)
    return Layer.of(path)


def python_layer(base: Layer, tag: str, work: Path) -> Layer:
    """Returns the layer with Tarn and its Python packages, and the list of all packages."""
    out = work / "python.tar"
    if out.exists():
        return Layer.of(out)
    say("wheel")
    pip = (sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet")
    run(*pip, "wheel", "--no-deps", "--wheel-dir", str(work / "wheel"), str(ROOT))
    (wheel,) = (work / "wheel").glob("tarn-*.whl")
    say("Python packages")
    venv, notes = work / "venv", work / "notes"
    site = venv / "lib" / "python3.11" / "site-packages"
    site.mkdir(parents=True)
    notes.mkdir()
    platforms = [f"--platform={name}" for name in _PLATFORMS]
    run(
        *(*pip, "install", "--no-compile", "--only-binary=:all:", "--target", str(site)),
        *("--implementation=cp", "--python-version=3.11", *platforms),
        *("--constraint", str(ROOT / "constraints.txt"), f"{wheel}[all]"),
    )
    (site / "bin").rename(venv / "bin")
    for script in (venv / "bin").iterdir():
        first, _, rest = script.read_bytes().partition(b"\n")
        if first.startswith(b"#!"):
            script.write_bytes(f"#!{HOME}/bin/python3\n".encode() + rest)
    (venv / "bin" / "python3").symlink_to("/usr/bin/python3")
    (venv / "bin" / "python").symlink_to("python3")
    (venv / "pyvenv.cfg").write_text("home = /usr/bin\ninclude-system-site-packages = false\n")
    packages = document(tag, debian_packages(base.path), python_packages(site))
    (notes / "sbom.json").write_text(packages)
    (work.parent / f"tarn-images-{tag}.sbom.json").write_text(packages)
    return write_layer(out, {HOME: venv, "/usr/share/tarn": notes})


def jars_layer(work: Path) -> Layer:
    """Returns the layer with Cassandra's jars, for evaluation."""
    out = work / "jars.tar"
    if out.exists():
        return Layer.of(out)
    tool = ROOT / "tools" / "cassandra"
    found = subprocess.run([str(tool / "jars")], check=True, stdout=subprocess.PIPE, text=True)
    notes = work / "cassandra"
    notes.mkdir()
    shutil.copy(tool / "logback.xml", notes)
    return write_layer(
        out, {"/opt/cassandra/jars": Path(found.stdout.strip()), "/opt/cassandra/conf": notes}
    )


def revision() -> str:
    """Returns the commit that is checked out; empty outside a repository."""
    command = ("git", "-C", str(ROOT), "rev-parse", "HEAD")
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    return done.stdout.strip()


def cache() -> Path:
    """Returns the folder of layers that are kept between builds."""
    home = Path(os.environ.get("TARN_CACHE") or Path.home() / ".cache" / "tarn")
    (home / "images").mkdir(parents=True, exist_ok=True)
    return home / "images"


def run(*command: str) -> None:
    """Runs a command, which must succeed; its output goes to standard error."""
    subprocess.run(command, check=True, stdout=sys.stderr)


def say(text: str) -> None:
    """Tells the progress."""
    sys.stderr.write(f"images: {text}\n")


if __name__ == "__main__":
    sys.exit(main())
