// What is looked at stands behind the # of the address, so that links, reload and back button work.

/** The names that say which rollouts are listed, and how; they go along from page to page. */
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

/** Reads the address: an object of strings, in which nothing is there that was not said. */
export function read() {
  return Object.fromEntries(new URLSearchParams(location.hash.slice(1)));
}

/** Gives the address of a place; what is empty is left out. */
export function link(place) {
  const said = new URLSearchParams();
  for (const [name, value] of Object.entries(place)) {
    if (value !== null && value !== undefined && value !== "") said.set(name, value);
  }
  return `#${said}`;
}

/** Goes to a place; the back button leads back here. */
export function go(place) {
  location.hash = link(place);
}

/** Gives what of a place says which rollouts are listed. */
export function listing(place) {
  return Object.fromEntries(
    LISTING.filter((name) => place[name]).map((name) => [name, place[name]]),
  );
}

/** Gives the place of a row's rollout. */
export function rolloutPlace(place, row, run = place.run) {
  const key = { env: row.env, task: row.task_id, attempt: row.attempt };
  return { ...listing(place), run, view: "rollout", ...key };
}

/** Gives the place where all attempts of a task stand side by side. */
export function taskPlace(place, row) {
  return { ...listing(place), view: "task", env: row.env, task: row.task_id };
}

/** Says whether a place is that of this row. */
export function isAt(place, row) {
  return (
    place.env === row.env && place.task === row.task_id && place.attempt === String(row.attempt)
  );
}
