"""The page in a browser: it draws without a network, is searchable, and works by keyboard."""

import pytest

from gymcli.reporting.html_comparison import read_comparison
from gymcli.reporting.html_page import html_report
from gymcli.reporting.html_run import read_run
from tests.reporting.html_pages import HOSTILE, attempts, write_run

pytest_plugins = ["tests.browsers"]
pytestmark = [pytest.mark.browser, pytest.mark.slow]

pytest.importorskip("jinja2", reason="needs the extra `report`")
pytest.importorskip("plotly", reason="needs the extra `report`")

PHONE = {"width": 400, "height": 800}
DESK = {"width": 1200, "height": 900}

COLOUR = "var(--c0)"
"""A name that looks like a placeholder that the script replaces with a colour."""

UNDRAWN = "[data-chart]:not(:has(.main-svg))"


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    """Return a folder with `one.html` of one run and `two.html` of two hostile runs."""
    folder = tmp_path_factory.mktemp("pages")
    many = [r for number in range(60) for r in attempts(f"task-{number:02}", [number / 60, 0.5])]
    write_page(
        folder / "one.html", write_run(folder / "run", *many, *attempts("lost", [None, None]))
    )
    hostile = [
        record
        for name in (HOSTILE, f"{HOSTILE} 2")
        for record in attempts(
            name, [1.0, 0.0, None], env=HOSTILE, components={HOSTILE: 1.0, COLOUR: 1.0}
        )
    ]
    for record in hostile:
        if hasattr(record, "answer"):
            record.answer = HOSTILE
    runs = [write_run(folder / name, *hostile, model=HOSTILE) for name in ("<b>a", "b")]
    write_page(folder / "two.html", *runs)
    return folder


def write_page(path, *runs):
    comparison = read_comparison(*runs) if len(runs) == 2 else None
    readings = [read_run(run) for run in runs]
    path.write_text(html_report(readings, comparison=comparison, clean=str), encoding="utf-8")


def check(watched):
    """Check that a page raised no error, opened no dialog, and read nothing but files."""
    assert watched.errors == []
    assert watched.dialogs == []
    assert watched.strangers("file:") == []


@pytest.fixture(scope="module")
def shared(browser, pages):
    """Yield a page that tests share, as loading is slow; each test sets the state it needs."""
    from tests.browsers import Watched  # late: pytest would register the module as a plugin

    context = browser.new_context(offline=True, viewport=DESK)
    watched = Watched(context.new_page())
    watched.page.goto((pages / "one.html").as_uri())
    yield watched.page
    check(watched)
    context.close()


@pytest.fixture
def open_page(pages, watched_page):
    """Yield a function that opens a page in its own context, without a network."""
    watched = []

    def opened(name, **options):
        watched.append(watched_page(offline=True, **options))
        watched[-1].page.goto((pages / name).as_uri())
        return watched[-1].page

    yield opened
    for found in watched:
        check(found)


def draw_all(page):
    """Open and draw everything, as printing does, and wait until it is drawn."""
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    page.locator(UNDRAWN).first.wait_for(state="detached")


def texts(page, selector):
    return page.locator(selector).all_inner_texts()


def test_printing_draws_and_opens_everything(shared):
    draw_all(shared)
    assert shared.locator("[data-chart] .plot-container").count() >= 5
    assert shared.locator("details:not([open])").count() == 0
    shared.evaluate("dispatchEvent(new Event('afterprint'))")
    assert shared.locator("details[open]").count() == 0


def test_tasks_are_searched_filtered_and_paged(shared):
    table = "[data-tasks=run-1]"
    status = f"{table} [role=status]"
    shared.locator(f"{table} input").fill("TASK-07")
    assert texts(shared, f"{table} tbody th") == ["task-07"]
    shared.locator(f"{table} input").fill("nothing of the kind")
    assert texts(shared, status) == ["no tasks"]
    shared.locator(f"{table} input").fill("")
    assert texts(shared, status) == ["1 to 50 of 61 tasks"]
    shared.locator(f"{table} button", has_text="Next").click()
    assert texts(shared, status) == ["51 to 61 of 61 tasks"]
    shared.locator(f"{table} select").select_option("with unscored attempts")
    assert texts(shared, f"{table} tbody th") == ["lost"]
    shared.locator(f"{table} select").select_option("all tasks")
    assert shared.locator(f"{table} tbody tr").count() == 50


def test_tasks_are_sorted_by_key_presses(shared):
    sorted_head = shared.locator("[data-tasks=run-1] th[aria-sort]")
    first = "[data-tasks=run-1] tbody tr:first-child th"
    shared.locator("[data-tasks=run-1] th button", has_text="unscored").focus()
    shared.keyboard.press("Enter")
    shared.locator("[data-tasks=run-1] th button", has_text="mean reward").focus()
    shared.keyboard.press("Enter")
    assert sorted_head.get_attribute("aria-sort") == "ascending"
    assert texts(shared, first) == ["lost"]
    shared.keyboard.press("Enter")
    assert sorted_head.get_attribute("aria-sort") == "descending"
    assert texts(shared, first) == ["task-59"]


def test_the_heat_map_shows_every_attempt(shared):
    rows = shared.locator("[data-heat=run-1] tbody tr")
    assert rows.count() == 30
    assert rows.nth(0).locator("td.failed").count() == 2
    assert texts(shared, "[data-heat=run-1] tbody tr:nth-child(2) td") == ["0", "0.5"]
    shades = "[data-heat=run-1] tbody tr:nth-child(2) td"
    classes = [cell.get_attribute("class") for cell in shared.locator(shades).all()]
    assert classes == ["h0", "h5"]


def test_a_phone_scrolls_tables_and_not_the_page(shared):
    shared.set_viewport_size(PHONE)
    draw_all(shared)
    assert shared.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]
    assert shared.evaluate(
        "[...document.querySelectorAll('.scroll')].some((e) => e.scrollWidth > e.clientWidth)"
    )
    shared.set_viewport_size(DESK)
    shared.evaluate("dispatchEvent(new Event('afterprint'))")


def test_the_page_is_used_by_keyboard_in_the_dark(open_page):
    page = open_page("one.html", color_scheme="dark")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to the numbers"
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "main"
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "scroll"
    page.locator("[data-tasks=run-1] button", has_text="Next").focus()
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.textContent") == "Previous"
    draw_all(page)
    colours = """() => [
        getComputedStyle(document.body).backgroundColor,
        getComputedStyle(document.querySelector('[data-chart$=rewards] .bars path')).fill,
    ]"""
    dark = page.evaluate(colours)
    page.emulate_media(color_scheme="light")
    light = page.evaluate(
        f"""(dark) => new Promise((done) => {{
            const look = () => {{
                const now = ({colours})();
                const isOld = now.some((colour, place) => colour === dark[place]);
                if (isOld) requestAnimationFrame(look);
                else done(now);
            }};
            look();
        }})""",
        dark,
    )
    assert light[0] == "rgb(255, 255, 255)"


def test_hostile_runs_script_nothing(open_page):
    page = open_page("two.html", viewport=PHONE)
    draw_all(page)
    for selector in ("main img", "main a", "svg a", "main script"):
        assert page.locator(selector).count() == 0
    assert texts(page, "[data-tasks=run-1] tbody tr:first-child th")[0].startswith("</script>")
    assert page.evaluate("document.scripts.length") == 4
    assert COLOUR in page.locator("svg text").all_text_contents()
    assert page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]
