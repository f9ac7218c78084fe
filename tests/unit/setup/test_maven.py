"""`binlake setup` behind a mirror: the account's Maven settings, followed by Ivy."""

from __future__ import annotations

import base64
import stat
import threading
from collections.abc import Iterator
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from binlake.errors import SetupFailed
from binlake.setup import installation, maven
from binlake.spark import java_program
from binlake.versions import Jar

PASSWORD = 'not told & "quoted"'
SETTINGS = """<settings xmlns="http://maven.apache.org/SETTINGS/1.0.0">
<servers><server><id>other</id><username>x</username><password>y</password></server>
<server><id>ours</id><username>reader</username><password>${{env.OUR_PASSWORD}}</password></server></servers>
<mirrors><mirror><id>other</id><url>http://127.0.0.1:1/</url><mirrorOf>*,!central</mirrorOf></mirror>
<mirror><id>ours</id><url>{url}</url><mirrorOf>central</mirrorOf></mirror></mirrors>
{more}</settings>"""
PROXY = """<proxies><proxy><active>false</active><host>off</host></proxy><proxy><host>proxy</host><port>3128</port>
<username>me</username><password>${env.OUR_PASSWORD}</password><nonProxyHosts>a|b</nonProxyHosts></proxy></proxies>"""


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("OUR_PASSWORD", PASSWORD)
    (tmp_path / "home" / ".m2").mkdir(parents=True)
    return tmp_path / "home"


@pytest.fixture
def mirror(tmp_path: Path) -> Iterator[tuple[str, list[str]]]:
    """A repository that asks who is there; its address, and the files that it gave."""
    place = tmp_path / "repository" / "org" / "example" / "stream" / "2.0"
    place.mkdir(parents=True)
    (place / "stream-2.0.jar").write_bytes(b"classes")
    given: list[str] = []

    class Asking(SimpleHTTPRequestHandler):
        def send_head(self) -> Any:
            account = base64.b64encode(f"reader:{PASSWORD}".encode()).decode()
            if self.headers.get("Authorization") != f"Basic {account}":
                self.send_response(401)
                self.send_header("WWW-Authenticate", 'Basic realm="any"')
                self.send_header("Content-Length", "0")
                self.end_headers()
                return None
            given.append(self.path)
            return super().send_head()

        def log_message(self, *_: object) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), lambda *a: Asking(*a, directory=str(tmp_path / "repository")))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/", given
    server.shutdown()
    server.server_close()


def test_jars_come_from_the_mirror_by_its_account(
    home: Path, mirror: tuple[str, list[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url, given = mirror
    (home / ".m2" / "settings.xml").write_text(SETTINGS.format(url=url, more=""))
    commands: list[list[str]] = []
    run = installation._run

    def noted(command: list[str], *more: Any) -> None:
        commands.append(command)
        run(command, *more)

    monkeypatch.setattr(installation, "_run", noted)
    java = java_program.java()
    assert java
    installation._resolve([Jar("org.example", "stream", "2.0", "")], java, tmp_path)
    assert (tmp_path / "stream-2.0.jar").read_bytes() == b"classes"
    assert "/org/example/stream/2.0/stream-2.0.jar" in given
    assert stat.S_IMODE((tmp_path / "ivysettings.xml").stat().st_mode) == 0o600
    assert PASSWORD not in str(commands)


def test_a_proxy_is_told_to_java_by_a_file(home: Path, tmp_path: Path) -> None:
    (home / ".m2" / "settings.xml").write_text(SETTINGS.format(url="http://127.0.0.1:1/", more=PROXY))
    java, _ = maven.downloads(home).write(tmp_path)
    assert java == [f"@{tmp_path / 'java.options'}"]
    options = (tmp_path / "java.options").read_text().splitlines()
    assert {'"-Dhttps.proxyHost=proxy"', '"-Dhttps.proxyPort=3128"', '"-Dhttp.nonProxyHosts=a|b"'} <= set(options)
    assert r'"-Dhttp.proxyPassword=not told & \"quoted\""' in options
    assert not any("off" in line for line in options)


def test_what_maven_alone_can_read_is_said(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OUR_PASSWORD", "{COQLCE6DU6GtcS5P=}")
    (home / ".m2" / "settings.xml").write_text(SETTINGS.format(url="http://127.0.0.1:1/", more=""))
    with pytest.raises(SetupFailed, match="password of ours is encrypted"):
        maven.downloads(home)
    (home / ".m2" / "settings.xml").write_text("<settings>")
    with pytest.raises(SetupFailed, match=r"can't read .*settings\.xml"):
        maven.downloads(home)


def test_ivys_own_settings_go_before_and_without_any_nothing_is_said(home: Path) -> None:
    assert maven.downloads(home) == maven.Downloads()
    (home / ".ivy2").mkdir()
    (home / ".ivy2" / "ivysettings.xml").write_text("<ivysettings/>")
    assert str(home / ".ivy2" / "ivysettings.xml") in maven.downloads(home).ivy
