// Tables: their heads, pages and rows; the columns of the list of rollouts, and what stands in each.

import { link, rolloutPlace } from "./address.js";
import { count, decimal, duration, element, name } from "./text.js";

/** By title: what it is sorted by, and what gives a row's cell. */
export const COLUMNS = [
  { title: "Task", sort: "task_id", cell: taskCell, class: "task" },
  { title: "Environment", sort: "env", cell: (row) => name(row.env), class: "env" },
  { title: "Attempt", sort: "attempt", cell: (row) => row.attempt, class: "number" },
  { title: "Reward", sort: "reward", cell: outcome, class: "number reward" },
  { title: "Ended by", sort: "stop_reason", cell: ending, class: "ending" },
  { title: "Turns", sort: "num_turns", cell: (row) => count(row.num_turns), class: "number" },
  {
    title: "Calls",
    sort: "num_tool_calls",
    cell: (row) => count(row.num_tool_calls),
    class: "number",
  },
  { title: "Tokens", sort: "completion_tokens", cell: tokens, class: "number tokens" },
  { title: "Time", sort: "seconds", cell: (row) => duration(row.seconds), class: "number time" },
  { title: "Answer", sort: "answer", cell: answer, class: "answer" },
];

/** Rows that a page of a table has. */
export const PAGE = 100;

/** Gives the head of a column, with the button that sorts by it; `order` is what it is sorted by. */
export function headCell(column, order, onclick) {
  const turned = { [column.sort]: "ascending", [`-${column.sort}`]: "descending" }[order] ?? "none";
  const arrow = { ascending: "▲", descending: "▼", none: "" }[turned];
  const button = element(
    "button",
    { type: "button", id: `sort-${column.sort}`, onclick },
    column.title,
    element("span", { "aria-hidden": "true", class: "arrow" }, arrow),
  );
  return element("th", { scope: "col", "aria-sort": turned, class: column.class }, button);
}

/** Gives the links between the pages of a table; `to` gives the address of the page from a row on. */
export function pageLinks({ offset, num_matching: matching }, to) {
  if (matching <= PAGE && !offset) return [];
  const end = Math.max(0, Math.floor((matching - 1) / PAGE) * PAGE);
  const step = (title, start, isThere) =>
    isThere
      ? element("a", { href: link(to(start || "")) }, title)
      : element("span", { class: "quiet" }, title);
  const page = `page ${count(Math.floor(offset / PAGE) + 1)} of ${count(end / PAGE + 1)}`;
  return [
    step("first", 0, offset > 0),
    step("previous", Math.max(0, offset - PAGE), offset > 0),
    element("span", {}, page),
    step("next", offset + PAGE, offset + PAGE < matching),
    step("last", end, offset < end),
  ];
}

/** Gives the links that open a table's rows. */
export function rowLinks(node) {
  return [...node.querySelectorAll("a[data-row]")];
}

/** Goes to the next or previous row; gives false for other keys, else the step over the edge or 0. */
export function moveRow(links, key) {
  const step = { j: 1, ArrowDown: 1, k: -1, ArrowUp: -1 }[key];
  if (!step) return false;
  const at = links.indexOf(document.activeElement);
  const next = links[at < 0 ? (step > 0 ? 0 : links.length - 1) : at + step];
  next?.focus();
  next?.closest("tr").scrollIntoView({ block: "nearest" });
  return next || at < 0 ? 0 : step;
}

/** Gives what a rollout came to, in a word or a number. */
export function outcome(row) {
  if (row.status !== "scored") return element("span", { class: `badge ${row.status}` }, row.status);
  const [kind, mark, title] = judged(row);
  const shown = element("span", { "aria-hidden": "true" }, mark);
  return element("span", { class: `badge ${kind}`, title }, shown, decimal(row.reward));
}

function judged(row) {
  if (row.passed === true) return ["pass", "✓ ", "passed"];
  if (row.passed !== false) return ["", "", null];
  return row.reward > 0 ? ["partial", "◐ ", "not passed"] : ["fail", "✗ ", "not passed"];
}

function ending(row) {
  if (row.status === "failed") return name(row.error ?? "", { class: "bad", title: row.phase });
  return name(row.stop_reason ?? "");
}

function tokens(row) {
  const title = `${count(row.prompt_tokens)} of the prompt, ${count(row.completion_tokens)} written`;
  return element("span", { title }, count(row.completion_tokens));
}

function answer(row) {
  return row.answer ? element("bdi", { title: row.answer }, row.answer) : "";
}

function taskCell(row, place) {
  const href = link(rolloutPlace(place, row));
  return element("a", { href, "data-row": "" }, name(row.task_id));
}
