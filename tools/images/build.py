"""Builds Tarn's container images without a container engine and without a registry (`make images`).

The root file system comes from Debian's packages (mmdebstrap, as root), Python packages from wheels with the
hashes of locks/, and Tarn from its own wheel. `deploy/images.toml` says what each image is made of. All
images are in one OCI archive and share their layers.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import tomllib
from collections.abc import Iterable, Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

from archive import Image, Layer, write_archive, write_layer
from dockerfile import USER_LINE
from materials import Component, debian_packages, document, jar_packages, python_packages
from root_files import ARCHITECTURE, architecture_problem, base_layer

ROOT = Path(__file__).parents[2]
TABLE = ROOT / "deploy" / "images.toml"
HOME = "/opt/tarn"
"""The virtual environment in the images."""

SITE = Path("venv/lib/python3.11/site-packages")
"""Tarn and its Python packages, in the folder of a build."""

LOCKS = ROOT / "locks"
PIP = (sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet")
WHEEL = (*PIP, "wheel", "--no-deps", "--no-build-isolation")
"""Builds with the packages of locks/build.txt, which tools/setup has installed; a build fetches nothing by itself."""

SPARK_LEFT_OUT = ("bin", "pyspark/jars/connect-repl", "pyspark/examples", "pyspark/data")
"""Folders of PySpark that no job uses: scripts for shells, 60 MB of a shell for Spark Connect, examples."""

_PLATFORMS = ("manylinux_2_28_x86_64", "manylinux_2_17_x86_64", "manylinux2014_x86_64")


def main() -> int:
    """Builds the images; prints the archive's path."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=ROOT / "dist", help="folder of the archive")
    parser.add_argument(
        "--tag",
        action="append",
        default=[],
        help="tag of the images; each image gets all that are given, or the project's version",
    )
    parser.add_argument(
        "--no-cache", action="store_true", help="install Debian's packages again, without the cache"
    )
    parser.add_argument("--only", action="append", default=[], metavar="IMAGE", help="build these")
    options = parser.parse_args()
    table = tomllib.loads(TABLE.read_text())
    tags = options.tag or [version()]
    if shutil.which("mmdebstrap") is None:
        sys.stderr.write("mmdebstrap is missing; run: tools/setup images\n")
        return 1
    if problem := architecture_problem(output_of("dpkg", "--print-architecture")):
        sys.stderr.write(f"images: {problem}\n")
        return 1
    options.out.mkdir(parents=True, exist_ok=True)
    out = options.out / f"tarn-images-{tags[0]}.tar"
    with tempfile.TemporaryDirectory(dir=options.out) as work:
        build = Build(table, Path(work), options.out, no_cache=options.no_cache)
        images = [
            build.image(name, row, tag)
            for tag in tags
            for name, row in table["images"].items()
            if name in options.only or not options.only
        ]
        digests = write_archive(out, images)
    # For deploy/k8s/pin.
    listed = out.with_suffix(".digests")
    listed.write_text("".join(f"{name} {digest}\n" for name, digest in digests.items()))
    say(f"{out}, {listed.name}: {', '.join(digests)}")
    return 0


def version() -> str:
    """Returns the version of the project."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return str(project["version"])


class Build:
    """Builds images from one table; layers with the same content are built once.

    Args:
        table: the content of `deploy/images.toml`.
        work: a folder for what is built.
        out: the folder of the lists of packages, one for each image.
        no_cache: installs Debian's packages again.
    """

    def __init__(self, table: dict[str, Any], work: Path, out: Path, *, no_cache: bool) -> None:
        self._table = table
        self._work = work
        self._out = out
        self._no_cache = no_cache
        self._bases: dict[tuple[str, ...], Layer] = {}

    def image(self, name: str, row: dict[str, Any], tag: str) -> Image:
        """Returns one image; its last layer is the list of its packages."""
        table, work = self._table, self._work
        base = self._base((*table["debian"], *row.get("debian", ())))
        layers, parts = [base], [debian_packages(base.path)]
        if row.get("jars"):
            layers.append(jars_layer(work))
            parts.append(jar_packages(cassandra_jars(), ROOT / "tools" / "cassandra" / "pom.xml"))
        else:
            layers.append(python_layer(work))
            parts.append(python_packages(work / SITE))
        if row.get("spark"):
            layers.append(spark_layer(base, work))
            parts += spark_parts(work)
        layers.append(self.listed(name, tag, *parts))
        return Image(
            name=f"{table['prefix']}{name}:{tag}",
            layers=layers,
            entrypoint=row["entrypoint"],
            environment={**table["environment"], **row.get("environment", {})},
            user=table["user"],
            architecture=ARCHITECTURE,
            labels={
                "org.opencontainers.image.title": f"tarn {name}",
                "org.opencontainers.image.description": row["description"],
                "org.opencontainers.image.version": tag,
                "org.opencontainers.image.licenses": "Apache-2.0",
                "org.opencontainers.image.revision": revision(),
            },
            health=row.get("health", ()),
        )

    def _base(self, packages: tuple[str, ...]) -> Layer:
        if packages not in self._bases:
            self._bases[packages] = base_layer(
                list(packages), self._table["release"], cache(), rebuild=self._no_cache
            )
        return self._bases[packages]

    def listed(self, name: str, tag: str, *parts: Iterable[Component]) -> Layer:
        """Returns the layer of /usr/share/tarn/sbom.json; the list is also written beside the archive."""
        content = document(f"tarn/{name}", tag, *parts)
        (self._out / f"tarn-{name}-{tag}.sbom.json").write_text(content)
        notes = self._work / f"notes-{name}-{tag}"
        notes.mkdir()
        (notes / "sbom.json").write_text(content)
        return write_layer(self._work / f"{notes.name}.tar", {"/usr/share/tarn": notes})


def python_layer(work: Path) -> Layer:
    """Returns the layer with Tarn and its Python packages."""
    out = work / "python.tar"
    if out.exists():
        return Layer.of(out)
    say("wheel")
    run(*WHEEL, f"--wheel-dir={work / 'wheel'}", str(ROOT))
    (wheel,) = (work / "wheel").glob("tarn-*.whl")
    # With a hash, as pip asks for in this mode.
    own = work / "wheel" / "requirements.txt"
    own.write_text(f"{wheel.as_uri()} --hash=sha256:{sha256(wheel.read_bytes()).hexdigest()}\n")
    say("Python packages")
    venv, site = work / "venv", work / SITE
    site.mkdir(parents=True)
    platforms = [f"--platform={name}" for name in _PLATFORMS]
    run(
        *(*PIP, "install", "--no-compile", "--only-binary=:all:", "--target", str(site)),
        *("--implementation=cp", "--python-version=3.11", *platforms),
        *("--require-hashes", "-r", str(LOCKS / "runtime.txt"), "-r", str(own)),
    )
    (site / "bin").rename(venv / "bin")
    for script in (venv / "bin").iterdir():
        first, _, rest = script.read_bytes().partition(b"\n")
        if first.startswith(b"#!"):
            script.write_bytes(f"#!{HOME}/bin/python3\n".encode() + rest)
    (venv / "bin" / "python3").symlink_to("/usr/bin/python3")
    (venv / "bin" / "python").symlink_to("python3")
    (venv / "pyvenv.cfg").write_text("home = /usr/bin\ninclude-system-site-packages = false\n")
    return write_layer(out, {HOME: venv})


def spark_layer(base: Layer, work: Path) -> Layer:
    """Returns the layer of the PySpark image: PySpark, the jars that join it to S3, and the start of executors."""
    out = work / "spark.tar"
    if out.exists():
        return Layer.of(out)
    say("PySpark")
    folder = work / "spark"
    site = folder / "site"
    for each in (site, folder / "start", folder / "etc"):
        each.mkdir(parents=True)
    # Java finds the name and the home of its user only here, and Hadoop needs a name.
    (folder / "etc" / "passwd").write_bytes(
        file_of(base.path, "etc/passwd") + f"{USER_LINE}\n".encode()
    )
    wheels = map(str, spark_wheels())
    run(*PIP, "install", "--no-compile", "--no-deps", "--no-index", f"--target={site}", *wheels)
    for name in SPARK_LEFT_OUT:
        shutil.rmtree(site / name)
    jars = spark_jars()
    if not (jars / "complete").exists():
        run(str(ROOT / "tools" / "setup"), "java", "jars")
    shutil.copy(ROOT / "deploy" / "spark" / "start", folder / "start")
    return write_layer(
        out,
        {
            f"{HOME}/lib/python3.11/site-packages": site,
            "/etc": folder / "etc",
            "/opt/spark": folder / "start",
            "/opt/spark/jars/s3": jars / "s3",
            "/opt/spark/jars/cloud": jars / "cloud",
        },
    )


def spark_jars() -> Path:
    """Returns the folder of the jars that join PySpark to S3."""
    return Path(output_of(str(ROOT / "tools" / "jars-dir")))


def spark_parts(work: Path) -> list[Iterator[Component]]:
    """Returns the packages of the PySpark image that others lack, once its layer is built."""
    site = work / "spark" / "site"
    return [
        python_packages(site),
        jar_packages(site),
        jar_packages(spark_jars(), ROOT / "tools" / "spark" / "pom.xml"),
    ]


def spark_wheels() -> list[Path]:
    """Returns the wheels of PySpark, which PyPI has as sources only, and of py4j; they are made once for each lock."""
    lock = LOCKS / "jobs.txt"
    folder = cache() / f"spark-{sha256(lock.read_bytes()).hexdigest()[:16]}"
    if not folder.is_dir():
        partial = folder.with_suffix(".partial")
        run(*WHEEL, "--require-hashes", f"--wheel-dir={partial}", "-r", str(lock))
        partial.replace(folder)
    return sorted(folder.glob("*.whl"))


def jars_layer(work: Path) -> Layer:
    """Returns the layer with Cassandra's jars, for evaluation."""
    out = work / "jars.tar"
    if out.exists():
        return Layer.of(out)
    settings = work / "cassandra"
    settings.mkdir()
    shutil.copy(ROOT / "tools" / "cassandra" / "logback.xml", settings)
    return write_layer(
        out, {"/opt/cassandra/jars": cassandra_jars(), "/opt/cassandra/conf": settings}
    )


def cassandra_jars() -> Path:
    """Returns the folder of Cassandra's jars, which are downloaded first if they are missing."""
    return Path(output_of(str(ROOT / "tools" / "cassandra" / "jars")))


def file_of(root: Path, name: str) -> bytes:
    """Returns the content of a regular file in a root file system, given as a tar file."""
    with tarfile.open(root) as tar:
        (member,) = (each for each in tar if each.name.removeprefix("./") == name)
        file = tar.extractfile(member)
        assert file is not None, "a regular file"
        return file.read()


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


def output_of(*command: str) -> str:
    """Returns what a command prints, which must succeed."""
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    return done.stdout.strip()


def say(text: str) -> None:
    """Tells the progress."""
    sys.stderr.write(f"images: {text}\n")


if __name__ == "__main__":
    sys.exit(main())
