"""A browser, and Airflow's API server in this process with the page in it."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from servers import free_port

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

CHROMIUM = "/usr/bin/chromium"


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """Debian's; it is asked for nothing but what tests ask for."""
    from playwright.sync_api import expect, sync_playwright

    expect.set_options(timeout=20_000)  # a busy machine answers late
    assert Path(CHROMIUM).exists(), "chromium isn't installed; run docker/local/setup.sh tests"
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield chromium
        chromium.close()


@dataclass(frozen=True)
class Served:
    """Airflow's app on a port, in a thread."""

    url: str
    app: Any

    def open(self, browser: Browser, name: str, role: str, *, width: int = 1280, dark: bool = False) -> Page:
        """A page of a browser of its own, logged in."""
        from airflow_page import token

        scheme: Any = "dark" if dark else "light"
        context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)
        context.add_cookies([{"name": "_token", "value": token(name, role), "url": self.url}])
        page = context.new_page()
        page.set_default_timeout(20_000)
        return page


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    import uvicorn

    from airflow_page import airflow_server

    with airflow_server() as app:
        port = free_port()
        server = uvicorn.Server(uvicorn.Config(app, host="127.0.0.1", port=port, log_level="warning"))
        thread = threading.Thread(target=server.run, daemon=True)
        thread.start()
        deadline = time.monotonic() + 60
        while not server.started:
            assert time.monotonic() < deadline, "the API server didn't start in 60 s"
            time.sleep(0.05)
        yield Served(f"http://127.0.0.1:{port}", app)
        server.should_exit = True
        thread.join(30)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Of the sources' YAML files."""
    made = tmp_path_factory.mktemp("sources") / "pipelines"
    made.mkdir()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AIRFLOW__BINLAKE__PIPELINES", str(made))
        yield made
