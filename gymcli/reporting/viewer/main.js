// Shows the pages, handles keys, and follows a run that is growing.

import { go, link, listing, read } from "./address.js";
import { differencesView } from "./differences.js";
import { drawHelp } from "./help.js";
import { listView } from "./list.js";
import { pairView } from "./pair.js";
import { rolloutView } from "./rollout.js";
import { ask, Refused } from "./server.js";
import { taskView } from "./task.js";
import { append, count, element, harmless, name } from "./text.js";

const VIEWS = {
  list: listView,
  rollout: rolloutView,
  task: taskView,
  differences: differencesView,
  pair: pairView,
};
const POLL_EVERY = 2000;
const SILENT = "The server does not answer: start gym view again and open the address that it prints.";

const main = document.getElementById("main");
const notice = document.getElementById("notice");
const help = document.getElementById("help");

/** The state that the pages share. */
const app = {
  place: {},
  signal: undefined,
  runs: [],
  /** By run: a number that grows when records are added. */
  versions: [],
  /** The rollout or task that was open last, to find it again in its list. */
  left: null,
  say(text) {
    document.getElementById("status").textContent = harmless(text);
  },
  lost,
  again: () => show(true),
};

let shown = { name: null, view: null };
let opening = new AbortController();
/** Ends when the page of the address is shown. */
let showing = Promise.resolve();
let noticed = "";
/** Why the rest of the runs cannot be read. */
let problem = "";

/** Shows a notice on top of the page, once: screen readers read it each time that it is set. */
function notify(text) {
  if (noticed === text) return;
  noticed = text;
  notice.replaceChildren();
  append(notice, [text]);
  notice.hidden = !text;
}

/** Reports a request that failed; an aborted one is ignored. */
function lost(error) {
  if (error?.name === "AbortError") return;
  if (error instanceof Refused) notify(error.message);
  else if (error instanceof TypeError && !navigator.onLine) notify("This machine is offline.");
  else if (error instanceof TypeError && /fetch|network|load/i.test(error.message)) {
    notify(SILENT);
  } else {
    notify(`This page has a bug: ${error?.message ?? error}`);
    throw error;
  }
}

async function show(isAgain = false) {
  opening.abort();
  opening = new AbortController();
  const { signal } = opening;
  const place = read();
  const before = app.place;
  app.place = place;
  app.signal = signal;
  const wanted = Object.hasOwn(VIEWS, place.view) ? place.view : "list";
  if (before.env && !isAgain) app.left = before;
  drawTabs(wanted, place);
  try {
    const old = shown.view;
    if (old?.update && shown.name === wanted) {
      await old.update(place, signal);
    } else {
      main.setAttribute("aria-busy", "true");
      const scroll = scrollY;
      const view = await VIEWS[wanted](app);
      if (signal.aborted) return;
      const opened = isAgain ? openParts(main) : [];
      const again = shown.name === wanted ? held(isAgain) : () => null;
      main.replaceChildren(view.node);
      shown = { name: wanted, view };
      again()?.focus({ preventScroll: true });
      if (isAgain) reopen(main, opened, scroll);
      else arrive(view);
    }
    document.title = `${harmless(shown.view.title)} – gym view`;
    notify(problem);
  } catch (error) {
    if (!signal.aborted) fail(error);
  } finally {
    if (!signal.aborted) main.removeAttribute("aria-busy");
  }
}

function fail(error) {
  if (error instanceof Refused) {
    shown = { name: null, view: null };
    main.replaceChildren(
      element("p", {}, element("a", { href: link(listing(app.place)) }, "← list")),
    );
  }
  lost(error);
}

function arrive(view) {
  const active = document.activeElement;
  if (view.focus?.() || (main.contains(active) && active !== main)) return;
  scrollTo(0, 0);
  main.querySelector("h1")?.focus({ preventScroll: true });
}

/** Returns a function that finds the focused field (or link) again after the page was redrawn. */
function held(isLinkToo) {
  const active = document.activeElement;
  if (!main.contains(active)) return () => null;
  const [id, href] = [active.id, active.getAttribute("href")];
  const links = () => [...main.querySelectorAll("a")];
  if (id) return () => document.getElementById(id);
  return () =>
    href && isLinkToo ? links().find((each) => each.getAttribute("href") === href) : null;
}

/** Returns which folded parts are open, to restore them after the page was redrawn. */
function openParts(node) {
  return [...node.querySelectorAll("details")].map((each) => each.open);
}

function reopen(node, opened, scroll) {
  node.querySelectorAll("details").forEach((each, at) => {
    if (opened[at]) each.open = true;
  });
  scrollTo(0, scroll);
}

function drawTabs(wanted, place) {
  const tabs = document.getElementById("tabs");
  const run = Number(place.run ?? 0);
  const isTwo = app.runs.length > 1;
  const made = app.runs.map((each, at) => {
    const isHere = wanted !== "differences" && wanted !== "pair" && run === at;
    const kept = isHere ? listing(place) : { where: place.where, sort: place.sort };
    const href = link({ ...kept, run: at || "" });
    const label = isTwo ? element("span", { class: "run" }, each.label) : null;
    return element(
      "a",
      { href, "aria-current": isHere ? "page" : null, title: each.path },
      label,
      name(each.name),
    );
  });
  if (isTwo) {
    const isHere = wanted === "differences" || wanted === "pair";
    made.push(
      element(
        "a",
        { href: link({ view: "differences" }), "aria-current": isHere ? "page" : null },
        "Differences",
      ),
    );
  }
  tabs.replaceChildren(...made);
}

async function poll() {
  try {
    if (document.hidden) return;
    const { runs } = await ask("status");
    const before = app.versions;
    app.versions = runs.map((run) => run.version);
    const known = problem;
    problem = runs.find((run) => run.problem)?.problem ?? "";
    if (problem || noticed === known || noticed === SILENT) notify(problem);
    const isChanged = app.versions.some((version, at) => version !== before[at]);
    if (isChanged) app.say(runs.map((run) => `${count(run.num_rows)} rollouts`).join(", "));
    await shown.view?.refresh?.(opening.signal, isChanged);
  } catch (error) {
    lost(error);
  } finally {
    setTimeout(() => void poll(), POLL_EVERY);
  }
}

function isTyping(target) {
  return target.closest("input, textarea, select, [contenteditable]") !== null;
}

function onKey(event) {
  if (event.ctrlKey || event.metaKey || event.altKey || help.open) return;
  const isField = isTyping(event.target);
  if (event.key === "Escape") {
    if (isField) leaveField(event);
    else if (shown.name !== "list") leave();
    return;
  }
  if (isField) return;
  if (event.key === "?") {
    help.showModal();
  } else if (event.key === "/") {
    if (shown.view?.search) shown.view.search();
    else go(listing(app.place));
  } else if (main.hasAttribute("aria-busy")) {
    // The key is meant for the page that is being opened, not for the one that it replaces.
    const { key } = event;
    void showing.then(() => shown.view?.key?.(key));
  } else if (!shown.view?.key?.(event.key)) {
    return;
  }
  event.preventDefault();
}

/** Leaves a field and restores its value; browsers would clear a search field. */
function leaveField(event) {
  const field = event.target;
  if (field.matches("input")) {
    event.preventDefault();
    field.value = field.defaultValue;
  }
  field.blur();
}

function leave() {
  go(shown.view?.back ?? (shown.name === "differences" ? {} : listing(app.place)));
}

async function start() {
  addEventListener("hashchange", () => {
    showing = show();
  });
  document.addEventListener("keydown", onKey);
  document.getElementById("help-button").addEventListener("click", () => help.showModal());
  document.querySelector("[data-skip]").addEventListener("click", (event) => {
    event.preventDefault();
    main.focus();
  });
  const found = await ask("runs");
  app.runs = found.runs.map((run, at) => ({ ...run, label: "AB"[at] }));
  app.versions = found.runs.map((run) => run.version);
  drawHelp(help, found);
  await show();
  setTimeout(() => void poll(), POLL_EVERY);
}

start().catch(lost);
