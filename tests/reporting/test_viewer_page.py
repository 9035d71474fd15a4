"""The page in a browser: what it shows, its keys, and that no text of a model runs as a script."""

import random
import re
from contextlib import contextmanager
from urllib.parse import urlencode

import msgspec
import pytest

from gymcli.mock.process import serving
from tests.reporting.viewer_runs import Shown, failure, lines, rollout, said, write_run

pytest_plugins = ["tests.browsers"]
pytestmark = [pytest.mark.browser, pytest.mark.slow]

PICTURE = (
    "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGA"
    "WjR9awAAAABJRU5ErkJggg=="
)
EVIL = (
    "<script>window.owned = 1</script><img src=x onerror='window.owned = 2'>"
    "<svg onload='window.owned = 3'></svg><a href='javascript:window.owned = 4'>go</a>"
    "</pre></title><iframe srcdoc='<script>parent.owned = 5</script>'></iframe>"
    "<style>body { display: none }</style><meta http-equiv=refresh content='0;url=//evil.example'>"
    "{{constructor.constructor('window.owned = 6')()}} ${window.owned = 7} \u202egnp.exe\u2066"
    " \x1b[2J\x1b]0;owned\x07 \u200f\u05e9\u05dc\u05d5\u05dd\u200e \x00\u2028\ufeff\U000e0041"
)


TWO_FRAMES = "new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))"


@contextmanager
def shown(*paths, **options):
    with serving(Shown(*paths, **options)) as server:
        yield server


def open_at(watched, server, **place):
    """Open a place; on a page of the same server, only the fragment of the address changes."""
    watched.page.goto(f"{server.address}#{urlencode(place)}")
    return watched.page


def ids(page):
    return page.locator("a[data-row]").all_inner_texts()


def focused(page):
    return page.evaluate("document.activeElement.innerText")


@pytest.fixture
def run(tmp_path):
    reasoned = [
        said("user", [{"type": "text", "text": "Look."}, picture(PICTURE)]),
        said(
            "assistant",
            "Let me see.",
            reasoning="I think of nothing.",
            tool_calls=[call("c1", "look", '{"at": "the door", "times": 2}')],
        ),
        said("tool", "It is open.", tool_call_id="c1"),
        said("assistant", "The door is open."),
    ]
    rollouts = [
        rollout("a", 0, 0.5, messages=reasoned, step_rewards=[0.25, None], details={"why": "half"}),
        rollout("a", 1, 1.0),
        *(rollout(f"n{n:03}", 0, float(n % 2), stop_reason="length") for n in range(240)),
    ]
    return write_run(tmp_path / "run", rollouts, failures=[failure("z"), failure("z", 0, "Last")])


def picture(url):
    return {"type": "image_url", "image_url": {"url": url}}


def call(name, function, arguments):
    return {"id": name, "type": "function", "function": {"name": function, "arguments": arguments}}


def test_a_list_is_filtered_sorted_and_paged_and_the_address_keeps_it(run, watched_page):
    watched = watched_page()
    with shown(run) as server:
        page = open_at(watched, server)
        page.wait_for_selector("text=1 to 100 of 243 rollouts")
        page.wait_for_selector(".figure-value >> text=0.501")
        assert ids(page)[:3] == ["a", "a", "n000"]
        page.click("th button:has-text('Task')")
        page.wait_for_selector("th[aria-sort=descending]")
        assert ids(page)[:2] == ["z", "n239"]
        page.fill("#where", "reward == 1")
        page.press("#where", "Enter")
        page.wait_for_selector("text=1 to 100 of 121 rollouts (of 243)")
        page.click("nav.pages a:has-text('next')")
        page.wait_for_selector("text=101 to 121 of 121")
        assert ids(page)[-1] == "a"
        page.reload()
        page.wait_for_selector("text=101 to 121 of 121")
        assert page.input_value("#where") == "reward == 1"
        page.go_back()
        page.wait_for_selector("text=1 to 100 of 121")
        page.select_option("#only_stop_reason", "done")
        page.wait_for_selector("text=1 to 1 of 1 rollouts")
        assert ids(page) == ["a"]
        page.click("button:has-text('Clear')")
        page.wait_for_selector("text=of 243 rollouts")
    assert watched.errors == []
    assert watched.strangers(server.root) == []


def test_escape_leaves_a_field_and_keeps_the_filter(run, watched_page):
    watched = watched_page()
    with shown(run) as server:
        page = open_at(watched, server)
        page.wait_for_selector("text=1 to 100 of 243")
        for field, text, found in (
            ("#where", "reward < 1", 121),
            ("#containing", "What is n", 120),
        ):
            page.fill(field, text)
            page.press(field, "Enter")
            page.wait_for_selector(f"text=of {found} rollouts")
            page.press(field, "Escape")
            assert page.input_value(field) == text
            assert page.evaluate("document.activeElement === document.body")
        assert "containing=What" in page.url
        page.keyboard.press("j")
        assert focused(page) == "n000"


def test_a_wrong_filter_is_told_beside_its_field(run, watched_page):
    watched = watched_page()
    with shown(run) as server:
        page = open_at(watched, server, where="rewrd > 1")
        error = page.wait_for_selector("#where-error:visible")
        assert 'did you mean "reward"' in error.inner_text()
        assert page.get_attribute("#where", "aria-invalid") == "true"
        page.fill("#where", "reward > 0.9")
        page.press("#where", "Enter")
        page.wait_for_selector("text=1 to 100 of 121")
        assert not page.is_visible("#where-error")


def test_keys_alone_lead_through_list_and_rollouts(run, watched_page):
    watched = watched_page()
    with shown(run) as server:
        page = open_at(watched, server, sort="-task_id")
        page.wait_for_selector("a[data-row]")
        for key, wanted in (("j", "z"), ("j", "n239"), ("ArrowDown", "n238"), ("k", "n239")):
            page.keyboard.press(key)
            assert focused(page) == wanted
        page.keyboard.press("Enter")
        page.wait_for_selector("h1:focus:has-text('n239')")
        page.keyboard.press("n")
        page.wait_for_selector("h1:has-text('n238')")
        page.keyboard.press("p")
        page.wait_for_selector("h1:has-text('n239')")
        page.keyboard.press("Escape")
        page.wait_for_selector("a[data-row]")
        page.wait_for_selector("a:focus:has-text('n239')")
        page.keyboard.press("/")
        assert page.evaluate("document.activeElement.id") == "where"
        page.keyboard.type("j?n")  # while a filter is typed, letters are no shortcuts
        assert page.input_value("#where") == "j?n"
        page.keyboard.press("Escape")  # Escape restores the applied filter
        assert page.input_value("#where") == ""
        page.keyboard.press("?")
        assert page.is_visible("dialog#help")
        page.keyboard.press("Escape")
        assert not page.is_visible("dialog#help")
        assert page.is_visible("table.rollouts")
        page.locator("a[data-row]").last.focus()
        page.keyboard.press("j")
        page.wait_for_selector("text=101 to 200 of 243")
        page.wait_for_selector("a:focus:has-text('n140')")


def test_a_key_pressed_while_a_page_opens_is_for_that_page(run, watched_page):
    watched = watched_page()
    with shown(run) as server:
        page = open_at(watched, server, view="rollout", env="arithmetic", task="n239", attempt=0)
        page.wait_for_selector("h1:has-text('n239')")
        held = []
        page.route("**/rollout?*", lambda route: held.append(route))
        with page.expect_request("**/rollout?*"):
            page.keyboard.press("p")
        page.keyboard.press("t")
        page.wait_for_function("document.getElementById('main').hasAttribute('aria-busy')")
        held[0].continue_()
        page.wait_for_selector(".task h1:has-text('n238')")


def test_a_task_keeps_its_width_in_a_narrow_window(run, watched_page):
    watched = watched_page()
    with shown(run) as server:
        page = open_at(watched, server)
        page.set_viewport_size({"width": 800, "height": 600})
        assert page.wait_for_selector("td.task").bounding_box()["width"] >= 140


def test_a_rollout_is_a_conversation_with_its_score(run, watched_page):
    watched = watched_page()
    with shown(run) as server:
        page = open_at(watched, server, view="rollout", env="arithmetic", task="a", attempt=0)
        page.wait_for_selector("h1")
        articles = page.locator("article").all_inner_texts()
        assert len(articles) == 3  # a tool's result is shown within its call
        assert "step reward 0.250" in articles[1]
        called = page.locator("section.call").inner_text().split("\n")
        assert called[0] == "calls look"
        assert {"at", "the door", "times", "2", "result", "It is open."} <= set(called)
        assert page.evaluate("document.querySelector('article img').naturalWidth") == 1
        assert not page.is_visible("text=I think of nothing.")
        page.keyboard.press("o")
        page.wait_for_selector("text=I think of nothing.")
        panel = page.locator(".panel").inner_text()
        assert "0.500" in panel
        assert "half" in panel
        page.keyboard.press("t")
        page.wait_for_selector("section.beside-one >> nth=1")
        assert page.locator("section.beside-one h2").all_inner_texts() == [
            *("attempt 0 ◐ 0.500", "attempt 1 ✓ 1.000")
        ]
        beside = page.locator("section.beside-one").all_inner_texts()
        assert [re.search(r"· (\d+ turns?) ·", text)[1] for text in beside] == ["2 turns", "1 turn"]
        open_at(watched, server, view="rollout", env="arithmetic", task="z", attempt=0)
        page.wait_for_selector("text=the endpoint said Last")
        page.click("summary:has-text('Earlier tries')")
        page.wait_for_selector("text=the endpoint said ServerError")
    assert watched.errors == []


def test_a_run_that_grows_is_followed_without_losing_the_place(run, watched_page):
    watched = watched_page()
    watched.page.clock.install()
    with shown(run) as server:
        page = open_at(watched, server, where="reward == 0.5")
        page.wait_for_selector("text=1 to 1 of 1 rollouts (of 243)")
        page.wait_for_selector(".figure:has-text('scored') >> text=242")
        page.keyboard.press("j")
        with (run / "rollouts.jsonl").open("ab") as file:
            file.write(lines([rollout("new", 0, 0.5), rollout("z", 0, 1.0)]))
        poll_until(page, "text=1 to 2 of 2 rollouts (of 244)")
        poll_until(page, ".figure:has-text('scored') >> text=244")  # after the run stops growing
        assert ids(page) == ["a", "new"]
        assert focused(page) == "a"
        run.rename(run.with_name("elsewhere"))
        poll_until(page, "#notice:has-text('no such run')")
        run.with_name("elsewhere").rename(run)
        poll_until(page, "#notice", state="hidden")
        assert watched.errors == []
    poll_until(page, "text=The server does not answer: start gym view again")
    assert ids(page) == ["a", "new"]


def poll_until(page, wanted, *, state="visible"):
    """Advance the page's clock until an element is visible or hidden."""
    found = page.locator(wanted).first
    for _ in range(1_200):
        if found.is_visible() is (state == "visible"):
            return
        page.clock.run_for(2_000)
        page.wait_for_timeout(100)
    pytest.fail(f"{wanted} is not {state}: {page.inner_text('body')}")


def test_numbers_that_come_late_are_not_those_of_another_run(tmp_path, watched_page):
    one, other = (
        write_run(tmp_path / name, [rollout("a", 0, reward)])
        for name, reward in (("one", 0.25), ("other", 0.75))
    )
    watched, held = watched_page(), []
    watched.page.route("**/api/metrics?run=0", lambda route: held.append(route))
    with shown(one, other) as server:
        page = open_at(watched, server)
        page.wait_for_selector("text=Computing …")
        page.click("#tabs a:has-text('other')")
        page.wait_for_selector(".figure-value >> text=0.750")
        with page.expect_response("**/api/metrics?run=0"):
            held[0].continue_()
        page.evaluate(TWO_FRAMES)
        assert page.locator(".figure-value").first.inner_text() == "0.750"
    assert watched.errors == []


def hostile_run(folder):
    """Write a run with hostile text in every place that an outsider can fill."""
    task = f"{EVIL} ../../etc/passwd#view=list&env="
    talk = [
        said("system", EVIL, name=EVIL),
        said("user", [{"type": "text", "text": EVIL}, *map(picture, BAD_PICTURES)]),
        said(
            "assistant",
            EVIL,
            reasoning=EVIL,
            refusal=EVIL,
            tool_calls=[
                call("c", EVIL, msgspec.json.encode({EVIL: EVIL}).decode()),
                call("c", "__proto__", '{"__proto__": {"x": 1}, "constructor": 2, "a": 1, "a": 2}'),
                call(EVIL, "toString", EVIL),
            ],
        ),
        said("tool", EVIL, tool_call_id="c"),
        said("tool", EVIL, tool_call_id="nobody"),
    ]
    more = {
        "env": EVIL,
        "model": EVIL,
        "task": {EVIL: EVIL, "__proto__": EVIL, "seed": 2**63 - 1},
        "answer": EVIL,
        "details": {EVIL: [EVIL], "reason": EVIL},
        "components": {EVIL: 0.5},
        "metrics": {"__proto__": 1.0},
        "tools": [{"type": "function", "function": {"name": EVIL, "description": EVIL}}],
        "final_state": EVIL,
        "tool_errors": {EVIL: 3},
        "messages": talk,
    }
    failed = failure(task, 1, EVIL, env=EVIL, retries={EVIL: 2}, model=EVIL)
    record = rollout(task, 0, 0.5, **more)
    return write_run(folder, [record], failures=[failed], environments=(EVIL,)), task


ODD = [
    {"role": EVIL, "content": EVIL},
    {"role": "assistant constructor", "content": 7, "reasoning": {"a": EVIL}, "tool_calls": [{}]},
    {"role": "tool", "content": [None, 5, {"text": {}}], "tool_call_id": {}},
]
"""Messages with unknown roles and shapes."""

BAD_PICTURES = [
    "https://evil.example/pixel.png",
    "//evil.example/pixel.png",
    "javascript:window.owned = 8",
    "data:image/svg+xml;base64,PHN2ZyB4bWxucz0iaHR0cDovL3d3dy53My5vcmcvMjAwMC9zdmciLz4=",
    "data:text/html,<script>window.owned = 9</script>",
    "data:image/png;base64,x' onerror='window.owned = 10",
    {"__proto__": "https://evil.example/"},
]


def test_no_text_of_others_scripts_the_page_or_leaves_it(tmp_path, watched_page):
    run, task = hostile_run(tmp_path / EVIL[:8].replace("/", "_"))
    watched = watched_page()
    key = {"env": EVIL, "task": task}
    with shown(run, run) as server:
        page = open_at(watched, server)
        page.wait_for_selector("a[data-row]")
        assert len(ids(page)) == 2
        assert "\\u202egnp.exe" in ids(page)[0]
        page.wait_for_selector(".figure-value")
        for place, wanted in (
            ({"view": "rollout", **key, "attempt": 0}, "article"),
            ({"view": "rollout", **key, "attempt": 1}, "section.failed"),
            ({"view": "task", **key}, "section.beside-one"),
            ({"view": "differences"}, "table.tasks td.kind"),
            ({"view": "pair", **key}, ".pair-row"),
            ({"containing": EVIL, "only_env": EVIL}, "a[data-row]"),
        ):
            page = open_at(watched, server, **place)
            page.wait_for_selector(wanted)
            for fold in page.locator("main summary").all():
                fold.click()
            page.evaluate(TWO_FRAMES)  # a folded part is created after it is opened, with a delay
            assert page.evaluate("window.owned") is None
            assert (
                page.locator("main script, main iframe, main svg, main style, main meta").count()
                == 0
            )
            assert page.locator("main img").count() == 0
            hrefs = page.evaluate(
                "[...document.querySelectorAll('a')].map(a => a.getAttribute('href'))"
            )
            assert all(href.startswith("#") for href in hrefs)
            text = page.inner_text("main")
            assert "\u202e" not in text
            assert "\x1b" not in text
        assert page.evaluate("({}).x") is None
    assert watched.errors == []
    assert watched.dialogs == []
    assert watched.strangers(server.root) == []


def test_names_that_javascript_has_itself_are_names_as_any(tmp_path, watched_page):
    both = [rollout("a", env=env, stop_reason="toString") for env in ("constructor", "b")]
    run = write_run(tmp_path / "run", both, environments=("constructor", "b"))
    watched = watched_page()
    with shown(run) as server:
        page = open_at(watched, server, view="toString", only_status="valueOf")
        page.wait_for_selector("table.rollouts")
        assert page.locator("#only_env option").all_inner_texts()[1:] == [
            "constructor (1)",
            "b (1)",
        ]
        assert page.locator("#only_status option").all_inner_texts()[-1] == "valueOf (0)"
    assert watched.errors == []


def test_messages_of_no_known_shape_are_shown_all_the_same(tmp_path, watched_page):
    run = write_run(tmp_path / "run", [rollout("odd", 0, 0.0, messages=ODD)])
    watched = watched_page()
    with shown(run, run) as server:
        key = {"env": "arithmetic", "task": "odd"}
        page = open_at(watched, server, view="rollout", attempt=0, **key)
        page.wait_for_selector("article")
        roles = page.locator("article .role").all_inner_texts()
        assert roles[0].startswith("<script>window.owned = 1</script>")
        assert roles[1:] == ["assistant constructor", "tool"]
        classes = page.locator("article").evaluate_all("all => all.map(each => each.className)")
        assert classes == ["message other prompt", "message other", "message tool"]
        for view in ("task", "pair"):
            open_at(watched, server, view=view, **key)
            page.wait_for_selector("article, details.same")
        assert page.evaluate("window.owned") is None
    assert watched.errors == []
    assert watched.dialogs == []


def test_what_is_hidden_in_a_text_is_seen_and_numbers_are_not_rounded(tmp_path, watched_page):
    run, task = hostile_run(tmp_path / "run")
    watched = watched_page()
    with shown(run) as server:
        page = open_at(watched, server, view="rollout", env=EVIL, task=task, attempt=0)
        page.wait_for_selector("article .text .control")
        codes = page.locator("article .text .control").all_inner_texts()
        assert {"\\u202e", "\\x1b", "\\x00", "\\u2028", "\\ufeff", "\\U000e0041"} <= set(codes)
        assert page.locator("article:has-text('not fetched: https://evil.example')").count() == 1
        page.click('summary:has-text("task\'s fields")')
        page.wait_for_selector(f"text={2**63 - 1}")
    assert watched.strangers(server.root) == []


def test_a_large_conversation_is_opened_piece_by_piece(tmp_path, watched_page):
    huge = "A sentence that is said again. " * 40_000
    talk = [said("assistant" if n % 2 else "user", f"message {n}") for n in range(1_000)]
    talk[1]["content"] = huge
    talk[2]["content"] = "x" * 300_000
    run = write_run(tmp_path / "run", [rollout("long", messages=talk)])
    watched = watched_page()
    with shown(run) as server:
        page = open_at(watched, server, view="rollout", env="arithmetic", task="long", attempt=0)
        page.wait_for_selector("article")
        assert page.locator("article").count() == 100
        assert page.locator("article").last.inner_text().endswith("message 999")
        assert page.evaluate("document.querySelector('main').innerText.length") < 30_000
        page.click("button:has-text('show 100 more')")
        assert page.locator("article").count() == 200
        page.click("button:has-text('messages in between')")
        assert page.locator("article").count() == 1_000
        assert page.locator("article").nth(500).inner_text().endswith("message 500")
        page.locator("article").nth(1).locator("button:has-text('show all')").click()
        shown_text = page.evaluate("document.querySelectorAll('article .text')[1].innerText")
        assert shown_text.strip() == huge.strip()
    assert watched.errors == []


def test_two_runs_stand_side_by_side_with_what_differs_marked(tmp_path, watched_page):
    def answered(text):
        return {"messages": [said("user", "Add 2 and 3."), said("assistant", text)]}

    a = [
        rollout("sum", 0, 0.0, **answered("The sum is 6, I say.")),
        rollout("same"),
        rollout("one"),
    ]
    b = [rollout("sum", 0, 1.0, **answered("The sum is 5, I say.")), rollout("same")]
    a, b = write_run(tmp_path / "a", a), write_run(tmp_path / "b", b)
    watched = watched_page()
    with shown(a, b) as server:
        page = open_at(watched, server)
        page.click("#tabs a:has-text('Differences')")
        page.wait_for_selector("text=3 of 3 tasks")
        assert ids(page) == ["same", "sum", "one"]
        page.click("th button:has-text('\u2212 A')")
        page.wait_for_selector("th[aria-sort=descending]")
        assert ids(page) == ["sum", "same", "one"]
        page.focus("#kind")
        page.select_option("#kind", "fixed")
        page.wait_for_selector("text=1 of 3 tasks")
        assert page.evaluate("document.activeElement.id") == "kind"
        page.keyboard.press("Escape")
        page.keyboard.press("j")
        page.keyboard.press("Enter")
        page.wait_for_selector(".pair-turns mark")
        assert page.locator(".pair-turns mark").all_inner_texts() == ["6", "5"]
        assert page.locator(".same").all_inner_texts() == [
            "#1 user, the same in both: Add 2 and 3."
        ]
        page.keyboard.press("Escape")
        page.wait_for_selector("text=1 of 3 tasks")
        open_at(watched, server, view="pair", env="arithmetic", task="one")
        page.wait_for_selector("text=This run has no attempt at this task.")
        page.reload()
        page.wait_for_selector("text=This run has no attempt at this task.")
        page.keyboard.press("p")
        page.wait_for_selector("h1:has-text('sum')")
    assert watched.errors == []


PLACES = {
    ".list": {},
    ".rollout": {"view": "rollout", "env": "arithmetic", "task": "a", "attempt": 0},
    ".task": {"view": "task", "env": "arithmetic", "task": "a"},
    ".differences": {"view": "differences"},
    ".pair": {"view": "pair", "env": "arithmetic", "task": "a"},
}
NAMELESS = """[...document.querySelectorAll('a, button, input, select, summary')].filter(each =>
    !each.innerText?.trim() && !each.getAttribute('aria-label') && !each.labels?.length)
    .map(each => each.outerHTML)"""
TOO_WIDE = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
COLOURS = """(() => { const style = getComputedStyle(document.body);
    return [style.color, style.backgroundColor].map(each => +each.match(/\\d+/)[0]) })()"""


def test_all_pages_fit_a_phone_and_whatever_can_be_used_has_a_name(run, watched_page):
    watched = watched_page(color_scheme="light", viewport={"width": 400, "height": 800})
    with shown(run, run) as server:
        for node, place in PLACES.items():
            page = open_at(watched, server, **place)
            page.wait_for_selector(f"main > {node}")
            assert page.evaluate(TOO_WIDE) == 0, place
            assert page.evaluate(NAMELESS) == [], place
            assert page.evaluate("document.querySelectorAll('th:not([scope])').length") == 0
        ink, paper = page.evaluate(COLOURS)
        assert ink < paper
        page.emulate_media(color_scheme="dark")
        ink, paper = page.evaluate(COLOURS)
        assert ink > paper
        page.focus("a.skip")
        page.keyboard.press("Enter")
        assert page.evaluate("document.activeElement.id") == "main"
    assert watched.errors == []


def test_what_is_not_marked_is_in_both_texts(run, watched_page):
    draw = random.Random(7)
    words = ["a", "b", "the", " ", "  ", "\n", ".", "é", "\U0001f600", "x_1", "(", ")"]
    texts = [
        ["".join(draw.choices(words, k=draw.randrange(60))) for _ in range(2)] for _ in range(300)
    ]
    texts += [["", ""], ["same", "same"], ["", "new"], ["x " * 5_000, "y " * 5_000 + "x"]]
    compare = """async pairs => {
        const { changes } = await import('./changes.js');
        return pairs.map(pair => changes(...pair));
    }"""
    watched = watched_page()
    with shown(run) as server:
        page = open_at(watched, server)
        for (a, b), (left, right) in zip(texts, page.evaluate(compare, texts), strict=True):
            assert "".join(piece["text"] for piece in left) == a
            assert "".join(piece["text"] for piece in right) == b
            kept = [
                "".join(piece["text"] for piece in side if not piece["isMarked"])
                for side in (left, right)
            ]
            assert kept[0] == kept[1], (a, b)
            if a == b:
                assert kept[0] == a
    assert watched.errors == []


@pytest.mark.slow
def test_a_hundred_thousand_rollouts_are_shown_a_page_at_a_time(tmp_path, watched_page):
    records = (
        rollout(f"task-{number // 4:05}", number % 4, float(number % 3 == 0))
        for number in range(100_000)
    )
    run = write_run(tmp_path / "run")
    with (run / "rollouts.jsonl").open("wb") as file:
        for record in records:
            file.write(lines([record]))
    watched = watched_page()
    with shown(run) as server:
        page = open_at(watched, server)
        page.wait_for_selector("text=1 to 100 of 100,000 rollouts")
        assert len(ids(page)) == 100
        assert page.evaluate("document.querySelectorAll('*').length") < 5_000
        page.click("nav.pages a:has-text('last')")
        page.wait_for_selector("text=99,901 to 100,000 of 100,000")
        assert ids(page)[-1] == "task-24999"
        page.select_option("#only_reward", "mixed")
        page.wait_for_selector("text=1 to 100 of 100,000 rollouts")
        page.fill("#containing", "What is task-12345?")
        page.press("#containing", "Enter")
        page.wait_for_selector("text=1 to 4 of 4 rollouts (of 100,000)")
        page.keyboard.press("Escape")
        page.keyboard.press("j")
        page.keyboard.press("Enter")
        page.wait_for_selector("h1:has-text('task-12345')")
        page.wait_for_selector("text=1 of 4")
    assert watched.errors == []
