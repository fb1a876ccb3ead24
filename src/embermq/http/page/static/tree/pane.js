// The pane with the tree: search, sorting, what is loaded, and what is said when there is nothing to show.

import { isAborted } from "../core/api.js";
import { byId, el, show } from "../core/dom.js";
import { oneAtATime } from "../core/latest_run.js";
import { change, isComparing, isLive, onChange, state } from "../core/state.js";
import { counted, instant, microseconds } from "../core/text.js";
import { nowMs, nowUs } from "../core/clock.js";
import { Branches } from "./branches.js";
import { LiveUpdates } from "./live_updates.js";
import { Rows } from "./rows.js";
import { countBelow, loadBranch, loadFound } from "./source.js";

const SEARCH_DELAY_MS = 250;
const FIRST_ROWS = 12;
const FIRST_BRANCHES_MAX = 4;
const reducedMotion = matchMedia("(prefers-reduced-motion: reduce)");

export class TreePane {
  #api;
  #counting = false;
  #searchTimer = 0;
  #revealed = null;
  #isBegun = false;
  #stateKey = "";

  constructor(api) {
    this.#api = api;
    this.branches = new Branches((node, cursor, signal) => this.#load(node, cursor, signal), () => this.#drawn());
    this.updates = new LiveUpdates(this.branches);
    this.rows = new Rows(byId("tree"), {
      rows: () => this.branches.rows(),
      open: (node) => this.branches.open(node),
      close: (node) => this.branches.close(node),
      loadMore: (node) => this.branches.loadMore(node),
      choose: (node) => change({ topic: node.topic }, { isStep: true }),
      context: (node) => this.#context(node),
      onVisible: (nodes) => this.#count(nodes),
    });
    this.reload = oneAtATime((signal) => this.#reload(signal));
    this.#controls();
    onChange((changed) => this.#changed(changed));
    this.#changed(new Set(["at", "from", "search"]));
  }

  #controls() {
    const search = byId("search");
    search.value = state.search;
    search.addEventListener("input", () => {
      clearTimeout(this.#searchTimer);
      this.#searchTimer = setTimeout(() => change({ search: search.value.trim() }), SEARCH_DELAY_MS);
    });
    search.addEventListener("keydown", (event) => {
      if (event.key === "ArrowDown") byId("tree").focus();
      else if (event.key === "Escape" && search.value) {
        search.value = "";
        change({ search: "" });
      } else return;
      event.preventDefault();
      event.stopPropagation();
    });
    byId("search-form").addEventListener("submit", (event) => {
      event.preventDefault();
      clearTimeout(this.#searchTimer);
      change({ search: search.value.trim() });
    });
    const box = byId("only-differences");
    box.addEventListener("change", () => change({ isOnlyDifferences: box.checked }));
    byId("sort").addEventListener("change", (event) => {
      this.branches.sort = event.target.value;
      this.branches.changed();
    });
  }

  async #load(node, cursor, signal) {
    if (state.search && node.parent === null) return await loadFound(this.#api, state.search, cursor, signal);
    const page = await loadBranch(this.#api, node, cursor, signal);
    if (page.begins) this.begins = microseconds(page.begins);
    return page;
  }

  #changed(changed) {
    if (changed.has("search")) {
      if (document.activeElement !== byId("search")) byId("search").value = state.search;
      this.branches.clear();
      byId("tree").scrollTop = 0;
    }
    if (changed.has("at") || changed.has("from") || changed.has("search") || changed.has("isOnlyDifferences")) {
      this.branches.isFlat = Boolean(state.search);
      this.branches.isLive = isLive() && !state.search;
      this.branches.isOnlyDifferences = isComparing() && state.isOnlyDifferences;
      this.reload.instead();
    }
    if (changed.has("topic")) {
      this.rows.draw();
      this.#reveal();
    }
  }

  async #reload(signal) {
    const isWhole = await this.branches.reload(signal);
    if (isWhole && !this.#isBegun && state.topic === null && !state.search) await this.#openFirst();
    this.#isBegun ||= isWhole;
    if (isWhole) await this.#reveal();
  }

  /** Open the branches above the selected topic, once: somebody may close them again. A search has no branches. */
  async #reveal() {
    const { topic } = state;
    if (topic === null || state.search || this.branches.root.children === null) return;
    if (this.#revealed === topic) return;
    this.#revealed = topic;
    const { generation } = this.branches;
    const node = await this.branches.reveal(topic).catch(() => null);
    // A reload cut it short before all branches were open, and reveals the topic when it is done.
    if (!node && generation !== this.branches.generation && this.#revealed === topic) this.#revealed = null;
    if (node && state.topic === topic) this.rows.activate(node);
  }

  /** A page that shows four closed branches says little: open the largest, and the largest in it, until values are there. */
  async #openFirst() {
    let branch = this.branches.root;
    for (let step = 0; step < FIRST_BRANCHES_MAX; step += 1) {
      const isEnough = this.branches.rows().length >= FIRST_ROWS && this.branches.rows().some((row) => row.message);
      const inner = (branch.children ?? []).filter((node) => node.hasChildren);
      if (isEnough || !inner.length) return;
      branch = inner.reduce((most, node) => ((node.topics ?? 0) > (most.topics ?? 0) ? node : most));
      await this.branches.open(branch);
    }
  }

  #context(node) {
    return {
      isSelected: node.topic === state.topic,
      isLive: isLive(),
      asOfMs: isLive() ? null : state.at / 1000,
      isFlashing: !reducedMotion.matches,
    };
  }

  /** Live messages; they change nothing while the past is shown. */
  take(messages, until, leftOut) {
    if (isLive() && !isComparing()) this.updates.take(messages, until, nowMs(), leftOut);
  }

  /** Once a second: ages grow, rates fall, and branches in which topics came or went are loaded again. */
  tick() {
    this.updates.passSecond();
    if (isLive() && !isComparing() && this.updates.takeStale()) this.reload();
    else this.rows.draw();
  }

  /** Ask for the counts that the server left out, of the rows that can be seen. */
  async #count(nodes) {
    if (this.#counting) return;
    const node = nodes.find((one) => one.hasChildren && one.topics === null && !one.isSeenOnly && !one.isCountFailed);
    if (!node) return;
    this.#counting = true;
    const { generation } = this.branches;
    try {
      const answer = await countBelow(this.#api, node, this.branches.signal);
      if (generation === this.branches.generation) {
        node.topics = answer.topics;
        node.difference = answer.change ?? node.difference;
      }
    } catch (error) {
      node.isCountFailed = !isAborted(error);
    } finally {
      this.#counting = false;
    }
    this.rows.draw();
  }

  #drawn() {
    this.rows.draw();
    const said = this.#stateText();
    const key = said?.textContent ?? "";
    // The same words are left alone: a screen reader would read them again, and a focused control would lose the focus.
    if (key !== this.#stateKey) show(byId("tree-state"), said);
    this.#stateKey = key;
    byId("only-differences").checked = state.isOnlyDifferences;
    byId("only-differences-label").hidden = !isComparing() || Boolean(state.search);
    byId("tree").hidden = this.branches.rows().length === 0;
  }

  #stateText() {
    const { root } = this.branches;
    if (root.error) return this.#failure(root.error);
    if (root.children === null) return el("p", { class: "hint" }, "Loading …");
    if (this.branches.rows().length === 0) return this.#nothing();
    if (isComparing()) return this.#comparison(root.children);
    return null;
  }

  #nothing() {
    if (isComparing() && this.branches.root.children.length) {
      return el("p", { class: "hint" }, "No retained topic differs between the two instants.");
    }
    if (state.search) return el("p", { class: "hint" }, "No retained topic matches the search.");
    if (isLive()) return el("p", { class: "hint" }, "Nothing is retained yet. Topics appear here as messages arrive.");
    return state.at < (this.begins ?? 0) ? this.#tooEarly() : el("p", { class: "hint" }, "Nothing was retained at this instant.");
  }

  #comparison(nodes) {
    const sum = { appeared: 0, changed: 0, vanished: 0 };
    for (const { difference } of nodes) for (const name of Object.keys(sum)) sum[name] += difference?.[name] ?? 0;
    if (state.search) return el("p", { class: "hint" }, "A search shows one instant; end it to compare.");
    return el(
      "p",
      { class: "summary" },
      el("span", { class: "appeared" }, `+ ${counted(sum.appeared, "topic")} appeared`),
      el("span", { class: "changed" }, `~ ${counted(sum.changed, "topic")} changed`),
      el("span", { class: "vanished" }, `− ${counted(sum.vanished, "topic")} vanished`),
    );
  }

  #tooEarly() {
    const begins = this.begins ?? this.logBegins?.() ?? null;
    if (begins === null) return el("p", { class: "failure" }, "The log does not reach back that far.");
    return el(
      "div",
      { class: "failure" },
      el("p", {}, `The log does not reach back that far: it begins at ${instant(begins, nowUs())}.`),
      el("button", { type: "button", onclick: () => change({ at: Math.ceil(begins), from: null }) }, "Go to its beginning"),
    );
  }

  #failure(error) {
    if (error.status === 410) return this.#tooEarly();
    if (error.status === 403) return el("p", { class: "failure" }, "You have no rights to see the topics.");
    return el("p", { class: "failure" }, `The topics cannot be shown: ${error.message}`);
  }
}
