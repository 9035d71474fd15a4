// All attempts of a task side by side, of one run or of two.

import { go, link, listing, rolloutPlace } from "./address.js";
import { conversation } from "./conversation.js";
import { outcome } from "./rows.js";
import { ask } from "./server.js";
import { append, block, count, decimal, duration, element, fold, name } from "./text.js";

const BESIDE = 4;

/** Makes the page of the task of a place. */
export async function taskView(app) {
  const { place, signal } = app;
  const first = Number(place.first ?? 0);
  const asked = { env: place.env, task: place.task, offset: first, limit: BESIDE };
  const found = await ask("task", { ...listing(place), ...asked }, signal);
  const records = await Promise.all(
    found.rows.map((row) => ask("record", keyOf(row), signal).then((answer) => answer.record)),
  );
  const node = element("div", { class: "task" });
  const mean = found.mean === null ? "" : ` · mean ${decimal(found.mean)}`;
  append(node, [
    element(
      "nav",
      { class: "bar-of-links", "aria-label": "Where to go" },
      element("a", { href: link(listing(place)), "aria-keyshortcuts": "Escape" }, "← list"),
      pages(place, found, first),
    ),
    element("h1", { tabindex: "-1" }, name(place.task)),
    element("p", { class: "quiet" }, name(place.env), ` · ${count(found.num_rows)} attempts`, mean),
    promptOf(records),
  ]);
  const beside = element("div", {
    class: "beside",
    tabindex: "0",
    role: "group",
    "aria-label": "Attempts",
  });
  found.rows.forEach((row, at) => append(beside, [attemptOf(place, row, records[at])]));
  append(node, [beside]);
  const turn = (to) => to >= 0 && to < found.num_rows && go({ ...place, first: to || "" });
  return {
    node,
    title: `attempts of ${place.task}`,
    key(pressed) {
      if (pressed === "n") turn(first + BESIDE);
      if (pressed === "p") turn(Math.max(0, first - BESIDE) || (first ? 0 : -1));
      return pressed === "n" || pressed === "p";
    },
  };
}

function keyOf(row) {
  return { run: row.run, env: row.env, task: row.task_id, attempt: row.attempt };
}

function pages(place, found, first) {
  if (found.num_rows <= BESIDE) return null;
  const to = (title, start, isThere, keys) =>
    isThere
      ? element(
          "a",
          { href: link({ ...place, first: start || "" }), "aria-keyshortcuts": keys },
          title,
        )
      : element("span", { class: "quiet" }, title);
  const last = Math.min(first + BESIDE, found.num_rows);
  return [
    to("previous", Math.max(0, first - BESIDE), first > 0, "p"),
    to("next", first + BESIDE, last < found.num_rows, "n"),
    element(
      "span",
      { class: "quiet" },
      `${count(first + 1)} to ${count(last)} of ${count(found.num_rows)}`,
    ),
  ];
}

/** Returns the prompt if all attempts have the same one. */
function promptOf(records) {
  const prompts = records.map((record) =>
    JSON.stringify((record.messages ?? []).slice(0, record.num_prompt_messages ?? 0)),
  );
  if (!prompts.length || new Set(prompts).size > 1 || prompts[0] === "[]") return null;
  const record = records[0];
  const only = { ...record, messages: record.messages.slice(0, record.num_prompt_messages) };
  return fold("The prompt of all attempts", () => conversation(only));
}

function attemptOf(place, row, record) {
  const href = link(rolloutPlace(place, row, row.run || ""));
  const title = element("a", { href }, `attempt ${row.attempt}`);
  const head = element(
    "header",
    {},
    element("h2", {}, title, " ", outcome(row)),
    element("p", { class: "quiet" }, said(row)),
  );
  const reason = record.details?.reason;
  const made = element(
    "section",
    { class: "beside-one", "aria-label": `attempt ${row.attempt}` },
    head,
  );
  append(made, [
    typeof reason === "string" ? block(reason, { class: "text reason" }) : null,
    record.error
      ? block(`${record.error.class}: ${record.error.message ?? ""}`, { class: "text reason bad" })
      : null,
    conversation(record, { skipPrompt: true }),
  ]);
  return made;
}

function said(row) {
  const ended = row.status === "failed" ? row.error : row.stop_reason;
  return [
    ended ?? "",
    `${count(row.num_turns)} ${row.num_turns === 1 ? "turn" : "turns"}`,
    `${count(row.completion_tokens)} tokens`,
    duration(row.seconds),
  ].join(" · ");
}
