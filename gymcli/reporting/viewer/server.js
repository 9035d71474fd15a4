// Sends requests to the server of this page; every answer is JSON.

/** An error from the server; `field` is the name of the wrong parameter, if it was one. */
export class Refused extends Error {
  constructor(message, field) {
    super(message);
    this.field = field;
  }
}

/** Parses JSON; integers that JavaScript would round become strings. */
function parse(text) {
  if (!/\d{16}/.test(text)) return JSON.parse(text);
  return JSON.parse(text, (_, value, context) => {
    const isRounded = typeof value === "number" && Math.abs(value) > Number.MAX_SAFE_INTEGER;
    return isRounded && /^-?\d+$/.test(context?.source ?? "") ? context.source : value;
  });
}

/** Returns the answer to a request; throws Refused, or a TypeError if the server is down. */
export async function ask(path, given = {}, signal = undefined) {
  const said = new URLSearchParams();
  for (const [name, value] of Object.entries(given)) {
    if (value !== null && value !== undefined && value !== "") said.set(name, value);
  }
  const answer = await fetch(`api/${path}?${said}`, { signal });
  const isJson = answer.headers.get("Content-Type")?.startsWith("application/json");
  if (!isJson) throw new Refused(`the server failed; its terminal shows why (${path})`);
  const found = parse(await answer.text());
  if (!answer.ok) throw new Refused(found.error ?? answer.statusText, found.field);
  return found;
}
