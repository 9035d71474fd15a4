// The numbers of a run, each with its interval; loaded after the page itself.

import { ask, Refused } from "./server.js";
import { append, count, decimal, duration, element, name } from "./text.js";

/** Returns a function that loads slow numbers whenever those in a node are of another version. */
export function kept(app, path, node, draw) {
  let [drawn, asking] = ["", ""];
  async function update(given, version) {
    const question = JSON.stringify(given);
    const wanted = `${question} ${version}`;
    if (asking === question || drawn === wanted) return;
    asking = question;
    if (!drawn.startsWith(`${question} `)) {
      drawn = "";
      node.replaceChildren(element("p", { class: "quiet" }, "Computing …"));
    }
    try {
      const found = await ask(path, given);
      if (asking !== question) return; // the reader has switched to another run
      draw(found);
      drawn = `${question} ${found.version}`;
    } catch (error) {
      if (!(error instanceof Refused)) throw error;
      if (asking !== question) return;
      node.replaceChildren(element("p", { class: "error" }, error.message));
      drawn = wanted;
    } finally {
      if (asking === question) asking = "";
    }
  }
  return (given, version) => void update(given, version).catch((error) => app.lost(error));
}

/** Makes the summary of the run that is shown. */
export function summary(app) {
  const node = element("section", { class: "summary", "aria-label": "Numbers of the run" });
  const more = element("details", { class: "all-numbers" });
  const update = kept(app, "metrics", node, ({ metrics, curves }) => {
    more.replaceChildren(element("summary", {}, "All numbers"), allNumbers(metrics));
    node.replaceChildren(element("div", { class: "figures" }, figures(metrics, curves)), more);
  });
  return { node, update: (run) => update({ run }, app.versions[run]) };
}

/** Returns one number with its title, a note below it, and its position on a line. */
export function figure(title, shown, beneath = "", bar = null) {
  return element(
    "div",
    { class: "figure" },
    element("div", { class: "figure-title" }, title),
    element("div", { class: "figure-value" }, shown),
    bar,
    beneath ? element("div", { class: "figure-note" }, beneath) : null,
  );
}

function figures(metrics, curves) {
  const found = [];
  const interval = metrics.interval;
  const names = Object.keys(metrics.environments ?? {});
  if (metrics.mean_reward !== null && metrics.mean_reward !== undefined) {
    const note = interval
      ? ranged(interval)
      : `${count(metrics.num_clusters ?? 0)} tasks, no interval`;
    found.push(figure("mean reward", decimal(metrics.mean_reward), note, bar(metrics)));
  } else if (names.length > 1) {
    found.push(figure("mean reward", "–", "the environments have different best rewards"));
  } else {
    found.push(figure("mean reward", "–", "nothing is scored"));
  }
  for (const environment of names.length > 1 ? names : []) {
    const own = metrics.environments[environment];
    const note = own.interval ? ranged(own.interval) : "";
    found.push(figure(name(environment), decimal(own.mean_reward), note, bar(own)));
  }
  const expected = metrics.num_expected;
  const scored = count(metrics.num_scored ?? 0);
  const share = metrics.coverage;
  found.push(
    expected === null || expected === undefined
      ? figure("scored", scored, "expected number unknown")
      : figure("scored", scored, `of ${count(expected)} expected, ${percent(share)}`),
  );
  const strict = metrics.strict_mean_reward;
  if (share < 1 && strict !== null && strict !== undefined) {
    found.push(figure("strict mean", decimal(strict), "missing attempts count as 0"));
  }
  if (metrics.num_unscored) {
    found.push(figure("failed", count(metrics.num_unscored), counts(metrics.failures)));
  }
  for (const [title, key] of curves) {
    const last = Object.entries(metrics[key] ?? {})
      .filter(([, each]) => each !== null)
      .at(-1);
    if (last && last[0] !== "1") {
      const own = metrics.estimates?.[`${title}${last[0]}`]?.interval;
      found.push(figure(`${title}${last[0]}`, decimal(last[1]), own ? ranged(own) : ""));
    }
  }
  if (metrics.latency) {
    const { p50, p95 } = metrics.latency.total_seconds;
    found.push(figure("time", duration(p50), `p95 ${duration(p95)}`));
  }
  const usage = metrics.usage ?? {};
  const written = usage.completion_tokens ?? 0;
  if (written) {
    const cost =
      metrics.cost === null || metrics.cost === undefined ? "" : `, cost ${decimal(metrics.cost)}`;
    const note = `written; ${short(usage.prompt_tokens ?? 0)} read${cost}`;
    found.push(figure("tokens", short(written), note));
  }
  return found;
}

function ranged(interval) {
  return `${decimal(interval.low)} to ${decimal(interval.high)} (${percent(interval.level)})`;
}

function percent(share) {
  const rounded = Math.floor(share * 1000) / 10;
  return `${Number.isInteger(rounded) ? rounded : rounded.toFixed(1)} %`;
}

function short(number) {
  if (number < 10_000) return count(number);
  return number < 1e6 ? `${(number / 1e3).toFixed(0)} k` : `${(number / 1e6).toFixed(1)} M`;
}

function counts(found) {
  const all = Object.entries(found ?? {});
  const shown = all.slice(0, 3).map(([title, number]) => `${count(number)} ${title}`);
  return shown.join(", ") + (all.length > 3 ? `, ${all.length - 3} other kinds` : "");
}

/** Draws the interval of a mean between 0 and 1; returns null for any other. */
function bar({ mean_reward: mean, interval }) {
  const isWithin = interval && interval.low >= 0 && interval.high <= 1;
  if (!isWithin) return null;
  const range = element("span", { class: "bar-range" });
  range.style.left = `${100 * interval.low}%`;
  range.style.width = `${Math.max(1, 100 * (interval.high - interval.low))}%`;
  const point = element("span", { class: "bar-point" });
  point.style.left = `${100 * mean}%`;
  return element("div", { class: "bar", "aria-hidden": "true" }, range, point);
}

function allNumbers(metrics) {
  const label = "All numbers, with their errors";
  const made = element("div", {
    class: "scroll",
    tabindex: "0",
    role: "region",
    "aria-label": label,
  });
  const advice = metrics.advice ?? [];
  if (advice.length)
    append(made, [
      element(
        "ul",
        {},
        advice.map((text) => element("li", {}, text)),
      ),
    ]);
  const environments = Object.entries(metrics.environments ?? {});
  const all = environments.length > 1 ? [...environments, ["all", metrics]] : environments;
  for (const [title, found] of all) append(made, [numbersOf(title, found)]);
  return made;
}

function numbersOf(title, found) {
  const body = element("tbody");
  const row = (cells) => {
    const [first, ...others] = cells;
    const rest = others.map((cell) => element("td", { class: "number" }, cell));
    append(body, [element("tr", {}, element("th", { scope: "row" }, name(first)), rest)]);
  };
  const estimates = Object.entries(found.estimates ?? {});
  for (const [each, known] of estimates) {
    const range = known.interval ? ranged(known.interval) : "–";
    const method = known.interval?.method ?? "–";
    const numbers = [decimal(known.value), decimal(known.standard_error), range, method];
    row([each, ...numbers, count(known.num_values), count(known.num_clusters), known.estimator]);
  }
  if (!estimates.length) for (const [each, number] of plain(found)) row([each, decimal(number)]);
  const head = ["", "value", "error", "interval", "method", "attempts", "tasks", "estimator"];
  const titles = (estimates.length ? head : head.slice(0, 2)).map((text) =>
    element("th", { scope: "col", class: "number" }, text),
  );
  const caption = element("caption", {}, name(title));
  return element("table", {}, caption, element("thead", {}, element("tr", {}, titles)), body);
}

/** Returns the numbers of a run that have no estimates. */
function plain(found) {
  const curves = Object.keys(found).filter(
    (key) => key.endsWith("_k") && key !== "num_tasks_at_k",
  );
  const pairs = curves.flatMap((title) =>
    Object.entries(found[title] ?? {}).map(([k, number]) => [
      `${title.replace("_k", "")} ${k}`,
      number,
    ]),
  );
  const groups = ["components", "metrics"].flatMap((title) => Object.entries(found[title] ?? {}));
  return [["mean reward", found.mean_reward], ...pairs, ...groups];
}
