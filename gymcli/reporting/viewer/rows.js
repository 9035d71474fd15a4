// Tables: headers, pages and rows; the columns of the list of rollouts and their cells.

import { link, rolloutPlace } from "./address.js";
import { count, decimal, duration, element, name } from "./text.js";

/** Each column has a title, the name to sort by, and a function that makes a row's cell. */
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

/** Rows per page of a table. */
export const PAGE = 100;

/** Returns a column header with a button that sorts by it; `order` is the current order. */
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

/** Returns the links between the pages of a table; `to` returns the place of the page at a row. */
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

/** Returns the links that open a table's rows. */
export function rowLinks(node) {
  return [...node.querySelectorAll("a[data-row]")];
}

/** Focuses the next or previous row; returns false for other keys, else 0 or the step past the edge. */
export function moveRow(links, key) {
  const step = { j: 1, ArrowDown: 1, k: -1, ArrowUp: -1 }[key];
  if (!step) return false;
  const at = links.indexOf(document.activeElement);
  const next = links[at < 0 ? (step > 0 ? 0 : links.length - 1) : at + step];
  next?.focus();
  next?.closest("tr").scrollIntoView({ block: "nearest" });
  return next || at < 0 ? 0 : step;
}

/** Returns a rollout's status or reward. */
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
  const title = `${count(row.prompt_tokens)} prompt, ${count(row.completion_tokens)} completion`;
  return element("span", { title }, count(row.completion_tokens));
}

function answer(row) {
  return row.answer ? element("bdi", { title: row.answer }, row.answer) : "";
}

function taskCell(row, place) {
  const href = link(rolloutPlace(place, row));
  return element("a", { href, "data-row": "" }, name(row.task_id));
}
