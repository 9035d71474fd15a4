// One rollout: its conversation, with the score or the error, times and tokens next to it.

import { link, listing, rolloutPlace, taskPlace } from "./address.js";
import { conversation } from "./conversation.js";
import { outcome } from "./rows.js";
import { ask } from "./server.js";
import { append, count, decimal, duration, element, facts, fold, name, value } from "./text.js";

/** Makes the page of the rollout of a place. */
export async function rolloutView(app) {
  const { place, signal } = app;
  const key = { env: place.env, task: place.task, attempt: place.attempt };
  const found = await ask("rollout", { ...listing(place), ...key }, signal);
  const at = (row) => (row ? link(rolloutPlace(place, row)) : null);
  const [previous, next] = [at(found.previous), at(found.next)];
  const node = element("div", { class: "rollout" });
  append(node, [bar(app, place, found, previous, next), heading(found)]);
  const panel = element("div", { class: "panel" }, scorePanel(app, found), facets(found));
  const talk = element("section", { "aria-label": "Conversation" }, conversation(found.record));
  append(node, [element("div", { class: "columns" }, talk, panel)]);
  return {
    node,
    title: `${found.row.task_id}, attempt ${found.row.attempt}`,
    key(pressed) {
      const target = { n: next, p: previous }[pressed];
      if (target) location.hash = target;
      if (pressed === "t") location.hash = link(taskPlace(place, found.row));
      if (pressed === "o") toggleReasoning(node);
      return ["n", "p", "t", "o"].includes(pressed);
    },
    async refresh(_, isChanged) {
      // A scored rollout never changes; a failed or waiting one may have been scored since.
      if (isChanged && found.row.status !== "scored") await app.again();
    },
  };
}

function toggleReasoning(node) {
  const all = [...node.querySelectorAll("details.reasoning")];
  const isOpen = all.every((each) => each.open);
  for (const each of all) each.open = !isOpen;
}

function bar(app, place, found, previous, next) {
  const step = (title, href, keys) =>
    href
      ? element("a", { href, "aria-keyshortcuts": keys }, title)
      : element("span", { class: "quiet" }, title);
  const where =
    found.position === null
      ? "not in the list"
      : `${count(found.position + 1)} of ${count(found.num_matching)}`;
  const attempts = found.attempts.map((row) =>
    element(
      "a",
      {
        href: link(rolloutPlace(place, row)),
        "aria-current": row.attempt === found.row.attempt ? "page" : null,
        "aria-label": `attempt ${row.attempt}`,
        class: "attempt",
      },
      `${row.attempt} `,
      outcome(row),
    ),
  );
  const side = link(taskPlace(place, found.row));
  const made = element(
    "nav",
    { class: "bar-of-links", "aria-label": "Rollouts around this one" },
    step("← list", link(listing(place)), "Escape"),
    step("previous", previous, "p"),
    step("next", next, "n"),
    element("span", { class: "quiet" }, where),
  );
  const isAlone = found.num_attempts < 2 && app.runs.length < 2;
  if (!isAlone) {
    const more = found.num_attempts - found.attempts.length;
    append(made, [
      element(
        "span",
        { class: "attempts" },
        "attempts ",
        attempts,
        more ? ` and ${count(more)} more` : null,
      ),
      element("a", { href: side, "aria-keyshortcuts": "t" }, "side by side"),
    ]);
  }
  if (app.runs.length > 1) {
    const pair = { ...listing(place), view: "pair", env: found.row.env, task: found.row.task_id };
    append(made, [element("a", { href: link(pair) }, "both runs")]);
  }
  return made;
}

function heading({ row, record }) {
  return element(
    "div",
    { class: "heading" },
    element("h1", { tabindex: "-1" }, name(row.task_id), " ", outcome(row)),
    element(
      "p",
      { class: "quiet" },
      "attempt ",
      row.attempt,
      " · ",
      name(row.env),
      " · ",
      name(row.model ?? ""),
      record.response_model ? [" answered as ", name(record.response_model)] : null,
    ),
  );
}

/** Returns the verifier's result, or the reason why there is no score. */
export function scorePanel(app, { row, record }) {
  if (row.status === "failed") return errorPanel(app, row, record);
  const made = element("section", { "aria-label": "Score" }, element("h2", {}, "Score"));
  if (row.status === "waiting") {
    append(made, [
      element("p", { class: "quiet" }, "The conversation is complete and waits for its score."),
    ]);
  }
  append(made, [
    facts([
      ["reward", row.status === "scored" ? outcome(row) : null],
      ["answer", record.answer],
      ["ended by", record.stop_reason],
      ...numbers(record.components),
      ...numbers(record.metrics),
    ]),
  ]);
  const details = Object.entries(record.details ?? {});
  if (details.length) append(made, [element("h3", {}, "Details of the verifier"), facts(details)]);
  return made;
}

function numbers(found) {
  return Object.entries(found ?? {}).map(([title, number]) => [
    title,
    element("span", {}, Number.isInteger(number) ? `${number}` : decimal(number)),
  ]);
}

function errorPanel(app, row, record) {
  const { error } = record;
  return element(
    "section",
    { "aria-label": "Error", class: "failed" },
    element("h2", {}, "Not scored"),
    facts([
      ["error", element("strong", { class: "bad" }, name(error.class))],
      ["phase", error.phase],
      ["status", error.status],
      ["message", error.message],
      ["tried again", tally(record.retries)],
    ]),
    history(app, row),
  );
}

/** Returns the earlier failures of this attempt, loaded when they are opened. */
function history(app, row) {
  const key = { run: row.run, env: row.env, task: row.task_id, attempt: row.attempt };
  const fill = async (made) => {
    const { failures } = await ask("history", key);
    const earlier = failures.slice(0, -1).map(tryOf);
    append(made, earlier.length ? earlier : [element("p", { class: "quiet" }, "None.")]);
  };
  return fold("Earlier tries of this attempt", (made) => void fill(made).catch(app.lost));
}

function tryOf(failure) {
  return facts([
    ["at", moment(failure.timing?.started_at)],
    ["error", failure.error.class],
    ["phase", failure.error.phase],
    ["message", failure.error.message],
    ["tried again", tally(failure.retries)],
  ]);
}

function tally(found) {
  const pairs = Object.entries(found ?? {});
  return pairs.map(([title, number]) => `${number} × ${title}`).join(", ");
}

function moment(seconds) {
  return seconds ? new Date(seconds * 1000).toISOString().replace("T", " ").slice(0, 19) : "";
}

/** Returns the rest of the record: times, tokens, the task, the tools, how it was made. */
function facets({ record }) {
  const usage = record.usage ?? {};
  const tokens = facts([
    ["prompt", amount(usage.prompt_tokens, usage.cached_tokens, "cached")],
    ["written", amount(usage.completion_tokens, usage.reasoning_tokens, "reasoning")],
    ["cost", record.cost === undefined ? null : decimal(record.cost, 6)],
  ]);
  const counted = element(
    "section",
    { "aria-label": "Tokens" },
    element("h2", {}, "Tokens"),
    tokens,
  );
  const made = [
    times(record.timing ?? {}),
    usage.completion_tokens || usage.prompt_tokens ? counted : null,
  ];
  for (const [role, use] of Object.entries(record.role_usage ?? {})) {
    const asked = `${count(use?.num_calls ?? 0)} calls, ${count(use?.num_cached ?? 0)} on record`;
    const spent = amount(use?.usage?.completion_tokens, use?.usage?.prompt_tokens, "read");
    append(tokens, [
      element("div", {}, element("dt", {}, name(role)), element("dd", {}, `${asked}; ${spent}`)),
    ]);
  }
  const rest = {
    "The task's fields": record.task,
    "Final state": record.final_state,
    "Tools shown to the model": record.tools,
    "Failed tool calls": record.tool_errors,
    "Retried requests": record.error ? null : record.retries,
    "How it was made": origin(record),
  };
  for (const [title, found] of Object.entries(rest)) {
    if (found === null || found === undefined || !Object.keys(Object(found)).length) continue;
    made.push(folded(title, found));
  }
  return made;
}

function origin(record) {
  const { verifier, sampling, seed, env_version, env_options, task_hash } = record;
  const all = { verifier, sampling, seed, env_version, env_options, task_hash };
  const isThere = (each) => typeof each !== "object" || Object.keys(each).length;
  const known = Object.entries(all).filter(([, each]) => each !== undefined && isThere(each));
  return Object.fromEntries(known);
}

function folded(title, found) {
  const isFlat = !Array.isArray(found) && typeof found === "object";
  return fold(title, () => (isFlat ? facts(Object.entries(found)) : value(found)));
}

function amount(number, part, title) {
  if (!number) return null;
  return part ? `${count(number)} (${count(part)} ${title})` : count(number);
}

const PARTS = ["model", "tool", "verify"];

function times(timing) {
  const total = timing.total_seconds ?? 0;
  const known = PARTS.map((part) => [part, timing[`${part}_seconds`] ?? 0]);
  const whole = Math.max(
    total,
    known.reduce((sum, [, seconds]) => sum + seconds, 0),
  );
  const bar = element("div", { class: "times", "aria-hidden": "true" });
  for (const [part, seconds] of known) {
    const piece = element("span", { class: `time-${part}` });
    piece.style.width = whole ? `${(100 * seconds) / whole}%` : "0";
    append(bar, [piece]);
  }
  return element(
    "section",
    { "aria-label": "Times" },
    element("h2", {}, "Times"),
    whole ? bar : null,
    facts([
      ["whole", duration(total)],
      ...known.filter(([, seconds]) => seconds).map(([part, seconds]) => [part, duration(seconds)]),
      ["begun", timing.started_at ? `${moment(timing.started_at)} UTC` : null],
    ]),
  );
}
