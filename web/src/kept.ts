// What this browser keeps between visits.
const nameOf = (name: string): string => `sightline.${name}`;
export const remembered = (name: string): string | null => localStorage.getItem(nameOf(name));
export const keep = (name: string, value: string): void => localStorage.setItem(nameOf(name), value);
export const forget = (name: string): void => localStorage.removeItem(nameOf(name));
/** Call when another tab of this browser has changed a value. */
export const onKeptElsewhere = (name: string, run: () => void): void =>
  addEventListener("storage", ({ key }) => void ((key === null || key === nameOf(name)) && run()));
