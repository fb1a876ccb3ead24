// The branches that are loaded and open, and the rows that follow from them. A branch is loaded when it opens.

import { Node } from "./node.js";

export const PAGE_ROWS = 500;
/** How many pages of one branch are asked for again when the instant changes; the rest comes as one scrolls. */
const RELOADED_PAGES_MAX = 4;
const SEEN_MAX = 5000;
const AT_A_TIME_MAX = 4;

const SORTS = {
  name: null,
  rate: (a, b) => b.rate - a.rate,
  newest: (a, b) => newness(b) - newness(a),
  differences: (a, b) => b.differences - a.differences,
};

function newness(node) {
  return node.message ? Date.parse(node.message.timestamp) : (node.seen?.atMs ?? 0);
}

export class Branches {
  /**
   * `load(node, cursor, signal)` asks for one page of a branch; the root's node is `root`. `onChange` is called after
   * changes.
   */
  constructor(load, onChange) {
    this.load = load;
    this.onChange = onChange;
    this.sort = "name";
    this.isOnlyDifferences = false;
    /** Whether what is seen live and not retained is shown too. */
    this.isLive = true;
    /** Whether the rows are what a search found, each by its whole topic name. */
    this.isFlat = false;
    this.seenCount = 0;
    this.root = new Node(null, "", "");
    this.root.hasChildren = this.root.isOpen = true;
    this.generation = 0;
    this.#rows = null;
  }

  #rows;
  #opening = new AbortController();

  /** Ends what was asked for when branches were opened: `reload` asks for them, as of another instant. */
  get signal() {
    return this.#opening.signal;
  }

  /** Forget everything. */
  clear() {
    this.generation += 1;
    this.root.children = this.root.byLevel = null;
    this.root.next = this.root.error = null;
    this.root.isLoading = false;
    this.seenCount = 0;
    this.changed();
  }

  changed() {
    this.#rows = null;
    this.onChange();
  }

  /** All rows in order; a row is a node, or `{more: node}` for the rest of a branch. */
  rows() {
    if (this.#rows) return this.#rows;
    const rows = [];
    this.#gather(this.root, rows);
    this.#rows = rows;
    return rows;
  }

  #gather(branch, rows) {
    const shown = this.#ordered(branch).filter((node) => !(this.isOnlyDifferences && node.difference && !node.differences));
    for (const [place, node] of shown.entries()) {
      node.place = place + 1;
      node.siblings = branch.next === null ? shown.length : -1; // -1: more than are loaded
      rows.push(node);
      if (node.isOpen && node.children) this.#gather(node, rows);
    }
    if (branch.next !== null) rows.push({ more: branch });
  }

  #ordered(branch) {
    const children = branch.children ?? [];
    const compare = SORTS[this.sort];
    return compare ? [...children].sort(compare) : children;
  }

  async open(node) {
    node.isOpen = true;
    this.changed();
    if (node.children === null) await this.loadMore(node);
  }

  close(node) {
    node.isOpen = false;
    this.changed();
  }

  /** The first page of a branch, or the next. */
  async loadMore(node) {
    if (node.isLoading) return;
    node.isLoading = true;
    this.onChange();
    const generation = this.generation;
    try {
      const page = await this.load(node, node.next, this.signal);
      if (generation !== this.generation) return;
      this.#add(node, page);
      node.error = null;
    } catch (error) {
      if (generation !== this.generation || error.name === "AbortError") return;
      node.error = error;
    } finally {
      node.isLoading = false; // also if `reload` began meanwhile: it asks for the pages of what is open itself
    }
    this.changed();
  }

  #add(branch, page) {
    branch.children ??= [];
    branch.byLevel ??= new Map();
    for (const item of page.items) {
      let node = branch.byLevel.get(item.level);
      if (!node) {
        node = new Node(branch, item.level, item.topic);
        branch.byLevel.set(item.level, node);
        branch.children.push(node);
      } else if (node.seen) {
        this.#order(branch);
      }
      node.take(item);
    }
    branch.next = page.next ?? null;
  }

  #order(branch) {
    branch.children.sort((a, b) => (a.level < b.level ? -1 : 1));
  }

  /** Load all open branches again, those nearest the root first, and keep what is open. True when all are there. */
  async reload(signal) {
    this.generation += 1;
    this.#opening.abort();
    const opening = (this.#opening = new AbortController());
    signal.addEventListener("abort", () => opening.abort(), { once: true });
    const generation = this.generation;
    const waiting = [this.root];
    this.root.isLoading = true;
    this.onChange();
    const worker = async () => {
      for (let branch; generation === this.generation && (branch = waiting.shift()); ) {
        await this.#reloadBranch(branch, generation, signal);
        if (generation !== this.generation || signal.aborted) return;
        for (const node of branch.children ?? []) if (node.isOpen) waiting.push(node);
        this.changed();
      }
    };
    await worker();
    await Promise.all(Array.from({ length: AT_A_TIME_MAX }, worker));
    return generation === this.generation && !signal.aborted;
  }

  async #reloadBranch(branch, generation, signal) {
    const pages = Math.min(RELOADED_PAGES_MAX, Math.max(1, Math.ceil((branch.children?.length ?? 0) / PAGE_ROWS)));
    const old = branch.byLevel ?? new Map();
    const items = [];
    let next = null;
    try {
      for (let page = 0; page < pages && (page === 0 || next !== null); page += 1) {
        const answer = await this.load(branch, next, signal);
        items.push(...answer.items);
        next = answer.next ?? null;
      }
    } catch (error) {
      if (generation !== this.generation || error.name === "AbortError") return;
      branch.error = error;
      branch.isLoading = false;
      return;
    }
    if (generation !== this.generation) return;
    const nowMs = performance.now();
    branch.children = [];
    branch.byLevel = new Map();
    for (const item of items) {
      const known = old.get(item.level);
      const node = known ?? new Node(branch, item.level, item.topic);
      if (node.take(item) && known) node.flashedMs = nowMs;
      if (!this.isLive) node.forgetSeen();
      branch.byLevel.set(item.level, node);
      branch.children.push(node);
    }
    if (this.isLive) this.#keepSeen(branch, old);
    branch.next = next;
    branch.error = null;
    branch.isLoading = false;
  }

  /** What was seen live stays, although the server does not list it: it is not retained. */
  #keepSeen(branch, old) {
    const kept = [...old.values()].filter((node) => node.isSeenOnly && !branch.byLevel.has(node.level));
    if (!kept.length) return;
    for (const node of kept) {
      branch.byLevel.set(node.level, node);
      branch.children.push(node);
    }
    this.#order(branch);
  }

  /** The deepest loaded node of a topic, and how many of its levels it has. */
  find(topic) {
    const levels = this.isFlat ? [topic] : topic.split("/");
    let node = this.root;
    let depth = 0;
    while (depth < levels.length) {
      const child = node.byLevel?.get(levels[depth]);
      if (!child) break;
      node = child;
      depth += 1;
    }
    return { node, isWhole: depth === levels.length, depth, levels };
  }

  /** Show a topic that is seen live and not retained, in a branch that is loaded. */
  addSeen(branch, level, message, atMs) {
    if (this.seenCount >= SEEN_MAX) return null;
    this.seenCount += 1;
    const topic = branch === this.root ? level : `${branch.topic}/${level}`;
    const node = new Node(branch, level, topic);
    node.isSeenOnly = true;
    node.seen = { message, atMs };
    node.topics = 0;
    branch.byLevel.set(level, node);
    branch.children.push(node);
    this.#order(branch);
    this.changed();
    return node;
  }

  /** Open the branches above a topic, one after the other. */
  async reveal(topic) {
    const levels = topic.split("/");
    let branch = this.root;
    if (branch.children === null) await this.loadMore(branch);
    for (let depth = 0; depth < levels.length; depth += 1) {
      const node = branch.byLevel?.get(levels[depth]);
      if (!node || depth === levels.length - 1) return node ?? null;
      if (!node.isOpen) await this.open(node);
      branch = node;
    }
    return null;
  }
}
