// The tables of the pipeline: how far each is behind the log, what it holds, and what was trimmed before it was read.

import { isAborted } from "../core/api.js";
import { nowMs, nowUs } from "../core/clock.js";
import { ask, notice } from "../core/dialog.js";
import { el, show } from "../core/dom.js";
import { oneAtATime } from "../core/latest_run.js";
import { count, counted, duration, instant, microseconds, rate, utc, visible } from "../core/text.js";
import { nowNote } from "./listing.js";
import { refreshWhileShown } from "./refresh.js";

const REFRESH_MS = 3000;

export class TablesView {
  #api;

  constructor(api, who, element) {
    this.#api = api;
    this.canPause = who.role === "operator" && who.has_lake;
    this.element = element;
    this.body = el("div", {}, el("p", { class: "hint" }, "Loading …"));
    this.gaps = new Gaps();
    show(element, el("div", { class: "listing-head" }, el("h2", {}, "Tables")), nowNote(), this.body, this.gaps.element);
    this.load = oneAtATime(() => this.#load());
    this.setShown = refreshWhileShown(this.load, REFRESH_MS);
  }

  async #load() {
    try {
      this.#draw(await this.#api.get("pipeline"));
    } catch (error) {
      if (!isAborted(error)) show(this.body, el("p", { class: "failure" }, error.message));
    }
  }

  /** Whether it is paused, and the button that changes it. */
  #pause(found) {
    const { paused } = found;
    const words = paused && el("p", { class: "warning", role: "status" }, `Paused by ${visible(paused.by) || "somebody"}`, paused.since && [" since ", moment(paused.since)], ": the tables stay as they are.");
    const button = this.canPause && el("button", { type: "button", onclick: () => (paused ? this.#change("go-on", "The pipeline goes on.") : this.#askToPause()) }, paused ? "Go on" : "Pause the pipeline");
    return (words || button) && el("div", { class: "pipeline-pause" }, words, button);
  }

  async #askToPause() {
    const isSure = await ask({
      title: "Pause the pipeline?",
      effects: ["From its next batch on it applies nothing, also after a restart, until somebody lets it go on.", "The server keeps what it has not read, up to store.unread_bytes_max of the log; beyond that there will be a gap."],
      action: "Pause",
    });
    if (isSure) await this.#change("pause", "The pipeline is paused from its next batch on.");
  }

  async #change(verb, words) {
    try {
      await this.#api.post(`pipeline/${verb}`, undefined);
      notice(words);
    } catch (error) {
      if (!isAborted(error)) notice(`Not done: ${error.message}`, true);
    }
    this.load();
  }

  #draw(found) {
    this.gaps.draw(found.written ? (found.gaps ?? []) : []);
    if (!found.written) {
      show(this.body, el("p", { class: "hint" }, "No pipeline has written tables yet. ", el("code", {}, "ember up"), " runs one beside the server; ", el("code", {}, "http.lake"), " names its directory."));
      return;
    }
    const ageMs = nowMs() - microseconds(found.written) / 1000;
    const tables = new Map((found.tables ?? []).map((table) => [table.name, table]));
    const jobs = new Set(found.jobs.map((job) => job.name));
    const others = [...tables.values()].filter((table) => !jobs.has(table.name) && table.name !== "gaps");
    const worst = found.jobs.reduce((most, job) => Math.max(most, job.lag ?? 0), 0);
    show(
      this.body,
      el("p", { class: "explanation" }, `The pipeline is ${visible(found.state ?? "unknown")}, last heard of ${duration(ageMs)} ago. `,
        worst ? `The furthest behind is ${counted(worst, "record")} behind the log.` : "Every table has all of the log."),
      this.#pause(found),
      found.tables ? null : el("p", { class: "hint" }, "Rows and gaps are not known: the server reads them if the lake is a directory and the extra ", el("code", {}, "sql"), " is installed."),
      el("div", { class: "cards" }, found.jobs.map((job) => card(job, worst, tables.get(job.name))), others.map(otherCard)),
    );
  }
}

const GAP_HEADS = ["Job", "From offset", "Through offset", "Known again from", "Noticed", "Why"];

/** The gaps. The element stays from one answer to the next: it can be scrolled and focused. */
class Gaps {
  constructor() {
    this.body = el("tbody");
    this.element = el("section", { class: "drops", hidden: true }, el("h3", {}, "Gaps"),
      el("p", { class: "explanation" }, "Records that were trimmed before a job had read them, the newest first."),
      el("div", { class: "table-frame", tabindex: "0", role: "region", "aria-label": "Gaps, table" },
        el("table", {}, el("thead", {}, el("tr", {}, GAP_HEADS.map((name) => el("th", { scope: "col", class: alignment(name) }, name)))), this.body)));
  }

  draw(gaps) {
    this.element.hidden = gaps.length === 0;
    show(this.body, gaps.map((gap) => {
      const why = visible(gap.why ?? "");
      const cells = [visible(gap.job), count(gap.from_offset), count(gap.to_offset), moment(gap.to_timestamp), moment(gap.noticed), why];
      return el("tr", {}, cells.map((cell, place) => el("td", { "data-name": GAP_HEADS[place], class: alignment(GAP_HEADS[place]), title: cell === why ? why : null }, cell)));
    }));
  }
}

function alignment(name) {
  return name.endsWith("offset") ? "number" : null;
}

function moment(text) {
  const us = microseconds(text);
  return Number.isNaN(us) ? "–" : el("span", { title: utc(us) }, instant(us, nowUs()));
}

function row(name, value) {
  return [el("dt", {}, name), el("dd", {}, value)];
}

/** What the server has read of a table; nothing if it cannot. */
function holds(table) {
  if (!table) return [];
  return [row("rows", table.rows === undefined ? "unknown" : count(table.rows)), row("last commit", table.committed ? moment(table.committed) : "unknown")];
}

/** A table that a job fills beside its own: it has no lag of its own. */
function otherCard(table) {
  return el("section", { class: "card" }, el("h3", {}, visible(table.name)), el("dl", {}, holds(table)));
}

function card(job, worst, table) {
  const bar = el("div", { class: "lag-bar", role: "img", "aria-label": `${count(job.lag ?? 0)} records behind` }, el("i"));
  bar.firstChild.style.width = `${worst ? Math.max(1, ((job.lag ?? 0) / worst) * 100) : 0}%`;
  return el(
    "section",
    { class: "card" },
    el("h3", {}, visible(job.name)),
    el("p", { class: "big" }, job.lag === null || job.lag === undefined ? "unknown" : job.lag === 0 ? "up to date" : `${counted(job.lag, "record")} behind`),
    bar,
    el("dl", {}, holds(table), row("records applied", count(job.records)),
      row("records a second", rate(job.rate)), job.offset ? row("offset", count(job.offset)) : []),
  );
}
