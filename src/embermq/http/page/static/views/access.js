// What a user may do with a topic, and which line of the access list decides.

import { isAborted } from "../core/api.js";
import { el, show } from "../core/dom.js";
import { visible } from "../core/text.js";

const VERBS = { read: "read (subscribe to)", write: "write (publish to)", retain: "retain on", "see-all": "see everything over HTTP" };

export class AccessView {
  constructor(api, element) {
    const input = (name, properties = {}) => el("input", { name, spellcheck: "false", autocomplete: "off", ...properties });
    const user = input("user", { placeholder: "empty: an anonymous client" });
    const client = input("client", { placeholder: "for rules with %c" });
    const topic = input("topic", { required: true, placeholder: "plant/7/temperature" });
    const verb = el("select", { name: "verb" }, Object.entries(VERBS).map(([name, words]) => el("option", { value: name }, words)));
    const result = el("div", { class: "access-result", role: "status" });
    const check = async (event) => {
      event.preventDefault();
      try {
        const found = await api.get("access", { user: user.value, client_id: client.value, verb: verb.value, topic: topic.value });
        show(
          result,
          el("p", { class: found.allowed ? "verdict appeared" : "verdict vanished" }, found.allowed ? "Allowed" : "Refused"),
          el("p", {}, visible(found.why)),
          found.rules.length > 0 && el("ul", {}, found.rules.map((rule) => el("li", {}, el("code", {}, visible(rule))))),
        );
      } catch (error) {
        if (!isAborted(error)) show(result, el("p", { class: "failure" }, error.message));
      }
    };
    show(element, el("div", { class: "listing-head" }, el("h2", {}, "Access")),
      el("p", { class: "explanation" }, "What the access list lets a user do. Nothing is changed."),
      el("form", { class: "access-form", onsubmit: check }, el("label", {}, "User", user), el("label", {}, "Client identifier", client), el("label", {}, "May", verb),
        el("label", {}, "Topic or filter", topic), el("button", { type: "submit", class: "primary" }, "Check")), result);
  }

  setShown() {}
}
