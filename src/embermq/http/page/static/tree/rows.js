// The tree as an element: only the rows that are in view exist in the document. Owns: scrolling, the active row, keys.

import { el, oncePerFrame } from "../core/dom.js";
import { count } from "../core/text.js";
import { Row } from "./row.js";

const OVERSCAN = 6;

export class Rows {
  #rows = new Map(); // node -> Row
  #moreElements = new Map(); // branch -> element
  #body;
  #active = null;
  #lastTyped = { text: "", atMs: 0 };

  /** `actions`: {rows(), open(node), close(node), loadMore(node), choose(node), context(node), onVisible(nodes)} */
  constructor(element, actions) {
    this.element = element;
    this.actions = actions;
    this.#body = el("div", { class: "rows", role: "presentation" });
    element.append(this.#body);
    this.draw = oncePerFrame(() => this.#draw());
    element.addEventListener("scroll", this.draw, { passive: true });
    new ResizeObserver(this.draw).observe(element);
    element.addEventListener("click", (event) => this.#click(event));
    element.addEventListener("keydown", (event) => this.#key(event));
    element.addEventListener("focus", () => {
      if (!this.#active) this.#activate(this.#nodes()[0] ?? null);
    });
  }

  get rowHeight() {
    return parseFloat(getComputedStyle(this.element).getPropertyValue("--row-height")) || 30;
  }

  #nodes() {
    return this.actions.rows().filter((row) => !row.more);
  }

  #draw() {
    const rows = this.actions.rows();
    const height = this.rowHeight;
    const first = Math.max(0, Math.floor(this.element.scrollTop / height) - OVERSCAN);
    const last = Math.min(rows.length, Math.ceil((this.element.scrollTop + this.element.clientHeight) / height) + OVERSCAN);
    this.#body.style.height = `${rows.length * height}px`;
    const wanted = [];
    const visible = [];
    const kept = new Set();
    for (let place = first; place < last; place += 1) {
      const row = rows[place];
      const element = row.more ? this.#more(row.more) : this.#row(row);
      element.style.transform = `translateY(${place * height}px)`;
      kept.add(row.more ?? row);
      if (!row.more) visible.push(row);
      wanted.push(element);
    }
    for (const node of this.#rows.keys()) if (!kept.has(node)) this.#rows.delete(node);
    for (const branch of this.#moreElements.keys()) if (!kept.has(branch)) this.#moreElements.delete(branch);
    this.#place(wanted);
    if (this.#active && this.#rows.has(this.#active)) {
      this.element.setAttribute("aria-activedescendant", `row-${this.#active.id}`);
    } else {
      this.element.removeAttribute("aria-activedescendant");
    }
    this.actions.onVisible(visible);
  }

  /** Put the elements in order, moving as few as possible. */
  #place(wanted) {
    const isWanted = new Set(wanted);
    for (const child of [...this.#body.children]) if (!isWanted.has(child)) child.remove();
    let before = this.#body.firstChild;
    for (const element of wanted) {
      if (element === before) before = before.nextSibling;
      else this.#body.insertBefore(element, before);
    }
  }

  #row(node) {
    let row = this.#rows.get(node);
    if (!row) {
      row = new Row(node);
      this.#rows.set(node, row);
    }
    row.update({ ...this.actions.context(node), isActive: node === this.#active });
    row.element.setAttribute("aria-setsize", node.siblings);
    row.element.setAttribute("aria-posinset", node.place);
    return row.element;
  }

  #more(branch) {
    let element = this.#moreElements.get(branch);
    if (!element) {
      element = el("div", { class: "row more", role: "presentation" });
      this.#moreElements.set(branch, element);
    }
    const loaded = branch.children.length;
    element.style.setProperty("--depth", Math.min(branch.depth + 1, 12));
    element.textContent = branch.error ? `Cannot load more: ${branch.error.message}` : `loading more after ${count(loaded)} …`;
    if (!branch.error) this.actions.loadMore(branch);
    return element;
  }

  #click(event) {
    const element = event.target.closest(".row");
    if (!element?.node) return;
    const { node } = element;
    this.#activate(node);
    if (event.target.closest(".twist") || (node.hasChildren && !node.shown)) this.#toggle(node);
    if (!event.target.closest(".twist")) this.actions.choose(node);
  }

  #toggle(node) {
    if (!node.hasChildren) return;
    if (node.isOpen) this.actions.close(node);
    else this.actions.open(node);
  }

  /** Make a node the active one and bring it into view. */
  activate(node) {
    this.#activate(node);
  }

  #activate(node) {
    this.#active = node;
    if (node) {
      const place = this.actions.rows().indexOf(node);
      const height = this.rowHeight;
      const top = place * height;
      if (top < this.element.scrollTop) this.element.scrollTop = top;
      else if (top + height > this.element.scrollTop + this.element.clientHeight) {
        this.element.scrollTop = top + height - this.element.clientHeight;
      }
    }
    this.draw();
  }

  #key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const nodes = this.#nodes();
    const place = nodes.indexOf(this.#active);
    const node = nodes[place] ?? null;
    const page = Math.max(1, Math.floor(this.element.clientHeight / this.rowHeight) - 1);
    const to = (target) => this.#activate(nodes[Math.max(0, Math.min(nodes.length - 1, target))] ?? null);
    const keys = {
      ArrowDown: () => to(place + 1),
      ArrowUp: () => to(place - 1),
      PageDown: () => to(place + page),
      PageUp: () => to(place - page),
      Home: () => to(0),
      End: () => to(nodes.length - 1),
      ArrowRight: () => node && this.#right(node),
      ArrowLeft: () => node && this.#left(node),
      Enter: () => node && this.actions.choose(node),
    };
    if (event.key in keys) {
      event.preventDefault();
      event.stopPropagation();
      keys[event.key]();
    } else if (/^[\p{L}\p{N}_$.-]$/u.test(event.key) && !"lc".includes(event.key)) {
      this.#typeAhead(event.key, nodes, place);
    }
  }

  #right(node) {
    if (node.hasChildren && !node.isOpen) this.actions.open(node);
    else if (node.isOpen && node.children?.length) {
      const rows = this.#nodes();
      this.#activate(rows[rows.indexOf(node) + 1]);
    }
  }

  #left(node) {
    if (node.isOpen) this.actions.close(node);
    else if (node.parent?.parent) this.#activate(node.parent);
  }

  #typeAhead(key, nodes, place) {
    const nowMs = performance.now();
    const text = nowMs - this.#lastTyped.atMs < 700 ? this.#lastTyped.text + key : key;
    this.#lastTyped = { text, atMs: nowMs };
    const begin = text.length === 1 ? place + 1 : Math.max(0, place);
    for (let step = 0; step < nodes.length; step += 1) {
      const node = nodes[(begin + step) % nodes.length];
      if (node.level.toLowerCase().startsWith(text.toLowerCase())) {
        this.#activate(node);
        return;
      }
    }
  }
}
