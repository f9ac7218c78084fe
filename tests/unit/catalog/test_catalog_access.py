"""Who asks with a token sees what its client may read, and whoever has none sees nothing."""

from __future__ import annotations

import base64
import json
import time
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from binlake.catalog.catalog_clients import CatalogClients
from binlake.catalog.catalog_routes import catalog_application
from binlake.catalog.warehouses import PublishedSource, Warehouses
from binlake.errors import UsageError
from binlake.schema.table import TableName
from published_lake import PublishedLake, appending

ORDERS, CUSTOMERS, ITEMS = TableName("shop", "orders"), TableName("shop", "customers"), TableName("stock", "items")
ALL, ORDERS_ONLY, ELSEWHERE = "all-of-it-0123456", "orders+only/0123=", "elsewhere-0123456"
FILE = f"""# id secret scopes

all {ALL} *
orders {ORDERS_ONLY} other shop:shop.order*
elsewhere {ELSEWHERE} other
"""
COLUMNS = [("id", "INT")]
EXCHANGE = "urn:ietf:params:oauth:grant-type:token-exchange"


def written(folder: Path, text: str) -> str:
    path = folder / "clients"
    path.touch(0o600)
    path.write_text(text)
    return str(path)


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> TestClient:
    folder = tmp_path_factory.mktemp("lake")
    lake = PublishedLake(folder, dict.fromkeys((ORDERS, CUSTOMERS, ITEMS), COLUMNS))
    lake.batch(dict.fromkeys((ORDERS, CUSTOMERS, ITEMS), appending({"id": 1})))
    clients = CatalogClients.read(written(folder, FILE), 3600)
    application = catalog_application(Warehouses([PublishedSource.of(lake.config)]), clients)
    return TestClient(application, base_url="http://catalog.example", raise_server_exceptions=False)


def get(client: TestClient, path: str, token: str) -> tuple[int, dict[str, Any]]:
    answer = client.get(f"/v1/{path}", headers={"Authorization": f"Bearer {token}"})
    return answer.status_code, answer.json()


def asked(client: TestClient, header: str = "", **fields: str) -> tuple[int, dict[str, Any]]:
    headers = {"Authorization": header} if header else {}
    answer = client.post("/v1/oauth/tokens", data=fields, headers=headers)
    return answer.status_code, answer.json()


def token_of(client: TestClient, client_id: str, secret: str, **fields: str) -> str:
    code, body = asked(client, grant_type="client_credentials", client_id=client_id, client_secret=secret, **fields)
    assert code == 200, body
    return str(body["access_token"])


def listed(client: TestClient, token: str) -> list[str]:
    """The tables that a token sees."""
    databases = [name for (name,) in get(client, "shop@1/namespaces", token)[1]["namespaces"]]
    found = [get(client, f"shop@1/namespaces/{name}/tables", token)[1]["identifiers"] for name in databases]
    return [f"{each['namespace'][0]}.{each['name']}" for tables in found for each in tables]


@pytest.mark.parametrize(
    "header",
    ["", "Bearer", "Bearer x", f"Bearer {ALL[:-1]}", f"Basic {ALL}", f"Bearer {ALL} x", "Bearer orders.e30.x"],
)
@pytest.mark.parametrize(
    ("method", "path"),
    [("GET", "/v1/config"), ("GET", "/v1/shop/namespaces/shop/tables/orders"), ("POST", "/v1/shop/namespaces")],
)
def test_without_a_token_nothing_is_said(client: TestClient, method: str, path: str, header: str) -> None:
    answer = client.request(method, path, headers={"Authorization": header} if header else {})
    assert answer.status_code == 401
    assert answer.headers["www-authenticate"] == "Bearer"
    error = answer.json()["error"]
    assert (error["code"], error["type"]) == (401, "NotAuthorizedException")
    assert "Authorization: Bearer TOKEN" in error["message"]


def test_a_secret_is_a_token_and_gets_tokens(client: TestClient) -> None:
    for token in (ALL, token_of(client, "all", ALL), token_of(client, "all", ALL, scope="PRINCIPAL_ROLE:ALL")):
        assert listed(client, token) == ["shop.customers", "shop.orders", "stock.items"]
    code, body = asked(client, grant_type="client_credentials", client_id="all", client_secret=ALL, scope="catalog")
    assert code == 200
    assert {name: body[name] for name in ("token_type", "expires_in", "scope", "issued_token_type")} == {
        "token_type": "bearer",
        "expires_in": 3600,
        "scope": "*",
        "issued_token_type": "urn:ietf:params:oauth:token-type:access_token",
    }
    assert ALL not in json.dumps(body)
    assert ALL not in base64.urlsafe_b64decode(body["access_token"].split(".")[1] + "==").decode()


def test_what_a_scope_does_not_allow_is_as_if_it_were_not_there(client: TestClient) -> None:
    token = token_of(client, "orders", ORDERS_ONLY)
    assert listed(client, token) == ["shop.orders"]
    assert get(client, "shop@1/namespaces/shop/tables/orders", token)[0] == 200
    for path, kind, message in (
        ("shop@1/namespaces/shop/tables/customers", "NoSuchTableException", "shop@1 has no table shop.customers"),
        ("shop@1/namespaces/shop/tables/nothing", "NoSuchTableException", "shop@1 has no table shop.nothing"),
        ("shop@1/namespaces/stock", "NoSuchNamespaceException", "shop@1 has no database stock: it has shop"),
    ):
        code, body = get(client, path, token)
        assert (code, body["error"]["type"], body["error"]["message"]) == (404, kind, message)
    code, body = get(client, "config?warehouse=shop", ELSEWHERE)
    assert (code, body["error"]["type"]) == (404, "NoSuchWarehouseException")
    assert body["error"]["message"] == "there is no warehouse shop: the catalog has none that you may read"
    assert get(client, "config", ELSEWHERE)[0] == 404


def test_a_token_may_be_narrower_than_its_client_and_never_wider(client: TestClient) -> None:
    assert listed(client, token_of(client, "all", ALL, scope="catalog shop:stock.*")) == ["stock.items"]
    assert listed(client, token_of(client, "orders", ORDERS_ONLY, scope="*")) == ["shop.orders"]
    narrow = token_of(client, "all", ALL, scope="shop:shop.orders shop:stock.*")
    assert listed(client, narrow) == ["shop.orders", "stock.items"]
    code, later = asked(client, f"Bearer {narrow}", grant_type=EXCHANGE, subject_token=narrow)
    assert (code, later["scope"]) == (200, "shop:shop.orders shop:stock.*")
    assert listed(client, later["access_token"]) == ["shop.orders", "stock.items"]


@pytest.mark.parametrize(
    ("fields", "kind"),
    [
        ({"client_id": "all", "client_secret": ORDERS_ONLY}, "invalid_client"),
        ({"client_id": "nobody", "client_secret": ALL}, "invalid_client"),
        ({"client_id": "all", "client_secret": ALL[:-1]}, "invalid_client"),
        ({"client_id": "all"}, "invalid_client"),
        ({"client_secret": ALL, "scope": "shop:orders"}, "invalid_scope"),
        ({"client_secret": ALL, "grant_type": "password"}, "unsupported_grant_type"),
        ({"grant_type": ""}, "unsupported_grant_type"),
        ({"grant_type": EXCHANGE, "subject_token": ALL}, "invalid_grant"),
    ],
)
def test_a_token_is_refused_in_the_words_of_oauth2(client: TestClient, fields: dict[str, str], kind: str) -> None:
    code, body = asked(client, **{"grant_type": "client_credentials"} | fields)
    assert (code, body["error"]) == (401 if kind == "invalid_client" else 400, kind)
    assert not any(secret in json.dumps(body) for secret in (ALL, ALL[:-1], ORDERS_ONLY))


def test_the_secret_may_be_sent_as_basic_or_without_its_id(client: TestClient) -> None:
    def basic(client_id: str) -> str:
        return "Basic " + base64.b64encode(f"{client_id}:{ORDERS_ONLY}".encode()).decode()

    code, body = asked(client, basic("orders"), grant_type="client_credentials")
    assert (code, listed(client, body["access_token"])) == (200, ["shop.orders"])
    assert asked(client, basic("all"), grant_type="client_credentials")[0] == 401
    assert asked(client, grant_type="client_credentials", client_secret=ORDERS_ONLY)[0] == 200


def test_an_expired_token_is_refused_and_exchanged_by_its_secret_alone(
    client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    token = token_of(client, "orders", ORDERS_ONLY, scope="shop")
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now + 3601)
    assert get(client, "config", token)[0] == 401
    fields = {"grant_type": EXCHANGE, "subject_token": token}
    assert asked(client, f"Bearer {token}", **fields)[1]["error"] == "invalid_grant"
    assert asked(client, client_id="all", client_secret=ALL, **fields)[1]["error"] == "invalid_grant"
    code, body = asked(client, client_id="orders", client_secret=ORDERS_ONLY, **fields)
    assert (code, listed(client, body["access_token"])) == (200, ["shop.orders"])


def test_a_token_that_was_changed_or_whose_client_has_a_new_secret_is_refused(
    client: TestClient, tmp_path: Path
) -> None:
    token = token_of(client, "orders", ORDERS_ONLY)
    client_id, claims, signature = token.split(".")
    wider = base64.urlsafe_b64encode(b'{"expires": 99999999999, "scopes": []}').rstrip(b"=").decode()
    for changed in (f"{client_id}.{wider}.{signature}", f"all.{claims}.{signature}", f"{token}x", token[:-1]):
        assert get(client, "config", changed)[0] == 401
    assert ORDERS_ONLY not in repr(CatalogClients.read(written(tmp_path, FILE), 3600).token(token))
    renewed = CatalogClients.read(written(tmp_path, FILE.replace(ORDERS_ONLY, "another-secret-012")), 3600)
    assert renewed.access(token) is None


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "names no client"),
        ("# a b c\n", "names no client"),
        ("a short *\n", "line 1 of .* is no client"),
        (f"\na {ALL}\n", "line 2 of .* is no client"),
        (f"a.b {ALL} *\n", "line 1 of .* is no client"),
        (f"a {ALL} shop:orders\n", "line 1 of .*: shop:orders is no scope"),
        (f"a {ALL} *\nb {ALL} shop\n", "have the same secret"),
        (f"a {ALL} *\na {ORDERS_ONLY} shop\n", "have the same id"),
    ],
)
def test_a_file_of_clients_that_is_wrong_is_refused_without_its_secrets(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(UsageError, match=said) as refused:
        CatalogClients.read(written(tmp_path, text), 3600)
    words = f"{refused.value} {refused.value.remedy}"
    assert not any(secret in words for secret in (ALL, ORDERS_ONLY, "short"))


def test_a_file_of_clients_that_others_may_read_is_refused(tmp_path: Path) -> None:
    path = Path(written(tmp_path, FILE))
    path.chmod(0o644)
    with pytest.raises(UsageError, match="every account may read"):
        CatalogClients.read(str(path), 3600)
