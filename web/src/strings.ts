// The texts of the console in the chosen language. English is in the first load; another language is loaded when it is chosen.
import { signal } from "@preact/signals";
import { english } from "./languages/en";

type Key = keyof typeof english;
/** Every text in one language. The values of each text are those of the English one; web/test checks it. */
export type Catalogue = Record<Key, string>;
type Names<Text> = Text extends `${string}{${infer Name}}${infer Rest}` ? Name | Names<Rest> : never;
type NamesOf<K extends Key> = Names<(typeof english)[K]>;
type Values<K extends Key> = [NamesOf<K>] extends [never] ? [] : [values: Record<NamesOf<K>, string | number>];
/** A text without values. */
export type Word = { [K in Key]: [NamesOf<K>] extends [never] ? K : never }[Key];

/** The languages by their own names. */
export const LANGUAGES = { en: "English", de: "Deutsch", ar: "العربية" } as const;
export type Language = keyof typeof LANGUAGES;
const LOADED: Record<Exclude<Language, "en">, () => Promise<Catalogue>> = {
  de: async () => (await import("./languages/de")).german,
  ar: async () => (await import("./languages/ar")).arabic,
};
/** Languages that are written from right to left. */
const FROM_RIGHT: ReadonlySet<Language> = new Set(["ar"]);
const NAME = "sightline.language";

const isLanguage = (name: string): name is Language => name in LANGUAGES;
function preferred(): Language {
  const [kept, own] = [localStorage.getItem(NAME), navigator.language.slice(0, 2)];
  return kept !== null && isLanguage(kept) ? kept : isLanguage(own) ? own : "en";
}

/** Changes when the texts of the new language are there. */
export const language = signal<Language>("en");
let catalogue: Catalogue = english;

/** Load a language, and show it. Throws if it cannot be loaded; the present one stays. */
export async function speak(name: Language): Promise<void> {
  catalogue = name === "en" ? english : await LOADED[name]();
  language.value = name;
  localStorage.setItem(NAME, name);
}

/** Load the language that was chosen last, or else that of the browser; English where it cannot be loaded. */
export const speakPreferred = (): Promise<void> => speak(preferred()).catch(() => undefined);

export const isFromRight = (): boolean => FROM_RIGHT.has(language.value);
/** The language for numbers, dates and names, with the digits 0 to 9 in every language. */
export const locale = (): string => (language.value === "ar" ? "ar-u-nu-latn" : (regional() ?? language.value));
/** The browser's own form of the language, such as en-GB: dates and hours are written differently there. */
const regional = (): string | undefined => navigator.languages.find((each) => each.split("-")[0] === language.value);

/** Keeps an amount, a code or coordinates together and from left to right within a text from right to left. */
export const leftToRight = (text: string): string => (isFromRight() ? `\u2066${text}\u2069` : text);
/** Keeps a value apart from the text around it, in its own direction. */
const apart = (text: string): string => (isFromRight() ? `\u2068${text}\u2069` : text);

/** The text in the chosen language. */
export function t<K extends Key>(key: K, ...values: Values<K>): string {
  void language.value; // what shows the text is drawn again when the language changes
  const text = catalogue[key];
  const given: Record<string, string | number> = values[0] ?? {};
  return text.replace(/{(\w+)}/g, (_, name: string) => apart(String(given[name] ?? "")));
}
