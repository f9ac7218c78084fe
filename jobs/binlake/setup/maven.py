"""Conversion of the account's Maven settings (``~/.m2/settings.xml``) for Ivy and Java: a mirror of Maven Central, its
credentials, and a proxy. An existing ``~/.ivy2/ivysettings.xml`` is used instead."""

from __future__ import annotations

import os
import re
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit
from xml.etree import ElementTree
from xml.etree.ElementTree import Element
from xml.sax.saxutils import quoteattr

from binlake.errors import SetupFailed

_VARIABLE = re.compile(r"\$\{env\.([^}]+)\}")
_REALM = re.compile(r'realm="([^"]*)"')
_SECONDS = 30
_ENCRYPTED = re.compile(r"\{.+\}")


@dataclass(frozen=True)
class Downloads:
    """Settings for Ivy. ivy: its settings file's text, or empty. options: of its JVM. Both may contain passwords."""

    ivy: str = ""
    options: tuple[str, ...] = ()

    def write(self, folder: Path) -> tuple[list[str], list[str]]:
        """Write files that only this account may read; return the arguments that name them to Java, and to Ivy."""
        java, ivy = [], []
        if self.options:
            options = "\n".join(map(_quoted, self.options))
            java = [f"@{_private(folder / 'java.options', options)}"]
        if self.ivy:
            ivy = ["-settings", str(_private(folder / "ivysettings.xml", self.ivy))]
        return java, ivy


def downloads(home: Path) -> Downloads:
    """Return the settings by the account's files. Raises SetupFailed, without passwords, if they can't be used."""
    if (own := home / ".ivy2" / "ivysettings.xml").is_file():
        return Downloads(f"<ivysettings><include file={quoteattr(str(own))}/></ivysettings>")
    file = home / ".m2" / "settings.xml"
    if not file.is_file():
        return Downloads()
    try:
        root = ElementTree.parse(file).getroot()
    except (OSError, ElementTree.ParseError) as error:
        raise SetupFailed(f"can't read {file}: {error}", remedy="fix it, or give a folder of jars by --jars") from None
    return Downloads(_ivy(root, file), tuple(_proxies(root, file)))


def _ivy(root: Element, file: Path) -> str:
    mirror = next(
        (child for child in root.iterfind("{*}mirrors/{*}mirror") if _is_of_central(_text(child, "mirrorOf"))), None
    )
    if mirror is None:
        return ""
    url, account = _text(mirror, "url"), ""
    for server in root.iterfind("{*}servers/{*}server"):
        if _text(server, "id") == _text(mirror, "id") and _text(server, "username"):
            login = {
                "username": _text(server, "username"),
                "passwd": _password(server, file),
                "realm": _realm(url),
            }
            words = " ".join(f"{name}={quoteattr(value)}" for name, value in login.items())
            account = f"<credentials host={quoteattr(urlsplit(url).hostname or '')} {words}/>"
    return (
        f'<ivysettings><settings defaultResolver="mirror"/>{account}<resolvers>'
        f'<ibiblio name="mirror" m2compatible="true" root={quoteattr(url)}/></resolvers></ivysettings>'
    )


def _realm(url: str) -> str:
    """Return the realm that the mirror asks credentials for: Ivy needs it, and Maven's settings don't have it."""
    try:
        urllib.request.urlopen(f"{url.rstrip('/')}/org/", timeout=_SECONDS).close()
    except urllib.error.HTTPError as refused:
        match = _REALM.search(refused.headers.get("WWW-Authenticate") or "")
        return match[1] if match else ""
    except (OSError, ValueError):
        pass  # Ivy reports it better
    return ""


def _is_of_central(pattern: str) -> bool:
    parts = [part.strip() for part in pattern.split(",")]
    return "!central" not in parts and any(part in ("central", "*", "external:*") for part in parts)


def _proxies(root: Element, file: Path) -> Iterator[str]:
    """Yield Java's options for the first active proxy, which is used for both protocols, as in Maven."""
    active = [proxy for proxy in root.iterfind("{*}proxies/{*}proxy") if _text(proxy, "active") != "false"]
    for proxy in active[:1]:
        for protocol in ("http", "https"):
            properties = {"Host": _text(proxy, "host"), "Port": _text(proxy, "port") or "8080"}
            if _text(proxy, "username"):
                properties |= {"User": _text(proxy, "username"), "Password": _password(proxy, file)}
            yield from (f"-D{protocol}.proxy{name}={value}" for name, value in properties.items())
        if direct := _text(proxy, "nonProxyHosts"):
            yield f"-Dhttp.nonProxyHosts={direct}"


def _password(element: Element, file: Path) -> str:
    password = _text(element, "password")
    if _ENCRYPTED.fullmatch(password):
        raise SetupFailed(
            f"{file}: the password of {_text(element, 'id') or 'the proxy'} is encrypted, which Maven alone can read",
            remedy="write it as ${env.NAME} and set that variable, or give a folder of jars by --jars",
        )
    return password


def _text(element: Element, name: str) -> str:
    text = element.findtext(f"{{*}}{name}", "").strip()
    return _VARIABLE.sub(lambda match: os.environ.get(match[1], ""), text).replace("${user.home}", str(Path.home()))


def _private(path: Path, text: str) -> Path:
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
        file.write(text)
    return path


def _quoted(word: str) -> str:
    """Return a word quoted as in Java's argument files."""
    return '"' + word.replace("\\", "\\\\").replace('"', '\\"') + '"'
