// Two runs, task by task: both means, their difference, its direction, and which run is flaky.

import { go, link } from "./address.js";
import { headCell, moveRow, PAGE, pageLinks, rowLinks } from "./rows.js";
import { ask } from "./server.js";
import { figure, kept } from "./summary.js";
import { append, count, decimal, element, name, pValue } from "./text.js";

const KINDS = {
  regressed: "regressed",
  broken: "broken: all passed, now all fail",
  improved: "improved",
  fixed: "fixed: all failed, now all pass",
  unchanged: "unchanged",
  flaky_a: "flaky in A only",
  flaky_b: "flaky in B only",
  flaky_both: "flaky in both",
  only_a: "scored only in A",
  only_b: "scored only in B",
};

const STRICT = { broken: "regressed", fixed: "improved" };

const VERDICTS = { PASS: "good", FAIL: "bad", INCONCLUSIVE: "" };

const COLUMNS = [
  { title: "Task", sort: "task_id" },
  { title: "Mean A", sort: "mean_a", class: "number" },
  { title: "Mean B", sort: "mean_b", class: "number" },
  { title: "B − A", sort: "difference", class: "number" },
  { title: "Passes A", sort: "passes_a", class: "number" },
  { title: "Passes B", sort: "passes_b", class: "number" },
  { title: "Change", sort: "kinds" },
];

/** Loads the tasks of a page of differences, or of the page around one of its tasks. */
export function askDifferences(place, signal) {
  const { kind, order, start } = place;
  return ask("differences", { kind, sort: order, offset: start, limit: PAGE }, signal);
}

/** Makes the page of differences. */
export async function differencesView(app) {
  const { place, signal } = app;
  const found = await askDifferences(place, signal);
  const node = element("div", { class: "differences" });
  const compared = element("section", { class: "summary", "aria-label": "Comparison" });
  append(node, [
    element("h1", { tabindex: "-1" }, "Differences"),
    element(
      "p",
      { class: "quiet" },
      app.runs.map((run, at) => [
        at ? ", " : "",
        element("span", { class: "run" }, run.label),
        " ",
        name(run.name),
      ]),
    ),
    compared,
    choice(place, found),
    element(
      "p",
      { class: "total" },
      `${count(found.num_matching)} of ${count(found.num_tasks)} tasks`,
    ),
    element("div", { class: "scroll" }, table(app, place, found)),
    element(
      "nav",
      { class: "pages", "aria-label": "Pages of tasks" },
      pageLinks(found, (start) => ({ ...place, start })),
    ),
  ]);
  const update = kept(app, "comparison", compared, (told) => compare(told.comparison, compared));
  update({}, app.versions);
  return {
    node,
    title: "differences",
    key: (pressed) => moveRow(rowLinks(node), pressed) !== false,
    refresh: (_, isChanged) => (isChanged ? app.again() : update({}, app.versions)),
    focus: () => {
      const wanted = app.left;
      app.left = null;
      const at = found.rows.findIndex(
        (row) => wanted && row.env === wanted.env && row.task_id === wanted.task,
      );
      rowLinks(node)[at]?.focus();
      return at >= 0;
    },
  };
}

function choice(place, found) {
  const select = element("select", { id: "kind", "aria-label": "which tasks" });
  append(select, [element("option", { value: "" }, `all tasks (${count(found.num_tasks)})`)]);
  for (const [kind, title] of Object.entries(KINDS)) {
    append(select, [
      element("option", { value: kind }, `${title} (${count(found.counts[kind] ?? 0)})`),
    ]);
  }
  select.value = place.kind ?? "";
  select.addEventListener("change", () => go({ ...place, kind: select.value, start: "" }));
  return element("form", { class: "filter" }, element("label", { for: "kind" }, "Show"), select);
}

function table(app, place, found) {
  const order = place.order ?? "difference";
  const heads = COLUMNS.map((column) => {
    const next = order === column.sort ? `-${column.sort}` : column.sort;
    return headCell(column, order, () => go({ ...place, order: next, start: "" }));
  });
  const rows = found.rows.map((row) => {
    const to = { ...place, view: "pair", env: row.env, task: row.task_id };
    const sign = row.difference > 0 ? "good" : row.difference < 0 ? "bad" : "";
    const shown = row.difference > 0 ? `+${decimal(row.difference)}` : decimal(row.difference);
    const number = (text, title) => element("td", { class: "number", "data-title": title }, text);
    return element(
      "tr",
      {},
      element(
        "td",
        { class: "task" },
        element("a", { href: link(to), "data-row": "" }, name(row.task_id)),
        found.has_environments ? [" ", element("span", { class: "quiet" }, name(row.env))] : null,
      ),
      number(decimal(row.mean_a), "A"),
      number(decimal(row.mean_b), "B"),
      number(element("span", { class: sign }, shown), "B − A"),
      number(passes(row.passes_a, row.num_a), "passes A"),
      number(passes(row.passes_b, row.num_b), "passes B"),
      element(
        "td",
        { class: "kind" },
        badges(row.kinds),
      ),
    );
  });
  if (!rows.length)
    rows.push(
      element("tr", {}, element("td", { colspan: COLUMNS.length }, "No tasks match.")),
    );
  return element(
    "table",
    { class: "tasks" },
    element("caption", { class: "unseen" }, "Tasks of both runs"),
    element("thead", {}, element("tr", {}, heads)),
    element("tbody", {}, rows),
  );
}

/** Returns a badge for each kind; a broken task is a regressed one, which is not repeated. */
function badges(kinds) {
  const implied = kinds.map((kind) => STRICT[kind]);
  return kinds
    .filter((kind) => !implied.includes(kind))
    .map((kind, at) => [
      at ? " " : "",
      element("span", { class: `badge kind-${kind}` }, KINDS[kind].split(":")[0]),
    ]);
}

function passes(number, all) {
  return number === null ? `of ${all}` : `${number} of ${all}`;
}

/** Fills in the overall difference with its interval and its verdict. */
function compare(comparison, node) {
  const doubts = [
    ...(comparison.way_out ? [comparison.way_out] : []),
    ...(comparison.drift ?? []).map((each) => `differs between the runs: ${drifted(each)}`),
    ...(comparison.warnings ?? []),
  ].map((text) => element("li", {}, text));
  node.replaceChildren(element("div", { class: "figures" }, comparedFigures(comparison)));
  if (doubts.length) append(node, [element("ul", {}, doubts)]);
}

function drifted(each) {
  const values = each.a || each.b ? `, ${each.a} in A, ${each.b} in B` : "";
  return `${each.env ? `${each.env}: ` : ""}${each.name}${values}`;
}

function comparedFigures(found) {
  const { interval, value } = found.difference ?? {};
  const range = interval ? `${decimal(interval.low)} to ${decimal(interval.high)}` : "no interval";
  const passing = found.smallest_margin
    ? `, passes above ${decimal(Math.ceil(found.smallest_margin * 1000) / 1000)}`
    : "";
  const margin = found.margin === null ? "" : `margin ${decimal(found.margin)}${passing}`;
  return [
    figure("verdict", element("span", { class: VERDICTS[found.verdict] }, found.verdict), margin),
    figure("mean A", decimal(found.mean_a)),
    figure("mean B", decimal(found.mean_b)),
    figure("B \u2212 A", value > 0 ? `+${decimal(value)}` : decimal(value), range),
    found.p_value === null ? null : figure("p", pValue(found.p_value), found.test),
    figure("paired tasks", count(found.num_tasks)),
  ];
}
