// The differences of two texts by words (Myers, "An O(ND) Difference Algorithm", 1986).

const MAX_STEPS = 600;
const MAX_WORDS = 20_000;

/** Returns both texts in pieces; pieces that the other text lacks are marked. */
export function changes(a, b) {
  if (a === b) return [[{ text: a, isMarked: false }], [{ text: b, isMarked: false }]];
  const [left, right] = [words(a), words(b)];
  let start = 0;
  while (start < left.length && start < right.length && left[start] === right[start]) start++;
  let [endLeft, endRight] = [left.length, right.length];
  while (endLeft > start && endRight > start && left[endLeft - 1] === right[endRight - 1]) {
    endLeft--;
    endRight--;
  }
  const [middleLeft, middleRight] = [left.slice(start, endLeft), right.slice(start, endRight)];
  const isLarge = middleLeft.length + middleRight.length > MAX_WORDS;
  const kept = isLarge ? null : keptWords(middleLeft, middleRight);
  return [pieces(left, start, endLeft, kept?.[0]), pieces(right, start, endRight, kept?.[1])];
}

function words(text) {
  // Each word includes the space after it; else spaces would match in texts without common words.
  return text.match(/[\p{L}\p{N}_]+\s*|[^\s\p{L}\p{N}_]\s*|\s+/gu) ?? [];
}

/** Returns the words that both texts have; null if they differ too much to be worth the time. */
function keptWords(a, b) {
  const trace = shortestEdit(a, b);
  if (!trace) return null;
  const [inA, inB] = [new Set(), new Set()];
  let [x, y] = [a.length, b.length];
  for (let step = trace.length - 1; step > 0; step--) {
    const reached = trace[step - 1];
    const k = x - y;
    const isDown = k === -step || (k !== step && at(reached, k - 1) < at(reached, k + 1));
    const before = isDown ? k + 1 : k - 1;
    const [fromX, fromY] = [at(reached, before), at(reached, before) - before];
    const entered = isDown ? fromX : fromX + 1;
    while (x > entered) {
      inA.add(--x);
      inB.add(--y);
    }
    [x, y] = [fromX, fromY];
  }
  while (x > 0 && y > 0) {
    inA.add(--x);
    inB.add(--y);
  }
  return [inA, inB];
}

function at(reached, k) {
  return reached.get(k) ?? -1;
}

function shortestEdit(a, b) {
  const trace = [];
  let reached = new Map([[1, 0]]);
  for (let step = 0; step <= Math.min(MAX_STEPS, a.length + b.length); step++) {
    const next = new Map();
    for (let k = -step; k <= step; k += 2) {
      const isDown = k === -step || (k !== step && at(reached, k - 1) < at(reached, k + 1));
      let x = isDown ? at(reached, k + 1) : at(reached, k - 1) + 1;
      let y = x - k;
      while (x < a.length && y < b.length && a[x] === b[y]) {
        x++;
        y++;
      }
      next.set(k, x);
      if (x >= a.length && y >= b.length) {
        trace.push(next);
        return trace;
      }
    }
    trace.push(next);
    reached = next;
  }
  return null;
}

function pieces(all, start, end, kept) {
  const found = [];
  const add = (text, isMarked) => {
    const last = found.at(-1);
    if (last && last.isMarked === isMarked) last.text += text;
    else if (text) found.push({ text, isMarked });
  };
  add(all.slice(0, start).join(""), false);
  for (let number = start; number < end; number++) add(all[number], !kept?.has(number - start));
  add(all.slice(end).join(""), false);
  return found;
}
