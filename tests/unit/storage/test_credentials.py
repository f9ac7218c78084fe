"""Accounts that no variable holds, and authorities of one's own: each library finds them, at one's own server, too."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from deltalake.exceptions import TableNotFoundError

from authority import Authority
from binlake.delta import opened_tables
from binlake.storage import accounts, files, stores
from binlake.storage.s3 import ContainerRole
from fake_s3 import FakeS3

PATH = "s3a://lake/t"


@pytest.fixture(autouse=True)
def nobody(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Of whom no machine's own settings tell."""
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in (*accounts.SECRETS, "AWS_PROFILE", "AWS_CA_BUNDLE", "SSL_CERT_FILE"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeS3]:
    with FakeS3() as running:
        for name, value in running.environment.items():
            monkeypatch.setenv(name, value)
        yield running


def by_pyarrow() -> None:
    files.list_files(PATH)


def by_deltalake() -> None:
    with pytest.raises(TableNotFoundError):
        opened_tables.opened(PATH)


def by_obstore() -> None:
    assert files.writes_if_absent(PATH)
    files.write_if_absent(f"{PATH}/_delta_log/0.json", "ours")


def asked_by(store: FakeS3) -> list[set[str]]:
    """Whose requests those of each library are."""
    roles = []
    for attempt in (by_pyarrow, by_deltalake, by_obstore):
        store.accounts.clear()
        attempt()
        roles.append(set(store.accounts))
    return roles


@pytest.mark.parametrize("kept", ["variable", "file", "nowhere"])
def test_each_library_takes_a_container_s_role_wherever_its_token_is(
    store: FakeS3, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, kept: str
) -> None:
    monkeypatch.setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", f"{store.url}/role")
    if kept == "nowhere":
        store.token = None
    elif kept == "file":
        (tmp_path / "token").write_text(str(store.token))
        monkeypatch.setenv("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", str(tmp_path / "token"))
    else:
        monkeypatch.setenv("AWS_CONTAINER_AUTHORIZATION_TOKEN", str(store.token))
    assert asked_by(store) == [{"of-the-role"}] * 3


def test_a_role_that_is_refused_is_told_as_the_store_s_failure(store: FakeS3, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", f"{store.url}/role")
    with pytest.raises(OSError, match="403"):
        by_obstore()


def test_a_role_stands_behind_what_else_tells_an_account() -> None:
    role = {
        "AWS_CONTAINER_CREDENTIALS_FULL_URI": "http://127.0.0.1/role",
        "AWS_CONTAINER_AUTHORIZATION_TOKEN": "secret",
    }
    container = ContainerRole.of(role)
    assert container is not None
    assert "secret" not in repr(container)
    assert ContainerRole.of({}) is None
    for name in ("AWS_ACCESS_KEY_ID", "AWS_WEB_IDENTITY_TOKEN_FILE", "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI"):
        assert ContainerRole.of({**role, name: "x"}) is None


def test_a_profile_counts_at_a_server_of_ones_own(
    store: FakeS3, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Of which obstore knows none, so it isn't asked."""
    (tmp_path / "credentials").write_text("[lake]\naws_access_key_id = of-the-profile\naws_secret_access_key = x\n")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    monkeypatch.setenv("AWS_PROFILE", "lake")
    by_deltalake()
    assert set(store.accounts) == {"of-the-profile"}
    assert not files.writes_if_absent(PATH)


def test_each_library_trusts_the_authorities_of_ssl_cert_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    authority = Authority.made(tmp_path, "authority")
    with FakeS3(authority.sign("store")) as store:
        account = {"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b"}
        for name, value in {**store.environment, **account, "SSL_CERT_FILE": str(authority.pem)}.items():
            monkeypatch.setenv(name, value)
        stores.check(PATH)
        assert asked_by(store) == [{"a"}] * 3
