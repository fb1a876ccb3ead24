// The pane of the selected topic. Owns: when it is loaded again, and which of its parts are drawn again.

import { isAborted } from "../core/api.js";
import { nowUs } from "../core/clock.js";
import { notice } from "../core/dialog.js";
import { byId, el, show } from "../core/dom.js";
import { oneAtATime } from "../core/latest_run.js";
import { change, isComparing, isLive, onChange, state } from "../core/state.js";
import { microseconds, size, visible } from "../core/text.js";
import { comparison } from "./comparison.js";
import { badges, details, origin } from "./facts.js";
import { historyList } from "./history.js";
import { loadTopic, loadWhole } from "./load.js";
import { bytesOf, isCut, kindsOf } from "./payload.js";
import { withSeries } from "../views/chart.js";
import { publishForm } from "./publish_form.js";
import { KIND_NAMES, kindFor, payloadView } from "./payload_view.js";
import { clear, filterOf, restore } from "./restore.js";
import { exportBranch, importFile, save } from "./transfer.js";
import { ValuePlot } from "./value_plot.js";

const WHOLE_IMAGE_BYTES_MAX = 8 * 1024 * 1024;
const LIVE_RELOAD_MS = 900;
/** Longer names may need to be scrolled, also with keys. */
const SCROLLED_NAME = 80;

export class TopicPane {
  #api;
  #who;
  #timeline;
  #found = null;
  /** The last message that was loaded with its whole payload: what is loaded again must not cut it. */
  #wholeMessage = null;
  #chosenKind = null;
  #reloadTimer = 0;
  #parts = null;
  #actions = null;

  /** `tree` tells whether a topic has topics below it. */
  constructor(api, who, timeline, tree) {
    this.#api = api;
    this.#who = who;
    this.#timeline = timeline;
    this.tree = tree;
    this.plot = new ValuePlot((us) => this.#goTo(us), (path) => change({ view: "chart", chart: withSeries(state.chart, state.topic, path) }, { isStep: true }));
    this.load = oneAtATime((signal) => this.#load(signal));
    onChange((changed) => {
      if (changed.has("topic") || (changed.has("at") && state.topic === null)) this.#begin();
      if (["topic", "at", "from"].some((name) => changed.has(name))) this.load.instead();
      if (changed.has("at") || changed.has("from")) this.#drawChange();
    });
    setInterval(() => {
      this.#drawOrigin();
      this.#drawChange(); // the tree may know by now whether there are topics below
    }, 1000);
    this.#begin();
    this.load();
  }

  /** Whether messages can be published here: by an operator, and now. */
  #isChanging() {
    return this.#who.role === "operator" && isLive();
  }

  #goTo(us) {
    change({ at: us }, { isStep: true });
  }

  /** Another topic: all parts are new, so that nothing of the topic before stays. */
  #begin() {
    this.#found = null;
    this.#chosenKind = null;
    const pane = byId("topic-pane");
    document.body.dataset.topic = state.topic === null ? "none" : "chosen";
    if (state.topic === null) {
      const done = this.#isChanging() ? () => this.tree.reload() : null;
      show(pane, welcome(), el("div", { class: "change-part" }, done && publishing(publishForm(this.#api, "", () => null, done)), transferButtons(this.#api, null, true, done)));
      return;
    }
    const part = (name) => el("div", { class: name });
    this.#parts = {
      facts: part("facts-part"), kinds: part("kinds-part"), value: part("value-part"), plot: part("plot-part"),
      history: part("history-part"), details: part("details-part"), change: part("change-part"),
    };
    show(pane, this.#head(), ...Object.values(this.#parts));
    show(this.#parts.facts, el("p", { class: "hint" }, "Loading …"));
    this.#drawChange();
    pane.scrollTop = 0;
  }

  #head() {
    const copy = async () => {
      await navigator.clipboard?.writeText(state.topic).then(() => notice("Topic name copied."), () => notice("The browser does not allow copying.", true));
    };
    return el(
      "div",
      { class: "topic-head" },
      el("button", { type: "button", class: "quiet back", onclick: () => change({ topic: null }, { isStep: true }) }, "‹ Topics"),
      el("h2", { tabindex: state.topic.length > SCROLLED_NAME ? "0" : null }, topicName(state.topic)),
      this.#who.role === "operator" && el("button", { type: "button", class: "only-live", onclick: () => this.#openForm() }, "Publish …"),
      el("button", { type: "button", class: "quiet", onclick: copy, title: "Copy the topic name" }, "Copy"),
    );
  }

  /** The form is below the history: open it, and go there. */
  #openForm() {
    const form = this.#parts.change.querySelector("details");
    form.open = true;
    form.scrollIntoView({ block: "nearest" });
    form.querySelector("[name=payload], [name=file]").focus();
  }

  async #load(signal) {
    const { topic } = state;
    if (topic === null) return;
    try {
      const found = await loadTopic(this.#api, topic, signal);
      if (topic !== state.topic) return;
      if (this.#isWhole(found.message)) found.message = this.#wholeMessage;
      this.#found = found;
      this.#timeline.marks.setNearby(found.values.map((value) => microseconds(value.timestamp)));
      this.#draw();
    } catch (error) {
      if (isAborted(error) || topic !== state.topic) return;
      show(this.#parts.facts, el("p", { class: "failure" }, error.message));
    }
  }

  /** A live message of the shown topic: load again, at most about once a second. */
  take(messages) {
    if (!isLive() || state.topic === null || this.#reloadTimer) return;
    if (!messages.some((message) => message.topic === state.topic)) return;
    this.#timeline.marks.add(nowUs());
    this.#reloadTimer = setTimeout(() => {
      this.#reloadTimer = 0;
      this.load();
    }, this.#found ? LIVE_RELOAD_MS : 0);
  }

  /** What is shown: the retained message, or the last one of the log if nothing is retained. */
  get #message() {
    return this.#found?.message ?? this.#found?.values[0] ?? null;
  }

  #draw() {
    const message = this.#message;
    const { facts, kinds, value, plot, history, details: detailsPart } = this.#parts;
    const { values, isAllValues } = this.#found;
    show(history, el("h3", {}, "History"), historyList(values, isAllValues, message?.offset, (us) => this.#goTo(us)));
    this.#drawChange();
    if (isComparing()) {
      show(facts);
      show(kinds);
      show(plot);
      show(detailsPart);
      show(value, comparison(this.#found, state));
      return;
    }
    if (!message) {
      const isBranch = this.#node()?.hasChildren;
      show(facts, el("p", { class: "hint" }, isBranch ? "No message of its own; there are topics below." : isLive() ? "Nothing is retained on this topic." : "Nothing was retained on this topic at this instant."));
      for (const part of [kinds, value, plot, detailsPart]) show(part);
      return;
    }
    show(facts, badges(message, this.#found.message !== null));
    this.#drawOrigin();
    this.#drawValue();
    show(plot, this.plot.element(values, message));
    show(detailsPart, details(message));
  }

  #drawOrigin() {
    const message = this.#message;
    if (!message || isComparing() || !this.#parts) return;
    const line = origin(message, state.at ?? nowUs());
    const old = this.#parts.facts.querySelector(".origin");
    if (!old) this.#parts.facts.append(line);
    else if (old.textContent !== line.textContent) old.replaceWith(line);
  }

  #drawValue() {
    const message = this.#message;
    const kind = kindFor(message, this.#chosenKind);
    const all = kindsOf(message);
    const key = `${all.join()} ${kind} ${this.#found.message !== null}`;
    const { kinds, value } = this.#parts;
    if (kinds.dataset.key !== key || !kinds.firstChild) {
      kinds.dataset.key = key;
      const save = this.#found.message ? [el("button", { type: "button", class: "quiet small", onclick: () => this.#save() }, "Save the payload")] : [];
      show(kinds, el("div", { class: "segments", role: "group", "aria-label": "Show the payload as" }, all.map((one) =>
        el("button", { type: "button", "aria-pressed": String(one === kind), onclick: () => this.#choose(one) }, KIND_NAMES[one]))), save);
    }
    const shown = payloadView(message, kind);
    const more = isCut(message) && this.#found.message !== null
      ? [el("button", { type: "button", onclick: () => this.#whole() }, `Load all of ${size(message.payload_bytes)}`)] : [];
    show(value, shown, el("div", { class: "buttons" }, more));
    if (kind === "image" && more.length && message.payload_bytes <= WHOLE_IMAGE_BYTES_MAX) this.#whole();
  }

  #choose(kind) {
    this.#chosenKind = kind;
    this.#drawValue();
    this.#parts.kinds.querySelector('[aria-pressed="true"]')?.focus();
  }

  async #whole() {
    try {
      this.#wholeMessage = await loadWhole(this.#api, this.#found.topic);
      if (!this.#isWhole(this.#found?.message)) return; // another message or topic is shown by now
      this.#found = { ...this.#found, message: this.#wholeMessage };
      this.#drawValue();
    } catch (error) {
      if (!isAborted(error)) notice(error.message, true);
    }
  }

  #isWhole(message) {
    return Boolean(message) && message.topic === this.#wholeMessage?.topic && message.offset === this.#wholeMessage.offset;
  }

  async #save() {
    try {
      const bytes = bytesOf(await loadWhole(this.#api, state.topic));
      save(new Blob([bytes]), "payload.bin");
    } catch (error) {
      if (!isAborted(error)) notice(error.message, true);
    }
  }

  #node() {
    const { node, isWhole } = this.tree.branches.find(state.topic);
    return isWhole ? node : null;
  }

  #drawChange() {
    const part = this.#parts?.change;
    if (!part || state.topic === null) return;
    const isOperator = this.#who.role === "operator";
    const { topic } = state;
    const done = () => {
      this.load();
      this.tree.reload();
    };
    if (part.dataset.key !== String(isLive())) { // what is typed stays otherwise
      part.dataset.key = String(isLive());
      this.#actions = el("div", { class: "actions" });
      show(part, isOperator ? el("h3", {}, "Change") : el("p", { class: "hint" }, "You may look; to publish and clear takes the role operator."),
        isOperator && isLive() && publishing(publishForm(this.#api, topic, () => this.#found?.message ?? null, done)),
        this.#actions);
    }
    const isBranch = Boolean(this.#node()?.hasChildren);
    const key = `${isBranch} ${Boolean(this.#found?.message)}`;
    if (this.#actions.dataset.key === key) return;
    this.#actions.dataset.key = key;
    show(this.#actions, isOperator && (isLive() ? this.#liveChanges(topic, isBranch, done) : this.#pastChanges(topic, isBranch, done)),
      transferButtons(this.#api, topic, isBranch, isOperator && isLive() ? done : null));
  }

  #liveChanges(topic, isBranch, done) {
    const clearing = (whole) => () => clear(this.#api, topic, whole, done);
    return [
      el(
        "div",
        { class: "buttons" },
        this.#found?.message && el("button", { type: "button", class: "danger", onclick: clearing(false) }, "Clear"),
        isBranch && el("button", { type: "button", class: "danger", onclick: clearing(true) }, "Clear this branch"),
      ),
      el("p", { class: "hint" }, "To set it back to what it was, move the slider to that instant."),
    ];
  }

  /** In the past: make now what was then. */
  #pastChanges(topic, isBranch, done) {
    const back = (whole) => async () => {
      await restore(this.#api, filterOf(topic, whole), state.at, () => {
        change({ at: null, from: null }, { isStep: true });
        done();
      });
    };
    return [
      el("p", { class: "hint" }, "Publish and clear are possible when live. Here you can make now what was then; it shows first what changes."),
      el(
        "div",
        { class: "buttons" },
        el("button", { type: "button", onclick: back(false) }, "Set this topic back to this instant"),
        isBranch && el("button", { type: "button", onclick: back(true) }, "Set this branch back to this instant"),
      ),
    ];
  }
}

function publishing(form) {
  return el("details", { class: "publishing" }, el("summary", {}, "Publish a message"), form);
}

/** Export, and import where that is possible. */
function transferButtons(api, topic, isBranch, onImported) {
  const filter = filterOf(topic, isBranch);
  const exported = (format, word) => el("button", { type: "button", class: "quiet small", onclick: () => exportBranch(api, filter, format) }, word);
  return el("div", { class: "buttons transfer" }, el("span", { class: "hint" }, topic === null ? "Export all topics" : isBranch ? "Export this branch" : "Export"), exported("json", "JSON"), exported("csv", "CSV"),
    onImported && el("button", { type: "button", class: "quiet small", onclick: () => importFile(api, onImported) }, "Import a file …"));
}

/** The name of a topic; it may break after each level. */
export function topicName(topic) {
  const levels = topic.split("/");
  return el("bdi", { class: "topic-name" }, levels.map((level, place) => [
    place > 0 && [el("span", { class: "slash" }, "/"), el("wbr")],
    visible(level),
  ]).flat(2));
}

function welcome() {
  const line = (key, text) => [el("dt", {}, el("kbd", {}, key)), el("dd", {}, text)];
  return el(
    "div",
    { class: "welcome" },
    el("h2", {}, "Every topic, at every instant"),
    el("p", {}, "Move the slider: the whole tree goes back to that instant. Play it forward, or compare two instants. Choose a topic to see its value and its history."),
    el("dl", { class: "keys" }, line("/", "search topics"), line("← →", "on the slider: step through changes"), line("space", "play and pause"), line("C", "compare two instants"), line("L", "back to live"), line("?", "all keys")),
  );
}
