// A conversation: every message with its reasoning, its tool calls with their results, its images.

import { append, appendText, block, count, decimal, element, fold, name } from "./text.js";

const KNOWN_ROLES = new Set(["system", "developer", "user", "assistant", "tool"]);
const IMAGE = /^data:image\/(png|jpeg|gif|webp);base64,[A-Za-z0-9+/=\s]+$/;
const FIRST = 80;
const LAST = 20;
const MORE = 100;
const MAX_ARGUMENTS = 40;

/** Returns the conversation of a record; of a long one, both ends and buttons to show more. */
export function conversation(record, { skipPrompt = false } = {}) {
  const turns = turnsOf(record).filter((turn) => !(skipPrompt && turn.isPrompt));
  const made = element("div", { class: "conversation" });
  if (!turns.length) {
    append(made, [element("p", { class: "quiet" }, "No messages on record.")]);
    return made;
  }
  if (turns.length <= FIRST + LAST) {
    append(made, turns.map(messageOf));
    return made;
  }
  let next = FIRST;
  const end = turns.length - LAST;
  const gap = element("div", { class: "more" });
  const grow = (until) => {
    gap.before(...turns.slice(next, until).map(messageOf));
    next = until;
    draw();
  };
  const draw = () => {
    const left = end - next;
    gap.replaceChildren();
    if (left <= 0) return gap.remove();
    if (left > MORE) {
      const more = () => grow(next + MORE);
      append(gap, [element("button", { type: "button", onclick: more }, `show ${MORE} more`)]);
    }
    const all = `show the ${count(left)} messages in between`;
    append(gap, [element("button", { type: "button", onclick: () => grow(end) }, all)]);
  };
  append(made, [turns.slice(0, FIRST).map(messageOf), gap, turns.slice(end).map(messageOf)]);
  draw();
  return made;
}

/** Returns the messages with the results of their calls and their step rewards. */
export function turnsOf(record) {
  const messages = record.messages ?? [];
  const numPrompt = record.num_prompt_messages ?? 0;
  const rewards = record.step_rewards ?? [];
  const turns = [];
  let numTurns = 0;
  let open = new Map();
  messages.forEach((message, number) => {
    const isPrompt = number < numPrompt;
    if (message.role === "tool" && open.has(message.tool_call_id)) {
      open.get(message.tool_call_id).result = message;
      open.delete(message.tool_call_id);
      return;
    }
    const turn = { message, number, isPrompt, calls: [], stepReward: null };
    if (message.role === "assistant") {
      open = new Map();
      turn.calls = (message.tool_calls ?? []).map((call) => ({ call, result: null }));
      for (const each of turn.calls) if (!open.has(each.call.id)) open.set(each.call.id, each);
      if (!isPrompt) turn.stepReward = rewards[numTurns++] ?? null;
    } else if (message.role !== "tool") {
      open = new Map();
    }
    turns.push(turn);
  });
  return turns;
}

/** Returns the CSS class for a role; unknown roles have none of their own. */
export function lookOf(role) {
  return KNOWN_ROLES.has(role) ? role : "other";
}

/** Returns one message as an article. */
export function messageOf(turn) {
  const { message, number, isPrompt } = turn;
  const role = String(message.role);
  const head = element(
    "header",
    {},
    element("span", { class: "role" }, role),
    message.name ? name(message.name) : null,
    isPrompt ? element("span", { class: "quiet" }, "prompt") : null,
    turn.stepReward === null ? null : stepReward(turn.stepReward),
    element("span", { class: "number quiet" }, `#${number + 1}`),
  );
  const made = element("article", {
    class: `message ${lookOf(role)}${isPrompt ? " prompt" : ""}`,
    "aria-label": `message ${number + 1}, ${role}`,
  });
  append(made, [head, reasoning(message.reasoning), content(message)]);
  append(made, turn.calls.map(callOf));
  return made;
}

function stepReward(reward) {
  return element("span", { class: "badge" }, `step reward ${decimal(reward)}`);
}

function reasoning(text) {
  if (!text) return null;
  const title = `reasoning, ${count(String(text).length)} characters`;
  return fold(title, () => block(text), { class: "reasoning" });
}

function content(message) {
  const made = [];
  if (Array.isArray(message.content)) made.push(...message.content.map(part));
  else if (message.content) made.push(block(message.content));
  if (message.refusal) {
    made.push(element("p", { class: "label" }, "refused"), block(message.refusal));
  }
  const isEmpty = !made.length && !message.reasoning && !(message.tool_calls ?? []).length;
  return isEmpty ? element("p", { class: "quiet" }, "(empty)") : made;
}

function part(found) {
  if (typeof found?.text === "string") return block(found.text);
  const image = found?.image_url;
  const source = typeof image === "string" ? image : image?.url;
  if (typeof source === "string" && IMAGE.test(source)) {
    return element("img", { src: source, alt: "image in the message", decoding: "async" });
  }
  const kind = typeof found?.type === "string" ? found.type : "part";
  if (typeof source === "string" && !source.startsWith("data:")) {
    return element("div", { class: "part" }, `${kind}, not fetched: `, name(source));
  }
  const json = () => block(JSON.stringify(found, null, 2), { class: "text json" });
  return fold(`${kind}, shown as JSON`, json, { class: "part" });
}

function callOf({ call, result }) {
  const written = call.function?.arguments ?? "";
  const head = element("div", { class: "call-name" }, "calls ", name(call.function?.name ?? ""));
  const made = element("section", { class: "call", "aria-label": "tool call" }, head);
  append(made, [argumentsOf(written)]);
  if (result) {
    append(made, [element("p", { class: "label" }, "result"), content(result)]);
  } else {
    append(made, [element("p", { class: "quiet" }, "no result on record")]);
  }
  return made;
}

function argumentsOf(written) {
  let found;
  try {
    found = JSON.parse(written);
  } catch {
    return [element("p", { class: "label bad" }, "arguments that are not JSON"), block(written)];
  }
  const names =
    found && typeof found === "object" && !Array.isArray(found) ? Object.keys(found) : [];
  if (!names.length || names.length > MAX_ARGUMENTS) return block(written);
  const list = element("dl", { class: "facts arguments" });
  for (const title of names) {
    const given = found[title];
    const shown = typeof given === "string" ? given : JSON.stringify(given, null, 2);
    append(list, [
      element("div", {}, element("dt", {}, name(title)), element("dd", {}, block(shown))),
    ]);
  }
  // Shows what JSON.parse drops, such as a duplicate key.
  const asWritten = fold("as written", () => block(written, { class: "text json" }));
  return JSON.stringify(found) === compact(written) ? list : [list, asWritten];
}

/** Removes the whitespace between values of JSON. */
function compact(written) {
  return written.replace(/("(?:[^"\\]|\\.)*")|\s+/g, (_, text) => text ?? "");
}

/** Returns a message as one text, to compare it with another. */
export function wordsOf(turn) {
  const { message } = turn;
  const texts = [];
  if (message.reasoning) texts.push(`reasoning: ${message.reasoning}`);
  if (Array.isArray(message.content)) {
    for (const found of message.content) {
      texts.push(typeof found?.text === "string" ? found.text : `[${found?.type ?? "part"}]`);
    }
  } else if (message.content) {
    texts.push(message.content);
  }
  if (message.refusal) texts.push(`refused: ${message.refusal}`);
  for (const { call, result } of turn.calls) {
    texts.push(`calls ${call.function?.name}(${call.function?.arguments})`);
    if (result) texts.push(`result: ${wordsOf({ message: result, calls: [] })}`);
  }
  return texts.join("\n");
}

/** Appends a text with some pieces marked. */
export function appendMarked(parent, pieces) {
  for (const { text, isMarked } of pieces) {
    if (!isMarked) {
      appendText(parent, text);
    } else {
      append(parent, [element("mark", {}, text)]);
    }
  }
}
