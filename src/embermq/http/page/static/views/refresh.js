// A view is loaded when it comes into sight, and again and again until it goes.

/** The `setShown(isShown)` of a view that `load` fills. */
export function refreshWhileShown(load, everyMs) {
  let timer = 0;
  return (isShown) => {
    clearInterval(timer);
    if (!isShown) return;
    load();
    timer = setInterval(load, everyMs);
  };
}
