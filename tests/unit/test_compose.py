"""docker/ can't be started where there is no engine: it is parsed, and checked against what is used elsewhere."""

from __future__ import annotations

import configparser
import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import servers
import shop
from binlake import versions
from binlake.cli import command_line
from binlake.storage import accounts

ROOT = Path(__file__).resolve().parents[2]
DOCKER = ROOT / "docker"
DOCKERFILE = (DOCKER / "Dockerfile").read_text()
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
LOCK = dict(re.findall(r"^([a-z0-9][\w.-]*)==(\S+)", (DOCKER / "requirements.lock").read_text(), re.MULTILINE))
COMPOSE: dict[str, Any] = yaml.safe_load((DOCKER / "compose.yaml").read_text())
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]


def texts(value: Any) -> list[str]:
    """Every string in a parsed document."""
    if isinstance(value, dict):
        return [text for item in value.values() for text in texts(item)]
    if isinstance(value, list):
        return [text for item in value for text in texts(item)]
    return [value] if isinstance(value, str) else []


def variables(text: str) -> set[str]:
    """Names that compose puts in; ``$$NAME`` is left to the container."""
    return set(re.findall(r"(?<!\$)\$\{([A-Z_]+)", text))


def settings(kind: str) -> dict[str, str]:
    parser = configparser.ConfigParser()
    parser.read(DOCKER / kind / "binlake.cnf")
    return dict(parser["mysqld" if kind == "mysql" else "mariadbd"])


def test_the_whole_stack_is_there() -> None:
    assert {"mysql", "mariadb", "postgres", "spark-master", "spark-worker-1", "spark-worker-2"} <= set(SERVICES)
    assert {f"airflow-{part}" for part in ("api-server", "scheduler", "dag-processor", "triggerer")} <= set(SERVICES)
    assert SERVICES["airflow-api-server"]["environment"]["AIRFLOW__CORE__TEST_CONNECTION"] == "Enabled"


@pytest.mark.parametrize("name", SERVICES)
def test_every_service_says_how_it_is(name: str) -> None:
    check = SERVICES[name]["healthcheck"]
    assert check["test"][0] in ("CMD", "CMD-SHELL")
    assert {"interval", "timeout", "retries"} <= set(check)


@pytest.mark.parametrize("name", SERVICES)
def test_who_is_waited_for_exists(name: str) -> None:
    for needed, how in SERVICES[name].get("depends_on", {}).items():
        assert needed in SERVICES
        assert how == {"condition": "service_healthy"}


@pytest.mark.parametrize("name", SERVICES)
def test_files_it_mounts_and_builds_from_exist(name: str) -> None:
    service = SERVICES[name]
    for volume in service.get("volumes", []):
        source = volume.split(":")[0]
        if source.startswith("."):
            assert (DOCKER / source).exists(), source
        else:
            assert source in COMPOSE["volumes"]
    if build := service.get("build"):
        context = DOCKER / build["context"]
        assert (context / build["dockerfile"]).is_file()
        assert re.search(rf"^FROM \S+ AS {build['target']}$", DOCKERFILE, re.MULTILINE)


@pytest.mark.parametrize("name", SERVICES)
def test_ports_are_open_to_this_machine_alone(name: str) -> None:
    for port in SERVICES[name].get("ports", []):
        assert port.startswith("127.0.0.1:")


def test_files_the_images_copy_exist_and_reach_the_build() -> None:
    ignored = (ROOT / ".dockerignore").read_text().splitlines()
    for copied in re.findall(r"^COPY (.*) \S+$", DOCKERFILE, re.MULTILINE):
        for name in copied.split():
            assert (ROOT / name).exists(), name
            assert f"!{name}" in ignored, name


def test_what_the_wheel_is_forced_to_include_is_copied_before_it_is_built() -> None:
    copied = [name for line in re.findall(r"^COPY (.*) \S+$", DOCKERFILE, re.MULTILINE) for name in line.split()]
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    forced = project["tool"]["hatch"]["build"]["targets"]["wheel"]["force-include"]
    assert [name for name in forced if not any(name == given or name.startswith(f"{given}/") for given in copied)] == []


def test_scripts_of_the_server_images_can_be_executed() -> None:
    # The images source what isn't executable, and its `set -e` would then be theirs.
    assert os.access(DOCKER / "create_account.sh", os.X_OK)


def test_no_secret_stands_in_a_file() -> None:
    secret = re.compile(r"PASSWORD|SECRET|KEY")
    for service in SERVICES.values():
        for name, value in service.get("environment", {}).items():
            handed_on = value is None  # by compose, from docker/.env
            if not handed_on and (secret.search(name) or "AIRFLOW_CONN_" in name.replace("CONN_SPARK", "")):
                assert "${" in str(value) or "CONN_SPARK" in name, name
    example = dict(
        line.split("=", 1) for line in (DOCKER / ".env.example").read_text().splitlines() if not line.startswith("#")
    )
    assert set(example.values()) == {""}
    without_default = {
        name for text in texts(COMPOSE) for name in variables(text) if re.search(rf"\$\{{{name}:\?", text)
    }
    assert without_default == set(example)


@pytest.mark.parametrize("kind", servers.KINDS)
def test_servers_have_the_settings_the_mirror_needs(kind: servers.Kind) -> None:
    server_settings = settings(kind)
    asked = dict(
        re.findall(r"^SET GLOBAL (\w+) = '(\w*)';", (shop.SQL / "server_settings.sql").read_text(), re.MULTILINE)
    )
    assert asked == {"binlog_format": "ROW", "binlog_row_image": "FULL", "binlog_row_metadata": "FULL"}
    for name, value in asked.items():
        assert server_settings[name] == value
        assert servers.COMMON[name] == value  # the tests' own servers too
    assert server_settings["log_bin"]
    assert int(server_settings["server_id"]) > 0
    if kind == "mysql":
        assert server_settings["gtid_mode"] == server_settings["enforce_gtid_consistency"] == "ON"


def test_servers_have_ids_of_their_own() -> None:
    assert settings("mysql")["server_id"] != settings("mariadb")["server_id"]


@pytest.mark.parametrize("kind", servers.KINDS)
def test_servers_make_the_account_with_the_grants_of_sql(kind: servers.Kind) -> None:
    volumes = SERVICES[kind]["volumes"]
    assert f"../sql/grants_{kind}.sql:/binlake/grants.sql:ro" in volumes
    assert all(grant.startswith("GRANT ") and "'binlake'@'%'" in grant for grant in shop.grants(kind))


def test_mysql_is_new_enough_for_its_grants() -> None:
    assert int(SERVICES["mysql"]["image"].removeprefix("mysql:").split(".")[0]) >= 9


def test_versions_agree() -> None:
    assert LOCK["pyspark"] == LOCK["pyspark-client"] == versions.SPARK
    assert LOCK["delta-spark"] == versions.DELTA
    pins = dict(re.findall(r"^([a-z-]+)==([\d.]+)$", "\n".join(PROJECT["dependencies"]), re.MULTILINE))
    assert "delta-spark" in pins
    asked = [*PROJECT["dependencies"], *PROJECT["optional-dependencies"]["airflow"]]
    bounds = [line.partition(">=")[2] for line in asked if re.match("pyspark(-client)?>", line)]
    assert bounds == [f"4.0.1,<={versions.SPARK}"] * 2
    assert pins.items() <= LOCK.items()
    minor = re.search(r">=(3\.\d+)", PROJECT["requires-python"])
    assert minor
    assert f"ARG PYTHON_IMAGE=python:{minor[1]}-" in DOCKERFILE
    assert f"openjdk-{versions.JAVA}-jre-headless" in DOCKERFILE
    uv = re.search(r"^UV=(\S+)$", (DOCKER / "local" / "setup.sh").read_text(), re.MULTILINE)
    assert uv
    assert f"uv=={uv[1]} " in (DOCKER / "uv.lock").read_text()
    for service in SERVICES.values():
        if service["image"].startswith("binlake-"):
            assert service["image"].endswith(f":{PROJECT['version']}")


def test_the_lock_has_what_pyproject_asks_for() -> None:
    """`make lock` after a change of bounds: else an installation by the lock doesn't fit its own wheel."""
    asked = [*PROJECT["dependencies"], *(line for extra in PROJECT["optional-dependencies"].values() for line in extra)]
    for requirement in map(Requirement, asked):
        name = canonicalize_name(requirement.name)
        assert name in LOCK, f"{name} isn't in docker/requirements.lock: run make lock"
        assert requirement.specifier.contains(LOCK[name], prereleases=True), (
            f"{requirement}, and {LOCK[name]} is locked"
        )


def test_the_s3_server_is_the_one_of_the_tests() -> None:
    wanted = re.search(r"^VERSITYGW=(\S+)$", (DOCKER / "local" / "setup.sh").read_text(), re.MULTILINE)
    assert wanted
    assert f"cmd/versitygw@{wanted[1]} " in DOCKERFILE


def test_a_lake_on_s3_is_known_to_drivers_and_executors() -> None:
    assert SERVICES["s3"]["profiles"] == ["s3"]
    for who in ("airflow-scheduler", "spark-worker-1"):
        credentials = {name for name in SERVICES[who]["environment"] if name.startswith(("AWS_", "AZURE_"))}
        azure = {"AZURE_STORAGE_ACCOUNT_KEY"} | {
            f"AZURE_{name}" for name in ("CLIENT_ID", "TENANT_ID", "CLIENT_SECRET")
        }
        assert credentials == {"AWS_ENDPOINT_URL", "AWS_ALLOW_HTTP", "AWS_REGION", *accounts.SECRETS, *azure}
    assert "binlake setup --stores s3 azure" in DOCKERFILE


@pytest.mark.parametrize("lock", ["requirements.lock", "uv.lock"])
def test_a_lock_has_a_hash_for_every_package(lock: str) -> None:
    blocks = re.split(r"^(?=[a-z0-9][\w.-]*==)", (DOCKER / lock).read_text(), flags=re.MULTILINE)
    assert all("--hash=sha256:" in block for block in blocks if "==" in block)
    for text in (DOCKERFILE, (DOCKER / "local" / "setup.sh").read_text()):
        assert re.search(rf"--require-hashes .*-r docker/{re.escape(lock)}", text)
        assert not re.search(r"pip install [^\n]*uv==", text)


def test_spark_s_processes_prove_a_secret_to_each_other(tmp_path: Path) -> None:
    sparks = [name for name in SERVICES if name.startswith(("spark-", "airflow-")) or name == "follow"]
    assert {SERVICES[name]["environment"]["SPARK_AUTH_SECRET"] for name in sparks} == {
        "${SPARK_AUTH_SECRET:?set it in docker/.env}"
    }
    assert 'ENTRYPOINT ["tini", "--", "with_spark_secret"]' in DOCKERFILE
    given = {"PATH": os.environ["PATH"], "SPARK_CONF_DIR": str(tmp_path), "SPARK_AUTH_SECRET": "a secret"}
    command = [str(DOCKER / "with_spark_secret.sh"), "bash", "-c", "umask; echo ${SPARK_AUTH_SECRET-none}"]
    assert subprocess.check_output(command, env=given, text=True).split() == ["0022", "none"]
    written = tmp_path / "spark-defaults.conf"
    assert written.read_text() == "spark.authenticate true\nspark.authenticate.secret a secret\n"
    assert written.stat().st_mode & 0o777 == 0o600


def test_docker_itself_reads_it() -> None:
    """`docker compose config`, where a client has it; no engine is needed for that."""
    docker = shutil.which("docker")
    has_compose = docker and subprocess.run([docker, "compose", "version"], capture_output=True).returncode == 0
    if not has_compose:
        pytest.skip("no docker client with compose here")
    needed = {name: "x" for text in texts(COMPOSE) for name in variables(text) if f"{name}:?" in text}
    command = ["docker", "compose", "-f", str(DOCKER / "compose.yaml"), "config", "--quiet"]
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, **needed})
    assert done.returncode == 0, done.stderr


def test_the_catalog_is_started_with_a_secret_or_refuses(tmp_path: Path) -> None:
    """Its own command, as far as this program's check of options."""
    shell, option, script = SERVICES["catalog"]["command"]
    written = script.replace("$$", "$").replace("/tmp/clients", f"{tmp_path}/clients")
    binlake = f"{sys.executable} -m binlake.cli.command_line"
    parsed = written.replace("exec binlake", f"exec {binlake}").replace("/opt/binlake/dags", f"{ROOT}/dags")
    for secret, said in (("", "is no client"), ("a-secret-of-tests-0123", "aren't published as Iceberg tables")):
        given = {**os.environ, "CATALOG_SECRET": secret, "AIRFLOW_CONN_SHOP_MYSQL": "mysql://u@127.0.0.1/"}
        done = subprocess.run([shell, option, parsed], capture_output=True, text=True, env=given, timeout=120)
        assert done.returncode == 2
        assert said in done.stderr
        assert not secret or secret not in done.stderr
    assert (tmp_path / "clients").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("command", ["follow", "catalog"])
def test_a_unit_runs_a_command_that_there_is(command: str) -> None:
    unit = configparser.ConfigParser(interpolation=None, strict=False)
    unit.read_string((DOCKER / f"binlake-{command}@.service").read_text())
    words = unit["Service"]["ExecStart"].replace(" $CATALOG_OPTIONS", "").split()
    assert words[0] == "/opt/binlake/bin/binlake"
    parsed = command_line._parser().parse_args(words[1:])
    assert "/etc/binlake/pipelines/%i.yaml" in parsed.config


@pytest.mark.parametrize("command", ["follow", "catalog"])
def test_systemd_itself_reads_a_unit(tmp_path: Path, command: str) -> None:
    """It warns of what it doesn't know, and of a program that isn't there."""
    if not shutil.which("systemd-analyze"):
        pytest.skip("no systemd here")
    unit = (DOCKER / f"binlake-{command}@.service").read_text()
    (tmp_path / f"binlake-{command}@.service").write_text(unit.replace("/opt/binlake/bin/binlake", sys.executable))
    verify = ["systemd-analyze", "verify", "--man=no", f"{tmp_path}/binlake-{command}@shop.service"]
    done = subprocess.run(verify, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_unit_that_was_enabled_before_the_first_snapshot_begins_after_it() -> None:
    unit = configparser.ConfigParser(interpolation=None)
    unit.read_string((DOCKER / "binlake-follow@.service").read_text())
    service = unit["Service"]
    assert service["Restart"] == "always"
    assert "RestartPreventExitStatus" not in service, "before the first snapshot a follower ends with exit code 2"
