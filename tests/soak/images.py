"""The images without Docker: ``images.py [FOLDER]``, as root, on Debian.

Each step of docker/Dockerfile is run in a fresh root that debootstrap makes, and then each service of
docker/compose.yaml that the image is for, with its own command and health check, in a network of its own. What this
leaves unproved is Docker itself, and that the base image is what is put together here: Debian, and CPython in
/usr/local.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[2]
DOCKER = ROOT / "docker"
RELEASE = "bookworm"
LIBRARIES = [
    "ca-certificates",
    "libssl3",
    "libsqlite3-0",
    "libffi8",
    "libbz2-1.0",
    "liblzma5",
    "libreadline8",
    "zlib1g",
]
"""Of CPython."""
NETWORK = [
    "/etc/resolv.conf",
    "/etc/hosts",
    "/etc/pip.conf",
    "/etc/ssl/certs/ca-certificates.crt",
    "/usr/local/share/ca-certificates",  # of which, too, Debian makes the file above again
]
SERVICES = {
    "spark": ["spark-master", "spark-worker-1"],
    "airflow": ["airflow-api-server", "airflow-scheduler", "airflow-dag-processor", "airflow-triggerer"],
}
HOST, SECONDS = "container", 180


@dataclass
class Image:
    """A root, and what the steps so far have set."""

    root: Path
    environment: dict[str, str] = field(default_factory=dict)
    folder: str = "/"
    user: str = "root"
    entry: list[str] = field(default_factory=list)

    def run(self, script: str, *, more: Mapping[str, str] | None = None, alone: bool = False) -> None:
        """alone: in a network that has nothing but loopback."""
        variables = {
            "PATH": "/usr/local/bin:/usr/bin:/usr/sbin:/bin",
            "HOME": "/root",
            **self.environment,
            **(more or {}),
        }
        kept = {name: value for name, value in os.environ.items() if re.search(r"CERT|CA_BUNDLE|CAINFO|_proxy$", name)}
        inside = f"cd {self.folder} && {script}"
        become = "" if self.user == "root" else f"setpriv --reuid={self.user} --regid={self.user} --clear-groups "
        mounts = f"mount -t proc proc {self.root}/proc && mount --rbind /dev {self.root}/dev"
        # As in a container its name has an address, which Spark asks for.
        network = f"hostname {HOST} && " + ("ip link set lo up && " if alone else "")
        command = f"{network}{mounts} && exec chroot {self.root} {become}bash -ec {shlex.quote(inside)}"
        spaces = ["--mount", "--pid", "--fork", "--kill-child", "--uts", *(["--net"] if alone else [])]
        subprocess.run(["unshare", *spaces, "bash", "-ec", command], env={**kept, **variables}, check=True)


def steps(stage: str) -> Iterator[tuple[str, str]]:
    """The instructions of a stage of the Dockerfile, those of the stages below it first."""
    text = re.sub(r"\\\n", " ", re.sub(r"(?m)^#.*\n", "", (DOCKER / "Dockerfile").read_text()))
    name, own = "", []
    for line in filter(None, map(str.strip, text.splitlines())):
        word, _, rest = line.partition(" ")
        if word == "FROM":
            base, name = re.fullmatch(r"(\S+) AS (\S+)", rest.strip()).groups()  # type: ignore[union-attr]
            if name == stage and ":" not in base:
                yield from steps(base)
        elif name == stage:
            own.append((word, rest.strip()))
    yield from own


def follow(image: Image, word: str, rest: str) -> None:
    """One instruction."""
    print(f"{word} {rest}"[:150], flush=True)
    if word == "RUN":
        image.run(rest)
    elif word == "COPY":
        *sources, target = rest.split()
        for source in sources:
            place = image.root / image.folder.lstrip("/") / target
            if (ROOT / source).is_dir():
                shutil.copytree(ROOT / source, place, ignore=shutil.ignore_patterns("__pycache__"), dirs_exist_ok=True)
            else:
                place = place / Path(source).name if target.endswith("/") else place
                place.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(ROOT / source, place)
    elif word == "ENV":
        for name, value in (part.split("=", 1) for part in shlex.split(rest)):
            image.environment[name] = re.sub(r"\$(\w+)", lambda match: image.environment[match[1]], value)
    elif word == "WORKDIR":
        image.folder = rest
        (image.root / rest.lstrip("/")).mkdir(parents=True, exist_ok=True)
    elif word == "USER":
        image.user = rest
    elif word == "ENTRYPOINT":
        image.entry = json.loads(rest)
    elif word not in ("EXPOSE", "CMD"):
        raise SystemExit(f"{word} isn't known here")


def base(root: Path) -> None:
    """Debian, and this interpreter's installation in /usr/local."""
    subprocess.run(["debootstrap", "--variant=minbase", f"--include={','.join(LIBRARIES)}", RELEASE, root], check=True)
    for place in map(Path, NETWORK):
        if place.is_dir():
            shutil.copytree(place, root / place.relative_to("/"), dirs_exist_ok=True)
        elif place.exists():
            shutil.copy(place, root / place.relative_to("/"))
    (root / "etc/hosts").write_text(f"127.0.0.1 localhost\n127.0.1.1 {HOST}\n")
    home = Path(sys.base_prefix)
    if home == Path("/usr"):
        raise SystemExit("wants a CPython with a folder of its own, as pyenv and the python images have it")
    packages = shutil.ignore_patterns("__pycache__", "test", "site-packages")
    shutil.copytree(home / "lib", root / "usr/local/lib", symlinks=True, dirs_exist_ok=True, ignore=packages)
    shutil.copytree(home / "include", root / "usr/local/include", symlinks=True, dirs_exist_ok=True)
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    shutil.copy(home / "bin" / version, root / "usr/local/bin" / version)
    for name in ("python", "python3"):
        (root / "usr/local/bin" / name).symlink_to(version)
    Image(root).run("ldconfig && update-ca-certificates && python -m ensurepip --default-pip")


def scripts(value: Any) -> list[str]:
    """A command as a list, as compose has it too."""
    words = value["test"] if isinstance(value, dict) else value
    words = words[1:] if words[0] == "CMD" else ["bash", "-c", words[1]] if words[0] == "CMD-SHELL" else words
    return [word.replace("$$", "$") for word in words]


def serve(image: Image, names: Sequence[str], places: Mapping[str, str]) -> None:
    """The services side by side, until each has said once that it is well. places: other names of theirs, as here."""
    services = yaml.safe_load((DOCKER / "compose.yaml").read_text())["services"]
    script = []
    for name in names:
        command, check = (shlex.join(scripts(services[name][what])) for what in ("command", "healthcheck"))
        for other, here in places.items():
            command = command.replace(other, here)
        script.append(f"({shlex.join(image.entry)} {command} > /tmp/{name}.log 2>&1) &")
        script.append(
            f"for i in $(seq {SECONDS}); do if {check} > /dev/null 2>&1; then echo {name}: healthy; break; fi; sleep 1;"
            f" if [ $i = {SECONDS} ]; then tail -n 40 /tmp/{name}.log; echo {name}: not healthy; exit 1; fi; done"
        )
    own = {
        "SPARK_NO_DAEMONIZE": "true", "SPARK_WORKER_DIR": "/tmp/spark-work", "HOSTNAME": HOST, "HOME": "/tmp",
        "AIRFLOW__SCHEDULER__ENABLE_HEALTH_CHECK": "true", "AIRFLOW__API_AUTH__JWT_SECRET": "x" * 64,
        "AIRFLOW__CORE__EXECUTION_API_SERVER_URL": "http://127.0.0.1:8080/execution/",
    }  # fmt: skip
    image.run("\n".join(script), more=own, alone=True)


def main(folder: Path) -> None:
    root = folder / "root"
    base(root)
    done: list[tuple[str, str]] = []
    for target, names in SERVICES.items():
        image = Image(root)
        for step in steps(target):
            if step not in done or step[0] not in ("RUN", "COPY"):
                follow(image, *step)
            done.append(step)
        image.run("binlake --version", more={"HOME": "/tmp"})
        serve(image, names, {"spark-master": "127.0.0.1"})
        print(f"{target}: every step was run, every service came up", flush=True)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        main(Path(sys.argv[1]))
    else:
        with tempfile.TemporaryDirectory(prefix="binlake-images-") as made:
            main(Path(made))
