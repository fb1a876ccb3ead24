// Keys that work everywhere on the page, and the help that lists them.

import { byId, el } from "./core/dom.js";

const LINES = [
  ["/", "search topics"],
  ["↑ ↓ ← →", "in the tree: move, open and close branches"],
  ["Enter", "in the tree: choose the topic"],
  ["← →", "on the slider: previous and next change of the selected topic"],
  ["Page up, Page down", "on the slider: a tenth of its range"],
  ["Home, End", "on the slider: the beginning of the log, and live"],
  ["+ −", "on the slider: zoom; the wheel and two fingers do the same"],
  ["Space", "play the past forward, and pause"],
  ["L", "back to live"],
  ["C", "compare two instants, and end it"],
  ["1 to 9, 0", "the views"],
  ["Esc", "close what is open"],
  ["?", "this help"],
];

/** `actions`: {live, compare, play, view(place), back} */
export function startKeys(actions) {
  byId("help").addEventListener("click", showHelp);
  addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]") || document.body.dataset.login) return;
    const isTyping = event.target.closest?.("input:not([type=checkbox], [type=radio]), textarea, select") !== null;
    if (isTyping) return;
    const isOnButton = event.target.closest?.("button, summary, a, input") !== null;
    const keys = {
      "/": () => byId("search").focus(),
      l: actions.live,
      c: actions.compare,
      "?": showHelp,
      Escape: actions.back,
    };
    if (!isOnButton) keys[" "] = actions.play;
    const act = keys[event.key.length === 1 ? event.key.toLowerCase() : event.key] ?? (/^[0-9]$/.test(event.key) && event.target.id !== "tree" ? () => actions.view((Number(event.key) + 9) % 10) : null);
    if (!act) return;
    event.preventDefault();
    act();
  });
}

function showHelp() {
  const close = el("button", { type: "button", class: "primary", onclick: () => dialog.close() }, "Close");
  const dialog = el(
    "dialog",
    { class: "help", "aria-labelledby": "help-title", onclose: () => dialog.remove() },
    el("h2", { id: "help-title" }, "Keys"),
    el("dl", { class: "keys" }, LINES.map(([keys, text]) => [el("dt", {}, keys.split(", ").map((key) => [el("kbd", {}, key), " "])), el("dd", {}, text)]).flat()),
    el("p", { class: "hint" }, "The address of this page holds what you see: send it to a colleague to show the same topic at the same instant."),
    el("div", { class: "buttons" }, el("button", { type: "button", onclick: () => byId("log-out").click() }, "Log out"), close),
  );
  document.body.append(dialog);
  dialog.showModal();
  close.focus();
}
