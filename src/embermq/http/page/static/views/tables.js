// The tables of the pipeline: how far each is behind the log.

import { isAborted } from "../core/api.js";
import { nowMs } from "../core/clock.js";
import { el, oneAtATime, show } from "../core/dom.js";
import { count, counted, duration, microseconds, rate, visible } from "../core/text.js";
import { nowNote } from "./listing.js";

const REFRESH_MS = 3000;

export class TablesView {
  #api;
  #timer = 0;

  constructor(api, element) {
    this.#api = api;
    this.element = element;
    this.body = el("div");
    show(element, el("div", { class: "listing-head" }, el("h2", {}, "Tables")), nowNote(), this.body);
    this.load = oneAtATime(() => this.#load());
  }

  setShown(isShown) {
    clearInterval(this.#timer);
    if (!isShown) return;
    this.load();
    this.#timer = setInterval(() => this.load(), REFRESH_MS);
  }

  async #load() {
    try {
      this.#draw(await this.#api.get("pipeline"));
    } catch (error) {
      if (!isAborted(error)) show(this.body, el("p", { class: "failure" }, error.message));
    }
  }

  #draw(found) {
    if (!found.written) {
      show(this.body, el("p", { class: "hint" }, "No pipeline has written tables yet. ", el("code", {}, "ember up"), " runs one beside the server; ", el("code", {}, "http.lake"), " names its directory."));
      return;
    }
    const ageMs = nowMs() - microseconds(found.written) / 1000;
    const worst = found.jobs.reduce((most, job) => Math.max(most, job.lag ?? 0), 0);
    show(
      this.body,
      el("p", { class: "explanation" }, `The pipeline is ${visible(found.state ?? "unknown")}, last heard of ${duration(ageMs)} ago. `,
        worst ? `The furthest behind is ${counted(worst, "record")} behind the log.` : "Every table has all of the log."),
      el("div", { class: "cards" }, found.jobs.map((job) => card(job, worst))),
    );
  }
}

function card(job, worst) {
  const bar = el("div", { class: "lag-bar", role: "img", "aria-label": `${count(job.lag ?? 0)} records behind` }, el("i"));
  bar.firstChild.style.width = `${worst ? Math.max(1, ((job.lag ?? 0) / worst) * 100) : 0}%`;
  const row = (name, value) => [el("dt", {}, name), el("dd", {}, value)];
  return el(
    "section",
    { class: "card" },
    el("h3", {}, visible(job.name)),
    el("p", { class: "big" }, job.lag === null || job.lag === undefined ? "unknown" : job.lag === 0 ? "up to date" : `${counted(job.lag, "record")} behind`),
    bar,
    el("dl", {}, row("records applied", count(job.records)),
      row("records a second", rate(job.rate)), job.offset ? row("offset", count(job.offset)) : []),
  );
}
