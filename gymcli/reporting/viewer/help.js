// The help dialog: keys, and examples of filters.

import { append, element, name } from "./text.js";

const KEYS = [
  ["j, k or ↓, ↑", "next or previous row of a list"],
  ["Enter", "open the row"],
  ["Esc", "back to the list; leave a field"],
  ["n, p", "next or previous rollout, task or page of attempts"],
  ["t", "attempts of the task side by side"],
  ["o", "expand or collapse all reasoning"],
  ["/", "filter"],
  ["?", "this help"],
];

const EXAMPLES = [
  ["reward < 1 and num_tool_calls > 2", "numbers compare"],
  ["0 < avg < 1", "tasks whose attempts differ in reward"],
  ['stop_reason in ["length", "max_turns"]', "one of several"],
  ['contains(text, "I cannot")', "words anywhere in the conversation"],
  ['task.category == "algebra"', "a field of the task's row"],
];

/** Fills the dialog. */
export function drawHelp(dialog, found) {
  const row = ([title, meaning]) =>
    element("div", {}, element("dt", {}, element("kbd", {}, title)), element("dd", {}, meaning));
  const example = ([text, meaning]) =>
    element("div", {}, element("dt", {}, element("code", {}, text)), element("dd", {}, meaning));
  const close = element("button", { type: "button", onclick: () => dialog.close() }, "Close");
  append(dialog, [
    element("h2", { id: "help-title" }, "Keys"),
    element("dl", { class: "keys" }, KEYS.map(row)),
    element("h2", {}, "Filters"),
    element("dl", { class: "keys" }, EXAMPLES.map(example)),
    element(
      "p",
      {},
      "Names: ",
      (found.names ?? []).map((each, at) => [at ? ", " : "", element("code", {}, each)]),
      ".",
    ),
    element("p", { class: "quiet" }, name(found.gymcli)),
    close,
  ]);
}
