// The form above the list of rollouts: a filter expression, words, quick choices, the order.

import { COLUMNS } from "./rows.js";
import { append, count, element } from "./text.js";

const REWARDS = [
  ["", "any reward"],
  ["passed", "passed"],
  ["not-passed", "not passed"],
  ["zero", "reward 0"],
  ["between", "between 0 and 1"],
  ["mixed", "mixed task: 0 < avg < 1"],
];

const ANY = {
  only_env: "any environment",
  only_status: "any status",
  only_stop_reason: "ended by anything",
};

const STATUSES = new Map([["waiting", "waiting for a score"]]);

/** Makes the form; `change` is called with the choices, under their names in the address. */
export function form(change) {
  const where = element("input", {
    id: "where",
    type: "search",
    spellcheck: "false",
    autocomplete: "off",
    autocapitalize: "off",
    placeholder: "0 < avg < 1 and reward == 0",
    "aria-describedby": "where-error",
  });
  const error = element("p", { id: "where-error", class: "error", role: "alert", hidden: true });
  const containing = element("input", { id: "containing", type: "search", autocomplete: "off" });
  const choice = (id, title) => element("select", { id, "aria-label": title, "data-choice": id });
  const selects = {
    only_env: choice("only_env", "environment"),
    only_status: choice("only_status", "status"),
    only_reward: choice("only_reward", "reward"),
    only_stop_reason: choice("only_stop_reason", "why it ended"),
  };
  const sort = choice("sort", "sort by");
  for (const select of [...Object.values(selects), sort]) {
    select.addEventListener("change", () => change({ [select.dataset.choice]: select.value }));
  }
  append(
    selects.only_reward,
    REWARDS.map(([value, title]) => element("option", { value }, title)),
  );
  const orders = [element("option", { value: "" }, "in file order")];
  for (const column of COLUMNS) {
    const title = column.title.toLowerCase();
    orders.push(element("option", { value: `-${column.sort}` }, `${title}, descending`));
    orders.push(element("option", { value: column.sort }, `${title}, ascending`));
  }
  append(sort, orders);
  const submit = (event) => {
    event.preventDefault();
    change({ where: where.value.trim(), containing: containing.value });
  };
  const clear = () => {
    const empty = ["where", "containing", ...Object.keys(selects)].map((each) => [each, ""]);
    change(Object.fromEntries(empty));
    where.focus();
  };
  where.addEventListener("change", submit);
  containing.addEventListener("change", submit);
  const node = element(
    "form",
    { class: "filter", role: "search", onsubmit: submit },
    element(
      "div",
      { class: "field wide" },
      element("label", { for: "where" }, "Filter"),
      where,
      error,
    ),
    element(
      "div",
      { class: "field" },
      element("label", { for: "containing" }, "Text within"),
      containing,
    ),
    element("div", { class: "choices" }, Object.values(selects), sort),
    element("button", { type: "submit" }, "Apply"),
    element("button", { type: "button", onclick: clear }, "Clear"),
  );
  return {
    node,
    where,
    error,
    show(place) {
      for (const field of [where, containing]) {
        field.defaultValue = place[field.id] ?? "";
        if (document.activeElement !== field) field.value = field.defaultValue;
      }
      selects.only_reward.value = place.only_reward ?? "";
      for (const [id, select] of Object.entries(selects)) if (!select.length) fill(select, ANY[id]);
      sort.value = place.sort ?? "";
      if (sort.selectedIndex < 0) sort.value = "";
    },
    choices(found, place) {
      fill(selects.only_env, ANY.only_env, found.env, place.only_env);
      fill(selects.only_status, ANY.only_status, found.status, place.only_status, STATUSES);
      const reasons = found.stop_reason;
      fill(selects.only_stop_reason, ANY.only_stop_reason, reasons, place.only_stop_reason);
      selects.only_env.hidden = Object.keys(found.env ?? {}).length < 2 && !place.only_env;
    },
  };
}

/** Fills a select with the values that occur, each with its number of rollouts. */
function fill(select, any, counts = {}, chosen = "", titles = new Map()) {
  const values = Object.entries(counts);
  if (chosen && !Object.hasOwn(counts, chosen)) values.push([chosen, 0]);
  const shown = JSON.stringify([values, chosen]);
  if (select.dataset.shown === shown) return;
  select.dataset.shown = shown;
  const option = ([value, number]) =>
    element("option", { value }, `${titles.get(value) ?? value} (${count(number)})`);
  select.replaceChildren(element("option", { value: "" }, any), ...values.map(option));
  select.value = chosen;
}
