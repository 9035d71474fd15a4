// Asks the server that this page came from; every answer is JSON.

/** An answer that says what is wrong; `field` names the parameter, where it was one. */
export class Refused extends Error {
  constructor(message, field) {
    super(message);
    this.field = field;
  }
}

/** Reads JSON; whole numbers that JavaScript would round are given as they are written, as text. */
function parse(text) {
  if (!/\d{16}/.test(text)) return JSON.parse(text);
  return JSON.parse(text, (_, value, context) => {
    const isRounded = typeof value === "number" && Math.abs(value) > Number.MAX_SAFE_INTEGER;
    return isRounded && /^-?\d+$/.test(context?.source ?? "") ? context.source : value;
  });
}

/** Gives the answer to a question, or throws a Refused, or a TypeError where nobody answers. */
export async function ask(path, given = {}, signal = undefined) {
  const said = new URLSearchParams();
  for (const [name, value] of Object.entries(given)) {
    if (value !== null && value !== undefined && value !== "") said.set(name, value);
  }
  const answer = await fetch(`api/${path}?${said}`, { signal });
  const isJson = answer.headers.get("Content-Type")?.startsWith("application/json");
  if (!isJson) throw new Refused(`the server failed, and says why on its terminal (${path})`);
  const found = parse(await answer.text());
  if (!answer.ok) throw new Refused(found.error ?? answer.statusText, found.field);
  return found;
}
