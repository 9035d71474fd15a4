"use strict";
// Draws the charts and the tables of tasks. Texts are set as text, never as markup.
(() => {
  const read = (id) => JSON.parse(document.getElementById(id).textContent);
  const figures = read("figures");
  const tasks = read("tasks");
  const HEIGHT = 320; // of a chart, in pixels

  function element(tag, properties = {}, ...children) {
    const made = document.createElement(tag);
    for (const [name, value] of Object.entries(properties)) {
      if (name in made) made[name] = value;
      else made.setAttribute(name, value);
    }
    made.append(...children);
    return made;
  }

  // ---- charts

  const colour = (variable, style) => style.getPropertyValue(variable.slice("var(".length, -1)).trim();

  // Only in colour attributes: a label may look like a colour.
  function coloured(value, style) {
    if (Array.isArray(value)) return value.map((item) => coloured(item, style));
    if (value !== null && typeof value === "object") {
      return Object.fromEntries(Object.entries(value).map(([key, own]) => [key, key.endsWith("color") ? colour(own, style) : coloured(own, style)]));
    }
    return value;
  }

  function draw(plot) {
    const style = getComputedStyle(document.documentElement);
    const { data, layout } = coloured(figures[plot.dataset.chart], style);
    const lines = { gridcolor: style.getPropertyValue("--line"), zerolinecolor: style.getPropertyValue("--line") };
    const whole = {
      height: HEIGHT,
      margin: { l: 50, r: 15, t: 15, b: 45 },
      legend: { orientation: "h", x: 0, y: 1.02, yanchor: "bottom" },
      paper_bgcolor: "rgba(0,0,0,0)",
      plot_bgcolor: "rgba(0,0,0,0)",
      font: { family: getComputedStyle(document.body).fontFamily, size: 13, color: style.getPropertyValue("--text") },
      hoverlabel: { namelength: 30 },
      dragmode: false,
      ...layout,
      xaxis: { ...lines, ...layout.xaxis },
      yaxis: { ...lines, ...layout.yaxis },
    };
    plot.dataset.drawn = "yes";
    return Plotly.react(plot, data, whole, { displayModeBar: false, responsive: true, showTips: false });
  }

  const plots = [...document.querySelectorAll("[data-chart]")];
  const observer = new IntersectionObserver(
    (seen) => {
      for (const { target, isIntersecting } of seen) {
        if (!isIntersecting) continue;
        observer.unobserve(target);
        draw(target);
      }
    },
    { rootMargin: "400px" },
  );
  for (const plot of plots) {
    // Its space is reserved, so that nothing moves when it is drawn.
    plot.style.height = `${figures[plot.dataset.chart].layout.height ?? HEIGHT}px`;
    observer.observe(plot);
  }
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
    for (const plot of plots) if (plot.dataset.drawn) draw(plot);
  });

  // In print everything is expanded and drawn; afterwards the page is restored.
  let opened = [];
  addEventListener("beforeprint", () => {
    opened = [...document.querySelectorAll("details:not([open])")];
    for (const details of opened) details.open = true;
    for (const plot of plots) if (!plot.dataset.drawn) draw(plot);
  });
  addEventListener("afterprint", () => {
    for (const details of opened) details.open = false;
  });

  // ---- pages of rows

  function pager(what, size, show) {
    const [first, before, after, last] = ["First", "Previous", "Next", "Last"].map((text) => element("button", { type: "button", textContent: text }));
    const status = element("span", { role: "status", className: "note" });
    let page = 0;
    let rows = [];
    function turn(to) {
      const end = Math.max(0, Math.ceil(rows.length / size) - 1);
      page = Math.min(Math.max(to, 0), end);
      const start = page * size;
      const shown = rows.slice(start, start + size);
      first.disabled = before.disabled = page === 0;
      last.disabled = after.disabled = page === end;
      for (const button of [first, before, after, last]) button.hidden = end === 0;
      // A focused button that becomes disabled would swallow keys.
      if (bar.contains(document.activeElement) && document.activeElement.disabled) (page ? before : after).focus();
      status.textContent = rows.length
        ? `${(start + 1).toLocaleString("en")} to ${(start + shown.length).toLocaleString("en")} of ${rows.length.toLocaleString("en")} ${what}`
        : `no ${what}`;
      show(shown);
    }
    first.addEventListener("click", () => turn(0));
    before.addEventListener("click", () => turn(page - 1));
    after.addEventListener("click", () => turn(page + 1));
    last.addEventListener("click", () => turn(Infinity));
    const bar = element("div", { className: "controls" }, first, before, after, last, status);
    return { bar, fill: (given) => { rows = given; turn(0); } };
  }

  function scrolling(label, table) {
    return element("div", { className: "scroll", role: "region", tabIndex: 0, "aria-label": label }, table);
  }

  const short = (value) => (Number.isInteger(value) ? String(value) : String(Number(value.toPrecision(3))));
  const three = (value) => (value === null ? "–" : value.toFixed(3));

  // ---- which tasks

  const FILTERS = {
    "all tasks": () => true,
    "never passed": (data, row) => data.passed[row] === 0 && data.scored[row] > 0,
    "flaky": (data, row) => data.passed[row] > 0 && data.passed[row] < data.scored[row],
    "always passed": (data, row) => data.scored[row] > 0 && data.passed[row] === data.scored[row],
    "with unscored attempts": (data, row) => data.unscored[row] > 0,
  };

  function filtering(changed) {
    const select = element("select", {}, ...Object.keys(FILTERS).map((name) => element("option", { textContent: name })));
    select.addEventListener("change", () => changed());
    return {
      label: element("label", {}, "Show", select),
      rows: (data) => data.id.map((_, row) => row).filter((row) => FILTERS[select.value](data, row)),
    };
  }

  // ---- heat map

  function heat(place, data) {
    const columns = Math.max(0, ...data.attempts.map((strip) => strip.length));
    const several = data.environments.length > 1;
    const body = element("tbody");
    const heads = ["task", ...(several ? ["environment"] : [])].map((text) => element("th", { scope: "col", className: "text", textContent: text }));
    for (let number = 0; number < columns; number++) heads.push(element("th", { scope: "col", textContent: String(number) }));
    const table = element(
      "table",
      {},
      element("caption", { textContent: "Reward of each attempt, by its number" }),
      element("thead", {}, element("tr", {}, ...heads)),
      body,
    );

    function square(reward, [low, high]) {
      if (reward === null || reward === undefined) return element("td", {}, element("span", { className: "hidden", textContent: "no record" }));
      if (reward === "x") return element("td", { className: "failed", title: "no score" }, "×", element("span", { className: "hidden", textContent: " no score" }));
      const step = high > low ? Math.round((10 * (reward - low)) / (high - low)) : 5;
      return element("td", { className: `h${step}`, textContent: short(reward) });
    }

    const { bar, fill } = pager("tasks", 30, (rows) => {
      body.replaceChildren(
        ...rows.map((row) => {
          const cells = [element("th", { scope: "row", textContent: data.id[row] })];
          if (several) cells.push(element("td", { className: "text", textContent: data.environments[data.env[row]] }));
          for (let number = 0; number < columns; number++) cells.push(square(data.attempts[row][number], data.ranges[data.env[row]]));
          return element("tr", {}, ...cells);
        }),
      );
    });
    const filter = filtering(() => fill(filter.rows(data)));
    place.append(element("div", { className: "controls" }, filter.label), bar, scrolling("Attempts of each task", table));
    fill(filter.rows(data));
  }

  // ---- table of tasks

  function compared(one, other) {
    if (typeof one === "string") return one < other ? -1 : one > other ? 1 : 0;
    return one - other;
  }

  function searchable(place, data) {
    const several = data.environments.length > 1;
    const columns = [
      ["task", (row) => data.id[row], "text"],
      ...(several ? [["environment", (row) => data.environments[data.env[row]], "text"]] : []),
      ["scored", (row) => data.scored[row]],
      ["unscored", (row) => data.unscored[row]],
      ["passed", (row) => data.passed[row]],
      ["mean reward", (row) => data.mean[row], three],
      ["min", (row) => data.min[row], three],
      ["max", (row) => data.max[row], three],
      ["most frequent answer", (row) => data.answer[row], "text"],
    ];
    const texts = data.id.map((_, row) => `${data.id[row]}\n${data.answer[row]}\n${data.environments[data.env[row]]}`.toLowerCase());
    let sorted = { column: columns.findIndex(([name]) => name === "mean reward"), up: true };

    const search = element("input", { type: "search", size: 30, placeholder: "task, answer, environment" });
    const filter = filtering(() => update());
    const body = element("tbody");
    const heads = columns.map(([name, , kind], number) => {
      const button = element("button", { type: "button", textContent: name });
      button.addEventListener("click", () => {
        sorted = { column: number, up: sorted.column === number ? !sorted.up : true };
        update();
      });
      return element("th", { scope: "col", className: kind === "text" ? "text" : "number" }, button);
    });
    const { bar, fill } = pager("tasks", 50, (rows) => {
      body.replaceChildren(
        ...rows.map((row) =>
          element("tr", {}, ...columns.map(([, value, kind], number) => {
            const found = value(row);
            if (kind === "text") return element(number ? "td" : "th", { className: "text", ...(number ? {} : { scope: "row" }), textContent: found || "–" });
            const text = kind ? kind(found) : found === null ? "–" : found.toLocaleString("en");
            return element("td", { className: "number", textContent: text });
          })),
        ),
      );
    });

    function update() {
      const wanted = search.value.trim().toLowerCase();
      const value = columns[sorted.column][1];
      const sign = sorted.up ? 1 : -1;
      const rows = filter.rows(data).filter((row) => texts[row].includes(wanted));
      // Unknown values come first in ascending order and last in descending order.
      rows.sort((one, other) => {
        const [a, b] = [value(one), value(other)];
        if (a === null || b === null) return sign * ((a === null ? 0 : 1) - (b === null ? 0 : 1)) || one - other;
        return sign * compared(a, b) || one - other;
      });
      heads.forEach((head, number) => {
        if (number === sorted.column) head.setAttribute("aria-sort", sorted.up ? "ascending" : "descending");
        else head.removeAttribute("aria-sort");
      });
      fill(rows);
    }

    search.addEventListener("input", update);
    const controls = element("div", { className: "controls" }, element("label", {}, "Search", search), filter.label);
    const table = element("table", {}, element("caption", { textContent: "Tasks" }), element("thead", {}, element("tr", {}, ...heads)), body);
    place.classList.add("titled");
    place.append(controls, bar, scrolling("Tasks", table));
    update();
  }

  for (const place of document.querySelectorAll("[data-heat]")) heat(place, tasks[place.dataset.heat]);
  for (const place of document.querySelectorAll("[data-tasks]")) searchable(place, tasks[place.dataset.tasks]);
})();
