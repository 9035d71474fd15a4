// The same task in two runs: two conversations side by side, with their differences marked.

import { go, link, listing, rolloutPlace } from "./address.js";
import { changes } from "./changes.js";
import { appendMarked, lookOf, turnsOf, wordsOf } from "./conversation.js";
import { askDifferences } from "./differences.js";
import { outcome } from "./rows.js";
import { scorePanel } from "./rollout.js";
import { ask } from "./server.js";
import { append, block, count, element, fold, name } from "./text.js";

const MAX_TURNS = 100;
const MAX_CHARACTERS = 60_000;

/** Makes the page of the task of a place, with one attempt of each run. */
export async function pairView(app) {
  const { place, signal } = app;
  const [found, differences] = await Promise.all([
    ask("pair", { env: place.env, task: place.task }, signal),
    askDifferences(place, signal),
  ]);
  const chosen = found.runs.map((rows, run) => pick(rows, place[`attempt_${run}`]));
  const records = await Promise.all(
    chosen.map((row) =>
      row
        ? ask(
            "record",
            { run: row.run, env: row.env, task: row.task_id, attempt: row.attempt },
            signal,
          )
        : null,
    ),
  );
  const sides = records.map((answer) => answer?.record ?? null);
  const node = element("div", { class: "pair" });
  const back = {
    ...listing(place),
    view: "differences",
    kind: place.kind,
    order: place.order,
    start: place.start,
  };
  const [previous, next] = neighbours(differences.rows, place);
  const step = (title, to, keys) =>
    to ? element("a", { href: link(to), "aria-keyshortcuts": keys }, title) : null;
  append(node, [
    element(
      "nav",
      { class: "bar-of-links", "aria-label": "Where to go" },
      element("a", { href: link(back), "aria-keyshortcuts": "Escape" }, "← differences"),
      step("previous", previous, "p"),
      step("next", next, "n"),
    ),
    element("h1", { tabindex: "-1" }, name(place.task)),
    element("p", { class: "quiet" }, name(place.env)),
    warning(sides),
    element(
      "div",
      { class: "pair-row" },
      chosen.map((row, run) => head(app, place, found.runs[run], row, run, sides[run])),
    ),
    conversations(sides),
  ]);
  return {
    node,
    title: `both runs of ${place.task}`,
    back,
    key(pressed) {
      const target = { n: next, p: previous }[pressed];
      if (target) go(target);
      return pressed === "n" || pressed === "p";
    },
  };
}

/** Returns the places of the previous and next task on the page of differences. */
function neighbours(rows, place) {
  const at = rows.findIndex((row) => row.env === place.env && row.task_id === place.task);
  const to = (row) =>
    row && { ...place, env: row.env, task: row.task_id, attempt_0: "", attempt_1: "" };
  return at < 0 ? [null, null] : [to(rows[at - 1]), to(rows[at + 1])];
}

function pick(rows, attempt) {
  return rows.find((row) => String(row.attempt) === attempt) ?? rows[0] ?? null;
}

function warning([a, b]) {
  if (!a?.task_hash || !b?.task_hash || a.task_hash === b.task_hash) return null;
  return element("p", { class: "error" }, "The content of this task is not the same in both runs.");
}

function head(app, place, rows, row, run, record) {
  const made = element("section", { class: "side", "aria-label": `run ${app.runs[run].label}` });
  append(made, [
    element(
      "h2",
      {},
      element("span", { class: "run" }, app.runs[run].label),
      " ",
      name(app.runs[run].name),
    ),
  ]);
  if (!row) {
    append(made, [element("p", { class: "quiet" }, "This run has no attempt at this task.")]);
    return made;
  }
  const select = element("select", { "aria-label": `attempt of run ${app.runs[run].label}` });
  for (const each of rows) {
    const came = each.status === "scored" ? `reward ${each.reward}` : each.status;
    append(select, [
      element("option", { value: each.attempt }, `attempt ${each.attempt}, ${came}`),
    ]);
  }
  select.value = String(row.attempt);
  select.addEventListener("change", () => go({ ...place, [`attempt_${run}`]: select.value }));
  const open = link(rolloutPlace(place, row, run || ""));
  append(made, [
    element("p", {}, outcome(row), " ", select, " ", element("a", { href: open }, "open")),
    element("details", {}, element("summary", {}, "Score"), scorePanel(app, { row, record })),
  ]);
  return made;
}

function conversations([a, b]) {
  const [left, right] = [a, b].map((record) => (record ? turnsOf(record) : []));
  const rows = Math.max(left.length, right.length);
  const made = element("div", { class: "pair-turns" });
  const grow = (from) => {
    const until = Math.min(rows, from + MAX_TURNS);
    for (let at = from; at < until; at++) append(made, [turnRow(left[at], right[at])]);
    if (until === rows) return;
    const more = element(
      "button",
      { type: "button" },
      `show ${count(Math.min(MAX_TURNS, rows - until))} more`,
    );
    more.addEventListener("click", () => {
      more.remove();
      grow(until);
    });
    append(made, [more]);
  };
  grow(0);
  return made;
}

function turnRow(a, b) {
  const [textA, textB] = [a, b].map((turn) => (turn ? wordsOf(turn) : ""));
  const isSame = Boolean(a && b) && textA === textB && a.message.role === b.message.role;
  if (isSame) {
    const title = `#${a.number + 1} ${a.message.role}, the same in both: ${textA.slice(0, 80)}`;
    return fold(title, () => block(textA), { class: "same" });
  }
  const isHuge = textA.length + textB.length > 2 * MAX_CHARACTERS;
  const [cutA, cutB] = isHuge
    ? [textA, textB].map((text) => text.slice(0, MAX_CHARACTERS))
    : [textA, textB];
  const [marksA, marksB] =
    a && b ? changes(cutA, cutB) : [cutA, cutB].map((text) => [{ text, isMarked: false }]);
  const side = (turn, marks, whole) => turnSide(turn, marks, isHuge ? whole.length : 0);
  return element("div", { class: "pair-row" }, side(a, marksA, textA), side(b, marksB, textB));
}

function turnSide(turn, pieces, length) {
  if (!turn) return element("div", { class: "message absent quiet" }, "no message here");
  const text = element("div", { class: "text", dir: "auto" });
  appendMarked(text, pieces);
  const cut =
    length > MAX_CHARACTERS
      ? `the first ${count(MAX_CHARACTERS)} of ${count(length)} characters`
      : null;
  return element(
    "article",
    { class: `message ${lookOf(turn.message.role)}` },
    element(
      "header",
      {},
      element("span", { class: "role" }, turn.message.role),
      cut ? element("span", { class: "quiet" }, cut) : null,
      element("span", { class: "number quiet" }, `#${turn.number + 1}`),
    ),
    text,
  );
}
