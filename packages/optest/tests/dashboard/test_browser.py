"""The dashboard in a real browser, loaded from a disk and from a server."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from optest.dashboard.site import write_site

HOSTILE = "</script><img src=x onerror=\"document.title='owned'\">"


class Page:
    """A dashboard in the browser."""

    def __init__(self, browser: Any, url: str) -> None:
        from selenium.webdriver.support.ui import WebDriverWait

        self._browser = browser
        self._wait = WebDriverWait(browser, 60)
        browser.get(url)
        self.until(lambda: self.script("return document.body.dataset.ready"))

    def until(self, condition: Callable[[], Any]) -> None:
        self._wait.until(lambda _: condition())

    def script(self, text: str, *arguments: Any) -> Any:
        return self._browser.execute_script(text, *arguments)

    def find(self, selector: str) -> Any:
        return self._browser.find_element("css selector", selector)

    def texts(self, selector: str) -> list[str]:
        return [one.text for one in self._browser.find_elements("css selector", selector)]

    def text(self, selector: str = "body") -> str:
        return self.find(selector).text

    def keys(self, *keys: str) -> None:
        self._browser.switch_to.active_element.send_keys(*keys)

    def choose(self, selector: str, text: str) -> None:
        from selenium.webdriver.support.ui import Select

        Select(self.find(selector)).select_by_visible_text(text)

    def complaints(self) -> list[str]:
        return [one["message"] for one in self._browser.get_log("browser")]

    def addresses(self) -> set[str]:
        """Return all URLs that were requested since the log was last read."""
        messages = (json.loads(one["message"])["message"] for one in self._browser.get_log("performance"))
        requests = (one for one in messages if one["method"] == "Network.requestWillBeSent")
        return {one["params"]["request"]["url"] for one in requests}


@pytest.fixture(params=["disk", "server"])
def address(request: pytest.FixtureRequest, hostile: Any, tmp_path: Path, serve: Callable[..., str]) -> str:
    if request.param == "server":
        return serve(hostile.ledger) + "/"
    write_site(hostile.ledger, tmp_path / "site")
    return (tmp_path / "site" / "index.html").as_uri()


@pytest.mark.kept("server")
def test_the_dashboard(browser: Any, address: str) -> None:
    """One visit to the map, keys, filters, a failing sample, two runs and each view; no attack succeeds."""
    from selenium.webdriver.common.keys import Keys

    browser.get_log("performance")
    page = Page(browser, address)
    assert page.text("#summary") == "11 cases of 4 operators: 9 passed, 1 mismatch, 1 unsupported"
    assert page.texts("#map tbody tr[data-operator] th") == [HOSTILE, "add", "eig", "matmul"]
    assert page.texts("#map tbody tr[data-operator='add'] td") == ["4", "4"]
    first = page.find("#map td[tabindex='0']")
    assert first.get_attribute("aria-label") == f"{HOSTILE}, float64: no result"

    # By keyboard alone: find an operator, walk to a cell, open it, close it.
    page.keys("/")
    page.keys("add")
    page.until(lambda: page.text("#shown") == "1 of 4 operators")
    page.script("document.querySelector('#map td').focus()")
    page.keys(Keys.ARROW_RIGHT)
    assert "add, float32: 4 passed" in browser.switch_to.active_element.get_attribute("aria-label")
    page.keys(Keys.ENTER)
    page.until(lambda: "4 cases" in page.text("#detail"))
    page.until(lambda: "Coverage: full" in page.text("#detail"))
    page.keys(Keys.ESCAPE)
    page.until(lambda: not page.find("#detail").get_attribute("open"))
    page.find("#find").clear()
    page.keys(" ", Keys.BACKSPACE)

    page.choose("#show", "with failures")
    assert page.texts("#map tbody tr[data-operator] th") == [HOSTILE]
    page.find("#map tbody tr[data-operator] button").click()
    page.until(lambda: page.texts("#detail dd pre") == [HOSTILE] * 4)
    assert "3 ULP; eager's own 1.5 ULP" in page.text("#detail")
    assert f"{HOSTILE} [2]" in page.text("#detail")
    page.keys(Keys.ESCAPE)

    page.choose("#show", "all operators")
    page.choose("#columns", "phases")
    assert page.texts("#map thead th") == ["operator", "forward", "backward", "noncontiguous", "errors"]
    page.choose("#columns", "dtypes")
    page.choose("#run-b", page.texts("#run-b option")[2])
    page.until(lambda: page.texts("#map td.differs") == ["1\n0/1"])
    assert page.text("#warning") == "Recorded with different versions: optest 0.2.0 and 0.1.0"
    page.find("#differences").click()
    assert page.texts("#map tbody tr[data-operator] th") == ["matmul"]
    page.find("#map td.differs").click()
    page.until(lambda: "(beside: mismatch)" in page.text("#detail"))
    page.keys(Keys.ESCAPE)

    for view, expected in {
        "failures": "1 of 1 failures",
        "distributions": "Largest error of a case, in ULP",
        "trend": "81.8 %",
        "stages": "Stage 1 (Minimal)",
    }.items():
        page.find(f"#tab-{view}").click()
        page.until(lambda view=view, expected=expected: expected in page.text(f"#view-{view}"))

    assert browser.title == "optest"
    assert page.complaints() == []
    base = address.rpartition("/")[0]
    assert {one for one in page.addresses() if not one.startswith((base, "data:"))} == set()


def test_labels_fit_into_their_chart(browser: Any, hostile: Any, tmp_path: Path) -> None:
    write_site(hostile.ledger, tmp_path / "site")
    page = Page(browser, (tmp_path / "site" / "index.html").as_uri())
    page.script("""
        const { histogram, trend } = optest.charts;
        const one = { name: "a", kind: "a", bins: Array.from({ length: 22 }, (_, power) => [power, 1]) };
        const run = { run: "r", backend: "b", started: "2026-01-01", passed: 1, failed: 0, other: 0 };
        document.querySelector("main").replaceChildren(
            histogram("ULP", [one], "ulp"), histogram("time", [one], "time"), trend(Array(45).fill(run)));
    """)
    too_long = page.script("""
        const end = (text) => { const box = text.getBBox(); return box.x + box.width; };
        const texts = [...document.querySelectorAll("main svg text")];
        const outside = (text) => end(text) > text.ownerSVGElement.viewBox.baseVal.width;
        return [texts.length, texts.filter(outside).map((text) => text.textContent)];
    """)
    assert too_long == [6 + 6 + 2 * 12, []]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_both_schemes_are_legible(browser: Any, hostile: Any, tmp_path: Path, scheme: str) -> None:
    """Every kind of cell and of text has the contrast that WCAG's level AA requires."""
    write_site(hostile.ledger, tmp_path / "site")
    features = [{"name": "prefers-color-scheme", "value": scheme}]
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
    page = Page(browser, (tmp_path / "site" / "index.html").as_uri())
    for change in range(2):
        colours = page.script(
            """const shown = 'body, .legend .cell, .legend .quiet, th.group';
               return [...document.querySelectorAll(shown)].map((one) => {
                 const own = getComputedStyle(one);
                 const back = one.matches('.quiet') ? getComputedStyle(document.body) : own;
                 return [own.color, back.backgroundColor];
               })"""
        )
        assert len(colours) >= 7
        assert [pair for pair in colours if contrast(*pair) < 4.5] == []
        dark = luminance(colours[0][1]) < 0.5
        assert dark == ((scheme == "dark") != bool(change))
        page.find("#theme").click()
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})


def test_a_page_without_its_data_says_so(browser: Any, hostile: Any, tmp_path: Path) -> None:
    from selenium.webdriver.support.ui import WebDriverWait

    write_site(hostile.ledger, tmp_path / "site")
    (tmp_path / "site" / "data" / "index.js").unlink()
    browser.get((tmp_path / "site" / "index.html").as_uri())
    told = WebDriverWait(browser, 30).until(lambda _: browser.find_element("id", "problem").text)
    assert told.startswith("The data index could not be loaded. Make the page again")


def luminance(colour: str) -> float:
    """WCAG's relative luminance of ``rgb(r, g, b)``."""
    parts = [float(one) / 255 for one in colour.partition("(")[2].rstrip(")").split(",")[:3]]
    linear = [one / 12.92 if one <= 0.03928 else ((one + 0.055) / 1.055) ** 2.4 for one in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, other: str) -> float:
    light, dark = sorted((luminance(one), luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)
