// Elements made from data. Strings become text nodes; nothing that the server sends is ever parsed as markup.

/** Make an element. `on...` properties are listeners, `true` is an attribute without a value, null and false are left out. */
export function el(tag, properties = {}, ...children) {
  return filled(document.createElement(tag), properties, children);
}

/** The same for a shape of a drawing. */
export function svg(tag, properties = {}, ...children) {
  return filled(document.createElementNS("http://www.w3.org/2000/svg", tag), properties, children);
}

function filled(element, properties, children) {
  for (const [name, value] of Object.entries(properties)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  element.append(...present(children));
  return element;
}

/** Children without the gaps that conditions leave. */
function present(children) {
  return children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false);
}

export function byId(id) {
  return document.getElementById(id);
}

/** Replace what an element holds. */
export function show(element, ...children) {
  element.replaceChildren(...present(children));
}

/** Set text only where it differs, so that a screen reader and the layout are left alone otherwise. */
export function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

export function setClass(element, name, isOn) {
  if (element.classList.contains(name) !== isOn) element.classList.toggle(name, isOn);
}

/** Run a function at most once in each frame, however often it is asked for. */
export function oncePerFrame(run) {
  let isAsked = false;
  return () => {
    if (isAsked) return;
    isAsked = true;
    requestAnimationFrame(() => {
      isAsked = false;
      run();
    });
  };
}
