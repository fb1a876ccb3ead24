// Runs of an asynchronous function, one at a time; a run is aborted when something else is asked for.

/** How long a run may take before another question aborts it: what is moved on and on would else never be shown. */
const PATIENCE_MS = 100;

/**
 * `ask()` runs `run(signal)`, never twice at a time; asked for meanwhile, it runs once more afterwards.
 * `ask.instead()` says that the answer to come is of no use any more: the run is aborted, and the next begins. A run has
 * some time before that, and twice as much after each one that was aborted.
 */
export function oneAtATime(run) {
  let ending = null; // of the run under way
  let isAskedAgain = false;
  let isOutdated = false;
  let begunMs = 0;
  let patienceMs = PATIENCE_MS;
  let timer = 0;

  async function ask() {
    isAskedAgain = true;
    if (ending) return;
    try {
      while (isAskedAgain) {
        isAskedAgain = isOutdated = false;
        ending = new AbortController();
        begunMs = performance.now();
        await run(ending.signal);
        clearTimeout(timer);
        patienceMs = ending.signal.aborted ? patienceMs * 2 : PATIENCE_MS;
      }
    } finally {
      ending = null;
    }
  }

  ask.instead = () => {
    if (ending && !isOutdated) {
      isOutdated = true;
      const { signal } = ending;
      const abort = () => signal === ending?.signal && ending.abort();
      timer = setTimeout(abort, Math.max(0, begunMs + patienceMs - performance.now()));
    }
    return ask();
  };

  return ask;
}
