// Questions before something is done that cannot be taken back, and short notices afterwards.

import { byId, el, show } from "./dom.js";

let noticeTimer = 0;

/** Ask; resolves to true only if the person chose the action. `effects` say what will happen, as a list. */
export function ask({ title, effects, action, body = [] }) {
  return new Promise((resolve) => {
    const no = el("button", { type: "button", onclick: () => dialog.close("") }, "Cancel");
    const yes = el("button", { type: "button", class: "danger", onclick: () => dialog.close("yes") }, action);
    const dialog = el(
      "dialog",
      { class: "question", "aria-labelledby": "question-title", onclose: closed },
      el("h2", { id: "question-title" }, title),
      el("ul", {}, effects.map((effect) => el("li", {}, effect))),
      body,
      el("div", { class: "buttons" }, no, yes),
    );
    function closed() {
      dialog.remove();
      resolve(dialog.returnValue === "yes");
    }
    document.body.append(dialog);
    dialog.showModal();
    no.focus();
  });
}

/** Say what happened, also to a screen reader. `undo` takes it back, if that is possible. */
export function notice(text, isError = false, undo = null) {
  const place = byId("notice");
  const act = () => {
    hide();
    undo();
  };
  show(place, el("span", {}, text), undo && el("button", { type: "button", class: "small", onclick: act }, "Undo"), el("button", { type: "button", class: "quiet", "aria-label": "Close this notice", onclick: hide }, "×"));
  place.classList.toggle("error", isError);
  place.hidden = false;
  clearTimeout(noticeTimer);
  noticeTimer = setTimeout(hide, undo ? 30_000 : isError ? 12_000 : 6_000);
}

function hide() {
  const place = byId("notice");
  place.hidden = true;
  show(place);  // what it said is past: nothing may read it again
}
