// Live messages on the tree: values and rates of what is loaded, and which branches must be loaded again because a
// topic appeared or vanished.

/** How much of a rate is that of the last second. */
const RATE_WEIGHT = 0.3;
/** How often counts of closed branches are asked for while messages arrive in them. */
const COUNTS_S = 10;

export class LiveUpdates {
  #branches;
  #isStale = false;
  #hasOldCounts = false;
  #secondsSinceCounts = 0;
  #rated = new Set();
  #counts = new Map();

  constructor(branches) {
    this.#branches = branches;
  }

  /** Apply one event that covers the time until `until`; it left out so many topics. */
  take(messages, until, nowMs, leftOut) {
    this.#hasOldCounts ||= leftOut > 0;
    for (const message of messages) {
      message.timestamp ??= until;
      const found = this.#branches.find(message.topic);
      for (let { node } = found; node.parent; node = node.parent) {
        this.#counts.set(node, (this.#counts.get(node) ?? 0) + message.count);
      }
      if (found.isWhole) this.#update(found.node, message, nowMs);
      else this.#appeared(found, message, nowMs);
    }
    this.#branches.onChange();
  }

  #update(node, message, nowMs) {
    node.flashedMs = performance.now();
    if (!message.retain) {
      node.seen = { message, atMs: nowMs };
    } else if (message.payload_bytes === 0) {
      this.#isStale = true;
    } else {
      if (node.message === null) this.#isStale = true;
      node.message = { ...message, offset: message.offset ?? node.message?.offset };
      node.seen = null;
    }
  }

  #appeared({ node, depth, levels }, message, nowMs) {
    if (this.#branches.isFlat || node.next !== null) return;
    if (!node.byLevel) {
      // Not loaded: whether the topic is new there is not known, only that the branch exists.
      this.#hasOldCounts ||= message.retain;
      node.hasChildren ||= node !== this.#branches.root && message.payload_bytes > 0;
      return;
    }
    if (message.retain) {
      this.#isStale ||= message.payload_bytes > 0;
      return;
    }
    let branch = node;
    for (let place = depth; place < levels.length; place += 1) {
      const isLast = place === levels.length - 1;
      const added = this.#branches.addSeen(branch, levels[place], isLast ? message : null, nowMs);
      if (!added) return;
      this.#counts.set(added, message.count);
      added.flashedMs = performance.now();
      if (isLast) return;
      added.hasChildren = true;
      added.children = [];
      added.byLevel = new Map();
      branch = added;
    }
  }

  /** Rates are smoothed over some seconds. */
  passSecond() {
    for (const node of this.#rated) {
      node.rate *= 1 - RATE_WEIGHT;
      if (node.rate < 0.05) {
        node.rate = 0;
        this.#rated.delete(node);
      }
    }
    for (const [node, found] of this.#counts) {
      node.rate += RATE_WEIGHT * found;
      this.#rated.add(node);
    }
    this.#counts.clear();
    this.#secondsSinceCounts += 1;
  }

  /** Whether what is loaded must be loaded again: topics came or went, or counts of closed branches are old. */
  takeStale() {
    const isStale = this.#isStale || (this.#hasOldCounts && this.#secondsSinceCounts >= COUNTS_S);
    if (isStale) {
      this.#isStale = this.#hasOldCounts = false;
      this.#secondsSinceCounts = 0;
    }
    return isStale;
  }
}
