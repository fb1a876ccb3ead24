// One level of one topic, as a row of the tree.

let nextId = 1;

export class Node {
  constructor(parent, level, topic) {
    this.id = nextId++;
    this.parent = parent;
    this.level = level;
    this.topic = topic;
    this.depth = parent === null ? -1 : parent.depth + 1;
    this.hasChildren = false;
    /** Retained topics at and below this level; null while it is not known. */
    this.topics = null;
    /** The retained message, cut; null where there is none. */
    this.message = null;
    /** In a comparison: "+", "~", "-" or "", the message at the other instant, and how many differ at and below. */
    this.sign = "";
    this.other = null;
    this.difference = null;
    /** Seen live but not retained: {message, atMs}. */
    this.seen = null;
    this.isSeenOnly = false;
    this.rate = 0;
    this.isOpen = false;
    /** Among the rows of its branch, for screen readers. */
    this.place = 1;
    this.siblings = 1;
    /** null until the branch was loaded. */
    this.children = null;
    this.byLevel = null;
    this.next = null;
    this.isLoading = false;
    this.error = null;
    this.flashedMs = 0;
  }

  /** Take over what the server says about this level. */
  take(item) {
    const before = this.message;
    this.isSeenOnly = false;
    this.hasChildren = item.has_children;
    this.topics = item.topics ?? null;
    this.message = item.message ?? null;
    this.sign = item.sign ?? "";
    this.other = item.other ?? null;
    this.difference = item.change ?? null;
    return before?.offset !== this.message?.offset;
  }

  /** The past has only what was retained. */
  forgetSeen() {
    this.seen = null;
    this.rate = 0;
  }

  /** What the row shows: the retained message, or what was last seen live. */
  get shown() {
    return this.message ?? this.seen?.message ?? (this.sign === "-" ? this.other : null);
  }

  get differences() {
    const found = this.difference;
    return found ? found.appeared + found.changed + found.vanished : 0;
  }
}
