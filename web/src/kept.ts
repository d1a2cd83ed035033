// What this browser keeps between visits.
const nameOf = (name: string): string => `sightline.${name}`;
export const remembered = (name: string): string | null => localStorage.getItem(nameOf(name));
export const keep = (name: string, value: string): void => localStorage.setItem(nameOf(name), value);
export const forget = (name: string): void => localStorage.removeItem(nameOf(name));
