"""The page of vpatch status: whole in itself, escaped, and as a person sees it in Chromium."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from vpatch.smoke.stored import StoredCheck, StoredReport
from vpatch.status.cell import MEANING, Row
from vpatch.status.collect import Status
from vpatch.status.defects import Defect
from vpatch.status.markdown import escaped, to_markdown
from vpatch.status.matrix import Facts, make_row
from vpatch.status.page import to_html
from vpatch.status.topics import TOPICS

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

EVIL = "</section><script>document.title='owned'</script><img src=x onerror=alert(1)>\x1b[31m\"'&"
NAMES = tuple(topic.name for topic in TOPICS)
SIZES = {"phone": (390, 844), "desk": (1400, 900)}


def report(revision: int, verdict: str) -> StoredReport:
    checks = (StoredCheck("ids/llama-nested/v1/eager", verdict, EVIL, False),)
    return StoredReport(
        "r.json", "v0.33.0", revision, NAMES, "", f"0.33.0+kimi.{revision}", "vllm.whl", "ab" * 32,
        "2.14.0", "cuda", "NVIDIA H200", "core", "2026-11-30", checks,
    )  # fmt: skip


def rows() -> list[Row]:
    patches = dict.fromkeys(NAMES, ("a patch", EVIL))
    facts = [
        Facts("v0.34.0", revision=3, patches=patches, reports=(report(3, "pass"),)),
        Facts("v0.33.0", revision=3, patches=patches, reports=(report(2, "pass"),)),
        Facts("v0.32.0", revision=3, patches=patches, reports=(report(3, "fail"),)),
        Facts("v0.26.0", revision=1, trouble=EVIL),
    ]
    return [make_row(one, NAMES) for one in facts]


@pytest.fixture(scope="module")
def status() -> Status:
    return Status(
        topics=NAMES,
        pinned=tuple(rows()),
        unpinned=(make_row(Facts("v0.20.0", why=EVIL), NAMES),),
        unseen=("v0.19.0",),
        reports=(report(3, "fail"),),
        left=(Defect("15", EVIL, EVIL, ("v0.33.0",), ""),),
        notes=(EVIL,),
    )


class Reader(HTMLParser):
    """What a page holds, and whether its elements are closed in order."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: list[tuple[str, dict[str, str | None]]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append((tag, dict(attrs)))
        if tag not in {"meta", "br"}:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def read(page: str) -> Reader:
    reader = Reader()
    reader.feed(page)
    assert not reader.open
    return reader


def test_nothing_is_asked_for_and_nothing_runs(status: Status) -> None:
    reader = read(to_html(status, EVIL))
    assert {tag for tag, _ in reader.seen} <= {
        "html", "head", "meta", "title", "style", "body", "main", "h1", "h2", "h3", "h4", "p", "b",
        "div", "table", "thead", "tbody", "tr", "th", "td", "small", "a", "span", "ul", "li",
        "section", "details", "summary",
    }  # fmt: skip
    for _, attributes in reader.seen:
        assert not any(name.startswith("on") or name in {"src", "style"} for name in attributes)
        assert (attributes.get("href") or "#").startswith("#")
    style = to_html(status, "").partition("<style>")[2].partition("</style>")[0]
    assert not re.search(r"url\(|@import|//|expression", style)


def test_everything_is_escaped(status: Status) -> None:
    page = to_html(status, EVIL)
    assert "<script" not in page
    assert "<img" not in page
    assert "\x1b" not in page
    assert "&lt;script&gt;" in page


def test_every_cell_opens_its_evidence(status: Status) -> None:
    reader = read(to_html(status, ""))
    panels = {a["id"] for tag, a in reader.seen if tag == "section"}
    links = [a["href"] for tag, a in reader.seen if tag == "a" and "cell" in (a["class"] or "")]
    ids = [a["id"] for _, a in reader.seen if a.get("id")]
    assert {str(link).removeprefix("#") for link in links} == panels
    assert len(links) == len(NAMES) * 5
    assert len(ids) == len(set(ids))


def test_each_word_is_there_as_text(status: Status) -> None:
    page = to_html(status, "")
    for word, meaning in MEANING.items():
        assert f"> {meaning}" in page or meaning in page.replace("&#x27;", "'"), word


def test_markdown_is_escaped(status: Status) -> None:
    page = to_markdown(status)
    assert "<script" not in page
    assert "\x1b" not in page
    assert escaped("a|b <c>`*") == "a\\|b &lt;c&gt;\\`\\*"
    assert "\n" not in escaped("a\n# b")


# -- in a browser ---------------------------------------------------------------------------------

slow = pytest.mark.slow


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    from playwright.sync_api import sync_playwright  # noqa: PLC0415

    found = shutil.which("chromium") or shutil.which("google-chrome")
    assert found, "these tests need Chromium (Debian: apt install chromium); ci/test.sh installs it"
    with sync_playwright() as driver:
        opened = driver.chromium.launch(executable_path=found, args=["--no-sandbox"])
        yield opened
        opened.close()


@pytest.fixture(params=[(size, scheme) for size in SIZES for scheme in ("light", "dark")],
                ids="-".join)  # fmt: skip
def page(
    request: pytest.FixtureRequest, browser: Browser, status: Status, tmp_path: Path
) -> Iterator[Page]:
    """The page without scripts; a request other than for itself fails the test."""
    size, scheme = request.param
    width, height = SIZES[size]
    file = tmp_path / "status.html"
    file.write_text(to_html(status, "now"), encoding="utf-8")
    context = browser.new_context(
        viewport={"width": width, "height": height}, color_scheme=scheme, java_script_enabled=False
    )
    opened = context.new_page()
    asked: list[str] = []
    opened.on("request", lambda one: asked.append(one.url))
    opened.goto(file.as_uri())
    yield opened
    assert set(asked) == {file.as_uri()}
    context.close()


def numbers(page: Page, script: str) -> float:
    """Evaluated in the page by the driver: it needs no script of the page."""
    return float(page.evaluate(script))


@slow
def test_the_page_does_not_scroll_sideways_but_its_tables_do(page: Page) -> None:
    assert numbers(page, "document.documentElement.scrollWidth - innerWidth") <= 0
    wide = numbers(page, "document.querySelector('.box').scrollWidth")
    box = numbers(page, "document.querySelector('.box').clientWidth")
    assert (wide > box) is (numbers(page, "innerWidth") < 500)
    assert page.title() == "vpatch status"


@slow
def test_a_cell_opens_its_evidence_and_closes_it(page: Page) -> None:
    assert page.locator(".panel:visible").count() == 0
    page.locator("a.cell.proven").first.click()
    panel = page.locator(".panel:visible")
    assert panel.count() == 1
    assert "the engine, with the series" in panel.inner_text()
    assert "revision 3, tier core, GPU, NVIDIA H200, v1, 2026-11-30: 1 pass" in panel.inner_text()
    box = panel.bounding_box()
    view = page.viewport_size
    assert box
    assert view
    assert box["x"] >= 0
    assert box["x"] + box["width"] <= view["width"] + 1
    assert box["y"] + box["height"] <= view["height"] + 1
    panel.locator("a.close").click()
    assert page.locator(".panel:visible").count() == 0


@slow
def test_every_word_can_be_read(page: Page) -> None:
    """Contrast of text against its ground, WCAG AA: 4.5."""
    script = """() => {
      const parse = c => { const m = c.match(/[\\d.]+/g).map(Number); return m };
      const lum = c => { const [r, g, b] = c.slice(0, 3).map(v => { v /= 255;
        return v <= .03928 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4 });
        return .2126 * r + .7152 * g + .0722 * b };
      const ground = e => { for (; e; e = e.parentElement) {
        const c = parse(getComputedStyle(e).backgroundColor);
        if (c.length < 4 || c[3] > 0) return c } return [255, 255, 255] };
      const worst = {};
      for (const e of document.querySelectorAll('main *, .panel *')) {
        if (![...e.childNodes].some(n => n.nodeType === 3 && n.textContent.trim())) continue;
        const a = lum(parse(getComputedStyle(e).color)), b = lum(ground(e));
        const ratio = (Math.max(a, b) + .05) / (Math.min(a, b) + .05);
        const name = e.tagName + '.' + e.className;
        worst[name] = Math.min(ratio, worst[name] ?? 99) }
      return worst }"""
    worst: dict[str, float] = page.evaluate(script)
    assert len(worst) > 10
    assert {name: ratio for name, ratio in worst.items() if ratio < 4.5} == {}


@slow
def test_colours_follow_the_reader(browser: Browser, status: Status, tmp_path: Path) -> None:
    file = tmp_path / "status.html"
    file.write_text(to_html(status, "now"), encoding="utf-8")
    grounds = []
    for scheme in ("light", "dark"):
        context = browser.new_context(color_scheme="dark" if scheme == "dark" else "light")
        opened = context.new_page()
        opened.goto(file.as_uri())
        grounds.append(opened.evaluate("getComputedStyle(document.body).backgroundColor"))
        assert opened.title() == "vpatch status"  # no text became a script
        context.close()
    assert grounds[0] != grounds[1]


@slow
def test_the_keyboard_reaches_cells(page: Page) -> None:
    for _ in range(12):
        page.keyboard.press("Tab")
        if page.locator("a.cell:focus").count():
            break
    assert page.locator("a.cell:focus").count() == 1
    page.keyboard.press("Enter")
    assert page.locator(".panel:visible").count() == 1
