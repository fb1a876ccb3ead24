// Log in: a token, or a user and a password, kept in this tab only.

import { byId } from "./core/dom.js";

const KEY = "embermq-authorization";

/** The login of this tab; null if there is none. */
export function storedAuthorization() {
  return sessionStorage.getItem(KEY);
}

export function forget() {
  sessionStorage.removeItem(KEY);
}

/** Ask who it is until the server accepts it; resolves to what `check(authorization)` resolves to. */
export function askToLogIn(reason, check) {
  const form = byId("login-form");
  const place = byId("login");
  place.hidden = false;
  document.body.dataset.login = "asked";
  for (const id of ["header", "timeline", "main"]) byId(id).inert = true;
  byId("login-reason").textContent = reason;
  const how = () => form.elements.how.value;
  const arrange = () => {
    byId("login-token").hidden = how() !== "token";
    byId("login-user").hidden = byId("login-password").hidden = how() !== "user";
  };
  arrange();
  form.elements.token.focus();
  return new Promise((resolve) => {
    form.onchange = arrange;
    form.onsubmit = async (event) => {
      event.preventDefault();
      const authorization = how() === "token" ? `Bearer ${form.elements.token.value.trim()}` : `Basic ${base64(`${form.elements.user.value}:${form.elements.password.value}`)}`;
      byId("login-reason").textContent = "Checking …";
      let found;
      try {
        found = await check(authorization);
      } catch (error) {
        byId("login-reason").textContent = sentence(error);
        return;
      }
      sessionStorage.setItem(KEY, authorization);
      form.reset();
      place.hidden = true;
      delete document.body.dataset.login;
      for (const id of ["header", "timeline", "main"]) byId(id).inert = false;
      resolve(found);
    };
  });
}

function sentence(error) {
  if (error.status === 401) return "The server does not know this login.";
  const text = error.message;
  return `${text[0].toUpperCase()}${text.slice(1)}.`;
}

function base64(text) {
  return btoa(String.fromCharCode(...new TextEncoder().encode(text)));
}
