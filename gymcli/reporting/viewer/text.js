// Shows untrusted texts as text: control and reordering characters appear as their codes.

// Control characters except tab and newline, characters that reorder or hide text, lone surrogates.
const UNSAFE = new RegExp(
  "[\\u0000-\\u0008\\u000b\\u000c\\u000e-\\u001f\\u007f-\\u009f\\u061c\\u200b\\u200e\\u200f" +
    "\\u2028-\\u202e\\u2060-\\u206f\\ufeff\\ufff9-\\ufffb\\ud800-\\udfff\\u{e0000}-\\u{e007f}]" +
    "|\\r(?!\\n)",
  "gu",
);

const FOLD_AT = 6_000;
const SHOWN_OF_FOLDED = 3_000;
const MORE = 100_000;

function code(character) {
  const number = character.codePointAt(0);
  const digits = number.toString(16);
  if (number < 0x100) return `\\x${digits.padStart(2, "0")}`;
  return number < 0x10000 ? `\\u${digits.padStart(4, "0")}` : `\\U${digits.padStart(8, "0")}`;
}

/** Makes a text safe for a title or a label, where nothing can be marked. */
export function harmless(text) {
  return String(text).replace(UNSAFE, code);
}

/** Appends a text; invisible characters appear as their codes, marked. */
export function appendText(parent, text) {
  const words = String(text);
  let end = 0;
  for (const found of words.matchAll(UNSAFE)) {
    parent.append(words.slice(end, found.index));
    const mark = document.createElement("span");
    mark.className = "control";
    mark.textContent = code(found[0]);
    parent.append(mark);
    end = found.index + found[0].length;
  }
  parent.append(end ? words.slice(end) : words);
}

/** Makes an element; strings among the children are always text, never markup. */
export function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else if (name === "value") made.value = value;
    else if (name === "title" || name === "aria-label") made.setAttribute(name, harmless(value));
    else made.setAttribute(name, value === true ? "" : String(value));
  }
  append(made, children);
  return made;
}

/** Appends nodes and texts; accepts null and nested lists. */
export function append(parent, children) {
  for (const child of children.flat(Infinity)) {
    if (child === null || child === undefined || child === false) continue;
    if (child instanceof Node) parent.append(child);
    else appendText(parent, child);
  }
}

/** Returns an untrusted name (of a task, a tool) that cannot reorder the line around it. */
export function name(text, attributes = {}) {
  return element("bdi", { class: "name", ...attributes }, text);
}

/** Returns a folded part; its content is made when it is opened, since most never are. */
export function fold(title, make, attributes = {}) {
  const made = element("details", attributes, element("summary", {}, title));
  made.addEventListener("toggle", () => append(made, [make(made)]), { once: true });
  return made;
}

/** Returns a block of text; a long one is cut and grows by buttons, so that the page stays fast. */
export function block(given, attributes = {}) {
  const text = typeof given === "string" ? given : JSON.stringify(given);
  const made = element("div", { class: "text", dir: "auto", ...attributes });
  if (text.length <= FOLD_AT) {
    appendText(made, text);
    return made;
  }
  let shown = cut(text, SHOWN_OF_FOLDED);
  const tools = element("div", { class: "more" });
  const grow = (end) => {
    const piece = element("span", {}, text.slice(shown, end));
    tools.before(piece);
    shown = end;
    draw();
  };
  const draw = () => {
    const left = text.length - shown;
    tools.replaceChildren();
    if (!left) return;
    const all = element("button", { type: "button", onclick: () => grow(text.length) });
    append(all, [`show all ${count(left)} remaining characters`]);
    const more = element("button", {
      type: "button",
      onclick: () => grow(cut(text, shown + MORE)),
    });
    append(more, [`show ${count(MORE)} more`]);
    append(tools, left > MORE ? [more, all] : [all]);
  };
  append(made, [element("span", {}, text.slice(0, shown)), tools]);
  draw();
  return made;
}

/** Returns a position near `end` that splits no surrogate pair and, if possible, no line. */
function cut(text, end) {
  if (end >= text.length) return text.length;
  const line = text.lastIndexOf("\n", end);
  if (line > end - 500) return line + 1;
  const before = text.charCodeAt(end - 1);
  return before >= 0xd800 && before <= 0xdbff ? end - 1 : end;
}

/** Formats a whole number. */
export function count(number) {
  return number.toLocaleString("en-US");
}

/** Formats a number with three decimals, as `gym metrics` does. */
export function decimal(number, digits = 3) {
  if (number === null || number === undefined) return "–";
  return Number.isFinite(number) ? number.toFixed(digits) : String(number);
}

/** Formats a p-value, as `gym compare` does. */
export function pValue(number) {
  return number < 0.001 ? "< 0.001" : decimal(number);
}

/** Formats a duration. */
export function duration(seconds) {
  if (!seconds) return "–";
  if (seconds < 120) return `${seconds.toFixed(seconds < 10 ? 2 : 1)} s`;
  return `${Math.floor(seconds / 60)} min ${Math.round(seconds % 60)} s`;
}

/** Returns a JSON value: a string as text, anything else as indented JSON. */
export function value(found) {
  if (typeof found === "string") return block(found);
  if (typeof found === "number" && !Number.isInteger(found)) return element("span", {}, `${found}`);
  if (found === null || typeof found !== "object")
    return element("span", {}, JSON.stringify(found));
  const short = JSON.stringify(found);
  const shown = short.length < 50 ? short : JSON.stringify(found, null, 2);
  return block(shown, { class: "text json" });
}

/** Returns names with their values; names without a value are left out. */
export function facts(pairs) {
  const list = element("dl", { class: "facts" });
  for (const [title, found] of pairs) {
    if (found === null || found === undefined || found === "") continue;
    const node = found instanceof Node ? found : value(found);
    append(list, [element("div", {}, element("dt", {}, title), element("dd", {}, node))]);
  }
  return list;
}
