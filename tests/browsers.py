"""A headless Chromium for tests of pages: one a module, with what a page did wrong in it.

A module of tests takes it by `pytest_plugins = ["tests.browsers"]`, and its tests are marked
`browser`. Where Chromium or Playwright is missing they are skipped.
"""

import shutil

import pytest

_NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
_ARGUMENTS = [
    *("--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
]


class Watched:
    """A page of the browser, and what it did that a page of ours never should."""

    def __init__(self, page):
        self.page = page
        self.errors = []
        """Errors of the console and exceptions, a refusal of the content policy among them."""
        self.requests = []
        """Addresses that were asked for."""
        self.dialogs = []
        """What a script said in a box of its own: alert, confirm, prompt."""
        page.on("console", self._on_console)
        page.on("pageerror", lambda error: self.errors.append(str(error)))
        page.on("request", lambda request: self.requests.append(request.url))
        page.on("dialog", self._on_dialog)

    def strangers(self, *prefixes):
        """Return the addresses asked for that begin with none of these, nor are within the page."""
        within = (*prefixes, "data:", "blob:")
        return [url for url in self.requests if not url.startswith(within)]

    def _on_console(self, message):
        if message.type in ("error", "warning"):
            self.errors.append(message.text)

    def _on_dialog(self, dialog):
        self.dialogs.append(dialog.message)
        dialog.dismiss()


@pytest.fixture(scope="module")
def browser():
    """Yield a browser that the tests of a module share."""
    api = pytest.importorskip("playwright.sync_api", reason="Playwright is not installed")
    path = next(filter(None, map(shutil.which, _NAMES)), None)
    if path is None:
        pytest.skip("Chromium is not installed")
    with api.sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=path, args=_ARGUMENTS)
        yield chromium
        chromium.close()


@pytest.fixture
def watched_page(browser):
    """Yield a function that opens an empty page; its arguments are those of Playwright's context.

    For example `watched_page(color_scheme="dark", viewport={"width": 400, "height": 800})`.
    """
    contexts = []

    def new_page(**options):
        context = browser.new_context(**options)
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(120_000)
        return Watched(page)

    yield new_page
    for context in contexts:
        context.close()
