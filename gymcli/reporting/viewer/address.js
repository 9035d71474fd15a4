// The address after the # determines what is shown, so that links, reload and the back button work.

/** The names that select and sort the listed rollouts; they are passed on from page to page. */
export const LISTING = [
  "run",
  "where",
  "only_env",
  "only_status",
  "only_stop_reason",
  "only_reward",
  "containing",
  "sort",
  "offset",
];

/** Reads the address into an object of strings, without defaults. */
export function read() {
  return Object.fromEntries(new URLSearchParams(location.hash.slice(1)));
}

/** Returns the address of a place; empty values are left out. */
export function link(place) {
  const said = new URLSearchParams();
  for (const [name, value] of Object.entries(place)) {
    if (value !== null && value !== undefined && value !== "") said.set(name, value);
  }
  return `#${said}`;
}

/** Opens a place; the back button returns here. */
export function go(place) {
  location.hash = link(place);
}

/** Returns the part of a place that selects the listed rollouts. */
export function listing(place) {
  return Object.fromEntries(
    LISTING.filter((name) => place[name]).map((name) => [name, place[name]]),
  );
}

/** Returns the place of a row's rollout. */
export function rolloutPlace(place, row, run = place.run) {
  const key = { env: row.env, task: row.task_id, attempt: row.attempt };
  return { ...listing(place), run, view: "rollout", ...key };
}

/** Returns the place that shows all attempts of a task side by side. */
export function taskPlace(place, row) {
  return { ...listing(place), view: "task", env: row.env, task: row.task_id };
}

/** Returns whether a place belongs to this row. */
export function isAt(place, row) {
  return (
    place.env === row.env && place.task === row.task_id && place.attempt === String(row.attempt)
  );
}
