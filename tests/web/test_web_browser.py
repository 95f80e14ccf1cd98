"""A person in a real browser: from the search to the report, and what is left when the server is killed in between."""

from __future__ import annotations

import re
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from web_server import Served, served

CHROMIUM = next((found for name in ("chromium", "chromium-browser", "google-chrome") if (found := shutil.which(name))), None)
pytestmark = [pytest.mark.slow, pytest.mark.skipif(CHROMIUM is None, reason="needs a browser")]
WIDTHS = (420, 1280)


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    playwright = pytest.importorskip("playwright.sync_api")
    with playwright.sync_playwright() as started:
        found = started.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield found
        found.close()


class Watched:
    """A page that notes errors of its console and requests to other hosts."""

    def __init__(self, browser: Any, server: Served, **how: Any) -> None:
        self.context = browser.new_context(accept_downloads=True, **how)
        self.page = self.context.new_page()
        self.page.set_default_timeout(60_000)
        self.errors: list[str] = []
        self.elsewhere: list[str] = []
        self.page.on("console", lambda said: self.errors.append(said.text) if said.type == "error" else None)
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))
        allowed = (server.url, "data:", "blob:", "about:")
        self.page.on("request", lambda one: None if one.url.startswith(allowed) else self.elsewhere.append(one.url))
        self.page.goto(server.entrance)

    def clean(self) -> None:
        """Raises where something was wrong."""
        assert self.errors == []
        assert self.elsewhere == []


def until(page: Any, said: str, seconds: float = 90) -> None:
    """Waits for an expression to hold; asked from outside, because the pages' policy lets nothing be evaluated inside them."""
    end = time.monotonic() + seconds
    while not page.evaluate(said):
        assert time.monotonic() < end, said
        page.wait_for_timeout(100)


def no_serious_fault(page: Any) -> None:
    """Raises where axe finds a serious or critical fault in the page (not in a report's frame, which has tests of its own)."""
    axe = pytest.importorskip("axe_playwright_python.sync_playwright")
    found = axe.Axe().run(page, context={"exclude": [["iframe"]]}).response["violations"]
    assert [(v["id"], [n["html"][:120] for n in v["nodes"][:2]]) for v in found if v["impact"] in ("serious", "critical")] == []


def write_trace(path: Path) -> Path:
    """Requests with the columns of Splitwise's public traces: seconds, and tokens of prompt and answer."""
    rows = [f"{0.9 * i:.3f},{200 + 7 * i % 900},{20 + 3 * i % 300}" for i in range(120)]
    path.write_text("arrived_at,num_prefill_tokens,num_decode_tokens\n" + "\n".join(rows) + "\n")
    return path


def test_from_a_search_to_a_report_and_its_download(browser: Any, tmp_path: Path) -> None:
    with served(tmp_path / "store") as server:
        seen = Watched(browser, server, viewport={"width": 1280, "height": 900})
        page = seen.page
        page.fill("input[name=q]", "LoRA")
        until(page, "document.querySelectorAll('.questions li:not([hidden])').length < 10")
        page.click(".questions li:not([hidden]) a[href$='serving/adapters']")
        page.set_input_files("input[name=work]", str(write_trace(tmp_path / "trace.csv")))
        page.select_option("select[name=scale]", "tiny")
        for name in ("round-robin", "first-fit"):
            page.check(f"input[name=technique][value={name}]")
        page.click("button[formaction$='/run']")
        page.wait_for_url(re.compile(r"/studies/\d+"))
        page.wait_for_selector("#state:text('ended')", timeout=180_000)
        frame = page.frame_locator("iframe.report")
        frame.locator("h1").wait_for()
        with page.expect_download() as download:
            page.click("a[href$='/as/csv']")
        text = Path(download.value.path()).read_text()
        assert text.startswith("id,arena,technique")
        assert "round-robin" in text
        no_serious_fault(page)
        seen.clean()


def test_a_killed_server_loses_nothing(browser: Any, tmp_path: Path) -> None:
    with served(tmp_path / "store") as server:
        page = Watched(browser, server).page
        page.goto(f"{server.url}/arenas/storage/eviction")
        page.select_option("select[name=scale]", "small")
        page.click("button[formaction$='/run']")
        page.wait_for_url(re.compile(r"/studies/\d+"))
        until(page, "Number(document.getElementById('done').textContent) > 2")
        server.kill()
    with served(tmp_path / "store") as again:
        seen = Watched(browser, again)
        page = seen.page
        page.goto(f"{again.url}/studies/1")
        before = int(page.inner_text("#done"))
        assert before > 2
        assert page.inner_text("#state") == "running"  # The study's own process was not the server's.
        until(page, f"Number(document.getElementById('done').textContent) > {before}")
        page.click("button:text('Stop')")
        page.wait_for_selector("button:text('Go on')")
        kept = int(page.inner_text("#done"))
        assert kept > before
        page.click("button:text('Go on')")
        page.wait_for_url(re.compile(r"/studies/1"))
        until(page, f"Number(document.getElementById('done').textContent) > {kept}")
        page.click("button:text('Stop')")
        page.wait_for_selector("button:text('Go on')")
        seen.clean()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", WIDTHS)
def test_every_page_reads_well(browser: Any, tmp_path: Path, width: int, scheme: str) -> None:
    with served(tmp_path / "store") as server:
        seen = Watched(browser, server, viewport={"width": width, "height": 900}, color_scheme=scheme)
        for path in ("/", "/papers", "/arenas/storage/eviction", "/studies", "/machine?a=dgx-h100&b=frontier", "/advise"):
            seen.page.goto(server.url + path)
            assert seen.page.evaluate("document.documentElement.scrollWidth <= window.innerWidth + 1"), (path, width)
            no_serious_fault(seen.page)
        seen.clean()


def test_pages_work_without_javascript_and_with_the_keyboard_alone(browser: Any, tmp_path: Path) -> None:
    with served(tmp_path / "store") as server:
        seen = Watched(browser, server, java_script_enabled=False)
        page = seen.page
        page.focus("input[name=q]")
        page.keyboard.type("cache evict")
        page.keyboard.press("Enter")
        page.wait_for_url(re.compile(r"q=cache\+evict"))
        assert page.locator(".questions li:visible").count() < 8
        page.goto(f"{server.url}/arenas/storage/eviction")
        page.focus("button:has-text('How long')")
        page.keyboard.press("Enter")
        page.wait_for_selector("form.planned")
        assert "unit" in page.inner_text("form.planned p")
        page.goto(f"{server.url}/machine")
        page.fill("textarea[name=text]", 'name = "x"\nnodes = -1\n')
        page.click("button:text('Check')")
        assert page.locator(".refused").count() >= 1
        seen.clean()


def test_advice_is_asked_for_and_shown(browser: Any, tmp_path: Path) -> None:
    with served(tmp_path / "store") as server:
        seen = Watched(browser, server)
        page = seen.page
        page.goto(f"{server.url}/advise")
        page.select_option("select[name=cluster]", "laptop")
        page.check("input[name=runs][value=trust]")
        page.fill("input[name=seconds]", "20")
        page.click("button:text('Advise me')")
        page.wait_for_selector("iframe.report", timeout=120_000)
        page.frame_locator("iframe.report").locator("h1").wait_for()
        seen.clean()
