// A box for SQL over the history: rows, a chart of the numbers in them, and their export.

import { el, show } from "../core/dom.js";
import { plot } from "../core/plot.js";
import { counted, microseconds, middleCut, visible } from "../core/text.js";
import { writeCsv } from "../topic/csv.js";
import { save } from "../topic/transfer.js";

const SHOWN_MAX = 500;
const SERIES_MAX = 5;
const EXAMPLES = [
  ["Newest messages", "select timestamp, topic, decode(payload) as value, client_id\nfrom messages order by \"offset\" desc limit 100"],
  ["Messages a minute", "select time_bucket(interval 1 minute, timestamp) as minute, count(*) as messages\nfrom messages group by minute order by minute"],
  ["Topics with most messages", "select topic, count(*) as messages, max(timestamp) as newest\nfrom messages group by topic order by messages desc limit 20"],
  ["Retained 15 minutes ago", "select topic, decode(payload) as value, valid_from\nfrom retained_as_of('15m') order by topic"],
  ["What clients did", "select * from clients order by timestamp desc limit 100"],
];

export class SqlView {
  #api;
  #running = null;
  #rows = [];

  constructor(api, element) {
    this.#api = api;
    this.text = el("textarea", { rows: "6", spellcheck: "false", "aria-label": "Query", maxlength: "100000" });
    this.text.value = EXAMPLES[0][1];
    this.text.addEventListener("keydown", (event) => {
      if (event.key === "Enter" && (event.ctrlKey || event.metaKey) && !this.#running) this.#run();
    });
    const examples = el("select", { "aria-label": "Example" }, EXAMPLES.map(([name], place) => el("option", { value: place }, name)));
    examples.addEventListener("change", () => {
      this.text.value = EXAMPLES[Number(examples.value)][1];
    });
    this.run = el("button", { type: "button", class: "primary", onclick: () => (this.#running ? this.#running.abort() : this.#run()) }, "Run");
    this.summary = el("p", { class: "explanation", role: "status" }, "Tables: messages, retained, retained_as_of('15m'), clients, and those of the lake as lake.NAME. A query runs in a process of its own.");
    this.result = el("div", { class: "sql-result" });
    show(element, el("div", { class: "listing-head" }, el("h2", {}, "SQL"), examples), this.text,
      el("div", { class: "buttons sql-buttons" }, this.run, el("span", { class: "hint" }, "Ctrl Enter")), this.summary, this.result);
  }

  setShown() {}

  async #run() {
    const running = new AbortController();
    this.#running = running;
    this.run.textContent = "Cancel";
    show(this.summary, "Running …");
    try {
      const found = await this.#api.post("sql", { sql: this.text.value }, running.signal);
      this.#rows = found.rows;
      this.#draw(found);
    } catch (error) {
      show(this.summary, running.signal.aborted ? "Cancelled." : el("span", { class: "failure" }, visible(error.message)));
    } finally {
      this.#running = null;
      this.run.textContent = "Run";
    }
  }

  #draw({ rows, is_cut, seconds }) {
    show(this.summary, `${counted(rows.length, "row")}${is_cut ? ", and there are more" : ""}, in ${seconds.toFixed(1)} s.`);
    if (!rows.length) {
      show(this.result);
      return;
    }
    const names = Object.keys(rows[0]);
    const exported = (format) => {
      const isCsv = format === "csv";
      const text = isCsv ? writeCsv(this.#rows.map(flat), names) : `${this.#rows.map((row) => JSON.stringify(row)).join("\n")}\n`;
      save(new Blob([text]), `query.${isCsv ? "csv" : "ndjson"}`);
    };
    show(
      this.result,
      chart(rows, names),
      el("div", { class: "buttons" }, el("span", { class: "hint" }, "Export"), ["csv", "json"].map((one) => el("button", { type: "button", class: "quiet small", onclick: () => exported(one) }, one.toUpperCase()))),
      el("div", { class: "table-frame", tabindex: "0", role: "region", "aria-label": "Rows" }, el("table", {},
        el("thead", {}, el("tr", {}, names.map((name) => el("th", { scope: "col", class: typeof rows[0][name] === "number" ? "number" : null }, visible(name))))),
        el("tbody", {}, rows.slice(0, SHOWN_MAX).map((row) => el("tr", {}, names.map((name) => cell(row[name], name))))))),
      rows.length > SHOWN_MAX && el("p", { class: "hint" }, `The first ${SHOWN_MAX} rows are shown; an export has all.`),
    );
  }
}

function cell(value, name) {
  const isNumber = typeof value === "number";
  return el("td", { class: isNumber ? "number" : null, "data-name": visible(name) }, value === null ? el("i", { class: "hint" }, "null") : el("bdi", {}, middleCut(visible(textOf(value)), 120)));
}

function textOf(value) {
  return value !== null && typeof value === "object" ? JSON.stringify(value) : String(value);
}

function flat(row) {
  return Object.fromEntries(Object.entries(row).map(([name, value]) => [name, value === null ? "" : textOf(value)]));
}

/** The numbers over the first column that holds instants; nothing without one. */
function chart(rows, names) {
  const time = names.find((name) => !Number.isNaN(instantOf(rows[0][name])));
  const numbers = names.filter((name) => typeof rows[0][name] === "number").slice(0, SERIES_MAX);
  if (time === undefined || !numbers.length || rows.length < 3) return null;
  const series = numbers.map((name, place) => ({
    name: visible(name),
    className: `series-${place}`,
    points: rows.filter((row) => typeof row[name] === "number" && !Number.isNaN(instantOf(row[time]))).map((row) => [instantOf(row[time]), row[name]]).sort((a, b) => a[0] - b[0]),
  }));
  return el("div", { class: "card" }, el("p", { class: "hint" }, series.map((one, place) => el("span", { class: `legend series-${place}` }, one.name))), plot({ series, label: "Chart of the rows", height: 140 }));
}

function instantOf(value) {
  return typeof value === "string" ? microseconds(value.replace(" ", "T").replace(/\+00:00$/, "Z")) : NaN;
}
