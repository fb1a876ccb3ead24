// Which lines of two texts differ.

const LINES_MAX = 400;

/** The lines of `a` and of `b` that are not in their longest common subsequence, as two sets of places. */
export function differing(a, b) {
  if (a.length > LINES_MAX || b.length > LINES_MAX) return [new Set(), new Set()];
  const lengths = Array.from({ length: a.length + 1 }, () => new Uint16Array(b.length + 1));
  for (let i = a.length - 1; i >= 0; i -= 1) {
    for (let j = b.length - 1; j >= 0; j -= 1) {
      lengths[i][j] = a[i] === b[j] ? lengths[i + 1][j + 1] + 1 : Math.max(lengths[i + 1][j], lengths[i][j + 1]);
    }
  }
  const [onlyA, onlyB] = [new Set(), new Set()];
  let [i, j] = [0, 0];
  while (i < a.length || j < b.length) {
    if (i < a.length && j < b.length && a[i] === b[j]) {
      i += 1;
      j += 1;
    } else if (j >= b.length || (i < a.length && lengths[i + 1][j] >= lengths[i][j + 1])) {
      onlyA.add(i);
      i += 1;
    } else {
      onlyB.add(j);
      j += 1;
    }
  }
  return [onlyA, onlyB];
}
