"""Airflow's own forms of a connection; the password shows nowhere."""

import pickle
import stat
from pathlib import Path

import pytest
from pymysql.err import OperationalError

from authority import Authority
from binlake.config import SourceConfig
from binlake.errors import AccessDenied, ConfigurationError
from binlake.source import log
from binlake.source.connection import CONNECTION_FILE, from_environment, parse_airflow_connection, translate, write_file
from binlake.source.endpoint import Endpoint


def test_uri() -> None:
    endpoint = parse_airflow_connection("mysql://u%40x:p%2Fw%3A@db.example:3307/", name="X")
    assert (endpoint.host, endpoint.port, endpoint.user, endpoint.password) == ("db.example", 3307, "u@x", "p/w:")


def test_json_with_tls() -> None:
    text = '{"conn_type": "mysql", "host": "h", "login": "u", "password": "p", "extra": {"ssl": {"ca": "/ca.pem"}}}'
    endpoint = parse_airflow_connection(text, name="X")
    assert (endpoint.port, dict(endpoint.tls)) == (3306, {"ca": "/ca.pem"})


def test_tls_in_fields_of_their_own_as_airflow_s_form_has_them() -> None:
    text = "mysql://u:p@h/?ssl_ca=/ca.pem&ssl_cert=/c.pem&ssl_key=/k.pem&ssl_verify_mode=none&ssl_check_hostname="
    endpoint = parse_airflow_connection(text, name="X")
    assert dict(endpoint.tls) == {"ca": "/ca.pem", "cert": "/c.pem", "key": "/k.pem", "verify_mode": "none"}
    assert endpoint.encryption is not None
    assert not endpoint.encryption.verified
    with pytest.raises(ConfigurationError, match="ssl_capath"):
        parse_airflow_connection("mysql://u:p@h/?ssl_capath=/certs", name="X")


@pytest.mark.parametrize("password", ["p@s3cret", "p:@s3cret", "@", "%40s3cret", "s3cret@:"])
def test_a_password_may_have_an_at(password: str) -> None:
    endpoint = parse_airflow_connection(f"mysql://u:{password}@h/", name="X")
    assert (endpoint.host, endpoint.user, endpoint.password) == ("h", "u", password.replace("%40", "@"))


@pytest.mark.parametrize("uri", ["http://x", "https://u:s3cret@h/", "postgres://u:s3cret@h:5432/db"])
def test_another_service_is_no_source(uri: str) -> None:
    with pytest.raises(ConfigurationError, match="a source's is a MySQL or MariaDB server") as caught:
        parse_airflow_connection(uri, name="X")
    assert "s3cret" not in str(caught.value)


@pytest.mark.parametrize(
    ("said", "remedy"),
    [
        ("you need (at least one of) the SUPER, BINLOG MONITOR privilege(s) for", "GRANT BINLOG MONITOR ON *.* to the"),
        ("you need (at least one of) the REPLICATION SLAVE privilege(s) for", "GRANT REPLICATION SLAVE ON *.* to the"),
        ("you need (at least one of) the SUPER privilege(s) for this", "GRANT SUPER ON *.* to the account"),
        ("for user 'u'@'%' (using password: YES)", "check the password"),
    ],
)
def test_a_privilege_that_the_server_names_is_asked_for(said: str, remedy: str) -> None:
    error = translate(OperationalError(1227, f"Access denied; {said} this operation"), Endpoint("h", 3306, "u", "p"))
    assert isinstance(error, AccessDenied)
    assert error.remedy.startswith(remedy)


NO_URIS = [
    "not a uri with s3cret", "{s3cret", "mysql://", "mysql://u:s3cret@h:port/", "mysql://u:p@s3cret/x@h/",
    "mysql://u:p@s3cret#x@h/", "mysql://u:p@s3cret?x@h/x@y", "mysql://s3cret:1#x@h/", "mysql://u:[s3cret@h/",
]  # fmt: skip


@pytest.mark.parametrize("text", NO_URIS)
def test_errors_do_not_repeat_the_text(text: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        parse_airflow_connection(text, name="AIRFLOW_CONN_X")
    assert "s3cret" not in str(caught.value)
    assert "AIRFLOW_CONN_X" in str(caught.value)


def test_repr_hides_the_password() -> None:
    assert "s3cret" not in repr(parse_airflow_connection("mysql://u:s3cret@h/", name="X"))


def test_who_unpickles_an_endpoint_needs_none_of_its_files(tmp_path: Path) -> None:
    Authority.made(tmp_path, "authority").sign("client")
    files = {"ca": tmp_path / "authority.pem", "cert": tmp_path / "client.crt", "key": tmp_path / "client.key"}
    files["ca"].write_text(f"of schön\n{files['ca'].read_text()}")
    endpoint = Endpoint("h", 3306, "u", "p", tuple((name, str(path)) for name, path in files.items()))
    handed = pickle.dumps(endpoint)
    for path in files.values():
        path.unlink()
    unpickled = pickle.loads(handed)
    assert unpickled.encryption.context().get_ca_certs()
    assert pickle.loads(pickle.dumps(unpickled)) == unpickled
    assert "PRIVATE KEY" not in repr(unpickled) + repr(unpickled.encryption)


def test_an_undefined_connection_says_what_to_export(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AIRFLOW_CONN_NOWHERE", raising=False)
    with pytest.raises(ConfigurationError, match="export AIRFLOW_CONN_NOWHERE"):
        from_environment("nowhere")


def test_a_handed_over_file_is_ours_alone_and_comes_before_the_variable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tls = (("ca", "/ca.pem"), ("check_hostname", "false"))
    written = Endpoint("h", 3307, "u", "p/w:'\"{", tls, allow_cleartext=True)
    path = tmp_path / "connection.json"
    write_file(written, str(path))
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    monkeypatch.setenv("AIRFLOW_CONN_SHOP", "mysql://other:other@other/")
    monkeypatch.setenv(CONNECTION_FILE, str(path))
    assert from_environment("shop") == written


def test_the_yaml_allows_a_password_in_clear(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_SHOP", "mysql://u:p@h/")
    source = SourceConfig(name="shop", connection="shop", server_id=4001)
    for allowed in (False, True):
        origin = log.origin(source.model_copy(update={"allow_cleartext": allowed}))
        assert isinstance(origin, Endpoint)
        assert origin.sends_password is allowed
        assert pickle.loads(pickle.dumps(origin)) == origin


def test_a_missing_file_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(CONNECTION_FILE, str(tmp_path / "gone"))
    with pytest.raises(ConfigurationError, match="gone"):
        from_environment("shop")
