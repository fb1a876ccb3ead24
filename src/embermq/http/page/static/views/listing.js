// A list of the server as a table: loaded page by page, refreshed while it is shown, sorted by any column.

import { isAborted } from "../core/api.js";
import { el, show } from "../core/dom.js";
import { oneAtATime } from "../core/latest_run.js";
import { refreshWhileShown } from "./refresh.js";

const PAGE_ITEMS = 200;
const REFRESH_MS = 3000;

/** Shown while the past is: only the topics have one. */
export function nowNote() {
  return el("p", { class: "now-note" }, "This is of now. The slider moves the topics only.");
}

export class Listing {
  #api;
  #items = [];
  #next = null;
  #pages = 1;
  #error = null;
  #isLoaded = false;
  #sort = null;
  #wanted = "";

  /**
   * `what`: {path, title, explanation, nothing, columns, keyOf(item), summary(items), searchIn(item)}.
   * A column is {name, of(item) -> text or element, by(item) -> what it is sorted by, isNumber}.
   */
  constructor(api, element, what) {
    this.#api = api;
    this.element = element;
    this.what = what;
    this.load = oneAtATime(() => this.#load());
    this.setShown = refreshWhileShown(this.load, REFRESH_MS);
    this.body = el("tbody");
    this.summary = el("p", { class: "explanation", role: "status" });
    this.heads = what.columns.map((column, place) => this.#head(column, place));
    const search = el("input", { type: "search", placeholder: "Filter by name", "aria-label": `Filter ${what.title}`, spellcheck: "false" });
    search.addEventListener("input", () => {
      this.#wanted = search.value.trim().toLowerCase();
      this.#draw();
    });
    this.more = el("button", { type: "button", hidden: true, onclick: () => this.#more() }, "Load more");
    show(
      element,
      el("div", { class: "listing-head" }, el("h2", {}, what.title), search),
      nowNote(),
      this.summary,
      el("div", { class: "table-frame", tabindex: "0", role: "region", "aria-label": `${what.title}, table` },
        el("table", {}, el("thead", {}, el("tr", {}, this.heads)), this.body)),
      this.more,
    );
  }

  #head(column, place) {
    if (!column.by) return el("th", { scope: "col" }, column.name || el("span", { class: "hidden" }, "Actions"));
    const button = el("button", { type: "button", class: "quiet", onclick: () => this.#sortBy(place) }, column.name);
    return el("th", { scope: "col", class: column.isNumber ? "number" : null }, button);
  }

  #sortBy(place) {
    const isSame = this.#sort?.place === place;
    const isFirstDescending = Boolean(this.what.columns[place].isNumber);
    this.#sort = { place, isDescending: isSame ? !this.#sort.isDescending : isFirstDescending };
    this.heads.forEach((head, at) => {
      if (at === place) head.setAttribute("aria-sort", this.#sort.isDescending ? "descending" : "ascending");
      else head.removeAttribute("aria-sort");
    });
    this.#draw();
  }

  #more() {
    this.#pages += 1;
    this.load();
  }

  async #load() {
    try {
      const items = [];
      let next = null;
      for (let page = 0; page < this.#pages && (page === 0 || next); page += 1) {
        const answer = await this.#api.get(this.what.path, { limit: PAGE_ITEMS, cursor: next });
        items.push(...answer.items);
        next = answer.next ?? null;
      }
      this.#items = items;
      this.#next = next;
      this.#error = null;
      this.#isLoaded = true;
    } catch (error) {
      if (isAborted(error)) return;
      this.#error = error;
    }
    this.#draw();
  }

  #draw() {
    const { what } = this;
    this.more.hidden = this.#next === null;
    const shown = this.#sorted(this.#items.filter((item) => what.searchIn(item).toLowerCase().includes(this.#wanted)));
    if (this.#error) show(this.summary, el("span", { class: "failure" }, this.#error.message));
    else show(this.summary, this.#isLoaded ? what.summary(this.#items, this.#next !== null) : "Loading …");
    this.#rows(shown);
  }

  #sorted(items) {
    if (!this.#sort) return items;
    const { place, isDescending } = this.#sort;
    const { by } = this.what.columns[place];
    const sign = isDescending ? -1 : 1;
    return [...items].sort((a, b) => sign * (by(a) < by(b) ? -1 : by(a) > by(b) ? 1 : 0));
  }

  /** Rows of the same item keep their element, so that a focused button stays focused. */
  #rows(items) {
    const old = new Map([...this.body.children].map((row) => [row.dataset.key, row]));
    const rows = items.map((item) => {
      const key = this.what.keyOf(item);
      const row = old.get(key) ?? el("tr", { "data-key": key }, this.what.columns.map((column) => el("td", { class: column.isNumber ? "number" : null, "data-name": column.name })));
      this.what.columns.forEach((column, place) => {
        const shown = column.of(item);
        const cell = row.children[place];
        if (typeof shown !== "string") {
          if (!column.isKept || !cell.firstChild) show(cell, shown);
        } else if (cell.textContent !== shown) cell.textContent = shown;
      });
      return row;
    });
    const isSame = rows.length > 0 && rows.length === this.body.children.length && rows.every((row, place) => row === this.body.children[place]);
    if (!isSame) show(this.body, rows.length ? rows : el("tr", {}, el("td", { class: "hint", colspan: this.what.columns.length }, this.#isLoaded ? this.what.nothing : "")));
  }
}
