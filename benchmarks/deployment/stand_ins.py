"""Makes stand-ins for base images out of Debian's packages, on a machine that reaches no registry of images.

Each gets the name of the image that it stands for, and what the project's files rely on in that: Python below
``/usr/local``, Valkey's user and entry point, Prometheus's and Grafana's users and folders. What this
machine's own package managers need (mirrors, certificates, folders of packages) is put into those that
packages are installed in.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.deployment.engine import PACKAGES, PATHS, CommandFailed, Engine

RELEASE = "trixie"
CERTIFICATES = Path("/etc/ssl/certs/ca-certificates.crt")
#: What a Python that was built elsewhere asks for.
PYTHON_LIBRARIES = (
    "libbz2-1.0", "libffi8", "liblzma5", "libncursesw6", "libreadline8t64", "libsqlite3-0", "libssl3t64",
    "libuuid1", "netbase", "tzdata", "zlib1g",
)  # fmt: skip
NOT_IN_IMAGES = ("./proc/*", "./dev/*", "./sys/*", "./var/lib/apt/lists/*", "./var/cache/apt/*")
#: Starts the server as the image's own script does: as its user where it was started as root.
VALKEY_START = """#!/bin/sh
set -e
if [ "$(id -u)" = 0 ]; then
    chown -R valkey /data
    exec setpriv --reuid=valkey --regid=valkey --clear-groups "$@"
fi
exec "$@"
"""


@dataclass(frozen=True)
class StandIn:
    """What an image is made of.

    Attributes:
        root: name of its folder.
        packages: that are installed in it.
        users: commands that make what its users need.
        settings: of the image, as a Dockerfile's instructions.
    """

    root: str
    packages: tuple[str, ...]
    users: str
    settings: tuple[str, ...]


STAND_INS = {
    "python": StandIn("python", PYTHON_LIBRARIES, "true", ('CMD ["python3"]', "ENV LANG=C.UTF-8")),
    "valkey": StandIn(
        "valkey",
        ("valkey-server", "valkey-tools"),
        "usermod -u 999 valkey; groupmod -g 999 valkey; install -d -o 999 -g 999 -m 1777 /data",
        ('ENTRYPOINT ["start-valkey"]', "WORKDIR /data", 'CMD ["valkey-server"]'),
    ),
    "prometheus": StandIn(
        "prometheus",
        ("prometheus",),
        "install -d -o 65534 -g 65534 /prometheus /etc/prometheus",
        ('ENTRYPOINT ["/usr/bin/prometheus"]', "WORKDIR /prometheus", "USER nobody"),
    ),
    # No Grafana is packaged: its user writes into its folder and waits.
    "grafana": StandIn(
        "grafana",
        (),
        "install -d -o 472 -g 0 -m 0777 /var/lib/grafana",
        ('ENTRYPOINT ["sh", "-ec", "touch /var/lib/grafana/grafana.db && exec sleep infinity"]', "USER 472"),
    ),
}


class Bootstrap:
    """Makes folders with a minimal Debian and packages in them.

    Args:
        folder: where they are made; what is there already is taken as it is.
        niceness: of the package managers.
    """

    def __init__(self, folder: Path, niceness: int) -> None:
        self._folder, self._niceness = folder, niceness
        self._log = folder / "debian.log"

    def make_daemon(self) -> None:
        """Makes the root of the Docker daemon."""
        self._make("host", PACKAGES)

    def make_image(self, kind: str, pip_settings: Sequence[str]) -> Path:
        """Makes the root of a stand-in and returns its folder.

        Args:
            kind: one of STAND_INS.
            pip_settings: lines of pip's configuration in it.
        """
        image = STAND_INS[kind]
        root = self._folder / image.root
        if not root.exists():
            self._make(image.root, image.packages)
            self._run("chroot", str(root), "sh", "-ec", image.users)
        if kind == "valkey":
            (root / "usr/local/bin/start-valkey").write_text(VALKEY_START)
            (root / "usr/local/bin/start-valkey").chmod(0o755)
        if kind == "python":
            self._add_python(root)
            (root / "etc/pip.conf").write_text("\n".join(["[global]", *pip_settings, ""]))
        return root

    def _make(self, name: str, packages: Sequence[str]) -> None:
        root, part = self._folder / name, self._folder / f"{name}.part"
        if root.exists():
            return
        self._make_base()
        shutil.rmtree(part, ignore_errors=True)
        self._run("cp", "--archive", str(self._folder / "base"), str(part))
        install = ("apt-get", "install", "--yes", "--no-install-recommends")
        self._run("chroot", str(part), *install, *packages)
        part.rename(root)

    def _make_base(self) -> None:
        base, part = self._folder / "base", self._folder / "base.part"
        if base.exists():
            return
        if shutil.which("debootstrap") is None:
            self._run("apt-get", "update")
            self._run("apt-get", "install", "--yes", "--no-install-recommends", "debootstrap")
        shutil.rmtree(part, ignore_errors=True)
        mirrors = list_mirrors()
        self._run(
            "debootstrap",
            "--variant=minbase",
            "--include=ca-certificates",
            RELEASE,
            str(part),
            mirrors["Debian"],
        )
        suites = {"Debian": (RELEASE, f"{RELEASE}-updates"), "Debian-Security": (f"{RELEASE}-security",)}
        lines = [
            f"deb {mirrors[label]} {suite} main"
            for label in suites
            if label in mirrors
            for suite in suites[label]
        ]
        (part / "etc/apt/sources.list").write_text("\n".join([*lines, ""]))
        for file in Path("/etc/apt/apt.conf.d").iterdir():
            if "Acquire::" in file.read_text():
                shutil.copy(file, part / "etc/apt/apt.conf.d")
        shutil.copy("/etc/resolv.conf", part / "etc/resolv.conf")
        shutil.copy(CERTIFICATES, part / CERTIFICATES.relative_to("/"))
        (part / "usr/sbin/policy-rc.d").write_text("#!/bin/sh\nexit 101\n")  # no package starts its server
        (part / "usr/sbin/policy-rc.d").chmod(0o755)
        self._run("chroot", str(part), "apt-get", "update")
        part.rename(base)

    def _add_python(self, root: Path) -> None:
        """Copies the Python that runs this below /usr/local, without its packages and tests."""
        version = f"python{sys.version_info.major}.{sys.version_info.minor}"
        place = root / "usr/local"
        if (place / "bin" / version).exists():
            return
        prefix = Path(sys.base_prefix)
        unwanted = shutil.ignore_patterns("__pycache__", "site-packages", "test", "*.a")
        shutil.copytree(
            prefix / "lib" / version, place / "lib" / version, ignore=unwanted, dirs_exist_ok=True
        )
        (place / "lib" / version / "site-packages").mkdir(exist_ok=True)
        for library in (prefix / "lib").glob(f"lib{version}.so*"):
            shutil.copy(library, place / "lib")
        (place / "include").mkdir(exist_ok=True)
        shutil.copytree(prefix / "include" / version, place / "include" / version, dirs_exist_ok=True)
        shutil.copy(Path(sys.base_prefix) / "bin" / version, place / "bin")
        for name in ("python3", "python"):
            (place / "bin" / name).symlink_to(version)
        self._run("chroot", str(root), "ldconfig")
        self._run("chroot", str(root), "python", "-m", "ensurepip")

    def _run(self, *command: str) -> None:
        environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
        words = ["nice", "-n", str(self._niceness), *command]
        with self._log.open("ab") as log:
            ended = subprocess.run(words, env=environment, stdout=log, stderr=log, stdin=subprocess.DEVNULL)
        if ended.returncode:
            raise CommandFailed(f"{' '.join(command)[:200]}: {self._log.read_text(errors='replace')[-1500:]}")


def list_mirrors() -> dict[str, str]:
    """Reads where this machine's Debian takes packages from, by the archive's label."""
    query = ["apt-get", "indextargets", "--format", "$(LABEL) $(REPO_URI)", "Created-By: Packages"]
    lines = subprocess.run(query, capture_output=True, text=True).stdout.splitlines()
    return {label: address for label, _, address in (line.partition(" ") for line in lines)}


def import_image(engine: Engine, name: str, root: Path, settings: Sequence[str]) -> None:
    """Makes an image of a folder.

    Args:
        engine: that gets it.
        name: of the image.
        root: the folder.
        settings: instructions of a Dockerfile.
    """
    changes = [word for line in [*settings, f"ENV PATH={PATHS}"] for word in ("--change", line)]
    exclude = [f"--exclude={pattern}" for pattern in NOT_IN_IMAGES]
    archive = root.with_suffix(".tar")
    subprocess.run(
        ["tar", "-C", str(root), "--numeric-owner", *exclude, "-cf", str(archive), "."], check=True
    )
    engine.docker("import", *changes, str(archive), name)
    archive.unlink()
