"""The page in Airflow's UI, as a browser shows it: what `make platforms` asks of each environment.

    platform_page.py URL PICTURE

Run by the Python that has the browser's driver, on an API server that lets everybody in. PICTURE: where the picture of
the source goes. Exit code: 0 if the page shows what the demo left.
"""

from __future__ import annotations

import sys
from pathlib import Path

CHROMIUM = "/usr/bin/chromium"


def main(url: str, picture: str) -> int:
    """Go from Airflow's navigation to the shop's tables."""
    from playwright.sync_api import Error, sync_playwright

    if not Path(CHROMIUM).exists():
        print("no browser is here: run docker/local/setup.sh browser", file=sys.stderr)
        return 1
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        page = chromium.new_page(viewport={"width": 1280, "height": 900})
        page.set_default_timeout(90_000)  # a busy machine answers late
        try:
            page.goto(url)
            page.get_by_test_id("nav-sidebar").get_by_role("link", name="Binlake").click()
            shown = page.frame_locator("iframe")
            shown.get_by_role("link", name="shop", exact=True).first.click()
            shown.get_by_role("table", name="Tables of shop").get_by_text("shop.orders").first.wait_for()
        except Error as error:
            print(f"the page doesn't show the shop's tables: {error.message}", file=sys.stderr)
            return 1
        finally:
            page.screenshot(path=picture)
            chromium.close()
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
