// Light or dark: as the system asks, or as chosen here.

import { byId } from "./dom.js";

const KEY = "embermq-theme";
const NEXT = { "": "light", light: "dark", dark: "" };
const NAMES = { "": "as the system", light: "light", dark: "dark" };

export function startTheme() {
  let chosen = stored();
  const button = byId("theme");
  const apply = () => {
    document.documentElement.style.colorScheme = chosen || "light dark";
    button.setAttribute("aria-label", `Colours: ${NAMES[chosen]}. Change`);
    button.title = `Colours: ${NAMES[chosen]}`;
  };
  button.addEventListener("click", () => {
    chosen = NEXT[chosen];
    try {
      localStorage.setItem(KEY, chosen);
    } catch {
      // A browser that keeps nothing still changes the colours of this page.
    }
    apply();
  });
  apply();
}

function stored() {
  try {
    const value = localStorage.getItem(KEY) ?? "";
    return value in NEXT ? value : "";
  } catch {
    return "";
  }
}
