"""A headless Chromium for tests of pages, and a record of what a page does wrong in it.

A module of tests enables it with `pytest_plugins = ["tests.browsers"]`; its tests are marked
`browser`. They are skipped if Chromium or Playwright is missing.
"""

import shutil

import pytest

_NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
_ARGUMENTS = [
    *("--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
]


class Watched:
    """A page in the browser, with a record of errors, requests and dialogs."""

    def __init__(self, page):
        self.page = page
        self.errors = []
        """Console errors and exceptions, including violations of the content policy."""
        self.requests = []
        """Requested addresses."""
        self.dialogs = []
        """Texts of alert, confirm and prompt dialogs."""
        page.on("console", self._on_console)
        page.on("pageerror", lambda error: self.errors.append(str(error)))
        page.on("request", lambda request: self.requests.append(request.url))
        page.on("dialog", self._on_dialog)

    def strangers(self, *prefixes):
        """Return requested addresses that are not in the page and begin with none of these."""
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
