// The list of rollouts: filter, quick choices, sorting, pages; it follows a run that is growing.

import { go, isAt, listing } from "./address.js";
import { form } from "./form.js";
import { COLUMNS, headCell, moveRow, PAGE, pageLinks, rowLinks } from "./rows.js";
import { ask, Refused } from "./server.js";
import { summary } from "./summary.js";
import { append, count, element } from "./text.js";

/** Makes the page of rollouts. */
export async function listView(app) {
  const view = new List(app);
  await view.update(app.place, app.signal);
  return view;
}

class List {
  constructor(app) {
    this.app = app;
    this.title = "rollouts";
    this.summary = summary(app);
    this.form = form((given) => this.change(given));
    this.error = this.form.error;
    this.meaning = element("p", { class: "meaning", hidden: true });
    this.body = element("tbody");
    this.head = element("tr");
    this.pages = element("nav", { class: "pages", "aria-label": "Pages of rollouts" });
    this.total = element("p", { class: "total" });
    const table = element(
      "table",
      { class: "rollouts" },
      element("caption", { class: "unseen" }, "Rollouts"),
      element("thead", {}, this.head),
      this.body,
    );
    const scroll = element("div", { class: "scroll" }, table);
    this.node = element("div", { class: "list" });
    append(this.node, [this.summary.node, this.form.node, this.meaning]);
    append(this.node, [this.total, scroll, this.pages]);
    this.body.addEventListener("click", (event) => this.open(event));
    this.shown = "";
    this.found = null;
    /** The version of the run that the rows belong to. */
    this.version = null;
  }

  /** Opens the first page of the list with other choices. */
  change(given) {
    go({ ...listing(this.place), offset: "", ...given });
  }

  async update(place, signal) {
    this.place = place;
    this.form.show(place);
    this.summary.update(this.run);
    this.node.setAttribute("aria-busy", "true");
    try {
      await this.load(signal);
    } finally {
      this.node.removeAttribute("aria-busy");
    }
  }

  get run() {
    return Number(this.place.run ?? 0);
  }

  /** Loads the rows again; unchanged rows and the focus are not touched. */
  async load(signal) {
    const asked = { ...listing(this.place), limit: PAGE };
    try {
      const found = await ask("list", asked, signal);
      this.version = found.version;
      this.draw(found);
      this.fail("");
    } catch (error) {
      if (!(error instanceof Refused)) throw error;
      this.version = this.app.versions[this.run];
      this.fail(error.message);
    }
  }

  /** Loads again while the list is older than the run: the server pauses between long searches. */
  async refresh(signal) {
    this.summary.update(this.run);
    if (this.version !== this.app.versions[this.run]) await this.load(signal);
  }

  fail(message) {
    this.error.replaceChildren();
    append(this.error, [message]);
    this.error.hidden = !message;
    this.form.where.setAttribute("aria-invalid", String(Boolean(message)));
  }

  draw(found) {
    this.form.choices(found.choices, this.place);
    const { num_rows: all, num_matching: matching, offset } = found;
    const last = Math.min(offset + found.rows.length, matching);
    const range = found.rows.length ? `${count(offset + 1)} to ${count(last)} of ` : "";
    const whole = matching === all ? "" : ` (of ${count(all)})`;
    const text = `${range}${count(matching)} rollouts${whole}`;
    if (this.total.textContent !== text) {
      this.total.textContent = text;
      this.app.say(text);
    }
    this.meaning.hidden = found.expression === (this.place.where ?? "");
    this.meaning.replaceChildren();
    append(this.meaning, ["As a filter: ", element("code", {}, found.expression)]);
    const shown = JSON.stringify([found.rows, this.place]);
    this.found = found;
    if (shown === this.shown) return;
    this.shown = shown;
    this.drawHead(found);
    this.drawRows(found);
    const to = (start) => ({ ...listing(this.place), offset: start });
    this.pages.replaceChildren(...pageLinks(found, to));
  }

  columns(found) {
    const isOneEnvironment = Object.keys(found.choices.env ?? {}).length < 2;
    return COLUMNS.filter((column) => !(column.sort === "env" && isOneEnvironment));
  }

  drawHead(found) {
    const focused = this.head.contains(document.activeElement) && document.activeElement.id;
    const { sort = "" } = this.place;
    const heads = this.columns(found).map((column) => {
      const [up, down] = [column.sort, `-${column.sort}`];
      const next = sort === down ? up : sort === up ? "" : down;
      return headCell(column, sort, () => this.change({ sort: next }));
    });
    this.head.replaceChildren(...heads);
    if (focused) document.getElementById(focused)?.focus();
  }

  drawRows(found) {
    const key = (each) => each?.getAttribute("href");
    const active = document.activeElement;
    const focused = this.body.contains(active) ? key(active) : null;
    this.body.replaceChildren();
    for (const row of found.rows) {
      const cells = this.columns(found).map((column) =>
        element(
          "td",
          { class: column.class, "data-title": column.title },
          column.cell(row, this.place),
        ),
      );
      append(this.body, [element("tr", {}, cells)]);
    }
    if (!found.rows.length) {
      const text = found.num_rows ? "No rollouts match." : "No rollouts yet.";
      append(this.body, [element("tr", {}, element("td", { colspan: COLUMNS.length }, text))]);
    }
    const links = rowLinks(this.body);
    links.find((each) => focused && key(each) === focused)?.focus({ preventScroll: true });
    if (this.edge) links.at(this.edge === "last" ? -1 : 0)?.focus();
    this.edge = null;
  }

  /** Focuses the row of the rollout that was open last, when the list is shown again. */
  focus() {
    const { left } = this.app;
    this.app.left = null;
    const at = this.found?.rows.findIndex((row) => left && isAt(left, row)) ?? -1;
    rowLinks(this.body)[at]?.focus();
    return at >= 0;
  }

  open(event) {
    const isOwn = event.target.closest("a, button") || event.ctrlKey || event.metaKey;
    if (isOwn || getSelection()?.toString()) return;
    const opened = event.target.closest("tr")?.querySelector("a[data-row]");
    if (opened) location.hash = opened.getAttribute("href");
  }

  /** Moves between the rows; past the edge of a page, to the next page. */
  key(name) {
    const step = moveRow(rowLinks(this.body), name);
    if (step && this.found) {
      const offset = this.found.offset + step * PAGE;
      if (offset >= 0 && offset < this.found.num_matching) {
        this.edge = step > 0 ? "first" : "last";
        go({ ...listing(this.place), offset: offset || "" });
      }
    }
    return step !== false;
  }

  search() {
    this.form.where.focus();
    this.form.where.select();
  }
}
