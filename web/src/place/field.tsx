// A place by name, coordinates or link: a combobox of the ARIA Authoring Practices. The list follows from the text and the loaded
// names alone, never from the focus, so that it cannot be missing when Enter is pressed.
import type { ComponentChildren } from "preact";
import { useComputed, useSignal, type Signal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { point } from "../format";
import { t, type Word } from "../strings";
import { isOffEarth, isShortLink } from "./coordinates";
import { typed, type Place } from "./place";
import { mayBePostcode, postcodes, searchPostcodes, type Postcode } from "./postcodes";
import { places, search, type City, type Suggestion } from "./search";
import { searchStreets } from "./streets";

const SUGGESTIONS = 6;

interface PlaceFieldProps {
  id: string;
  label: string;
  hint: string;
  /** What the field shows. A chosen name stays, with its coordinates below. */
  place: Signal<Place>;
  /** A button beside the field. */
  children?: ComponentChildren;
}
export function PlaceField({ id, label, hint, place, children }: PlaceFieldProps) {
  const names = useSignal<readonly City[] | null>(null);
  const hasFailed = useSignal(false);
  const active = useSignal(-1);
  const closedFor = useSignal<string | null>(null);
  const chosenByEnter = useSignal<string | null>(null);
  const text = useComputed(() => place.value.text);
  const isName = useComputed(() => /\p{L}/u.test(text.value) && !/^(?:https?|geo):/i.test(text.value.trim()) && place.value.point === null);
  const codes = useSignal<readonly Postcode[] | null>(null);
  const isCode = useComputed(() => mayBePostcode(text.value) && place.value.point === null);
  /** The streets that a text names; null before the first search. */
  const streets = useSignal<{ text: string; found: readonly Suggestion[] } | null>(null);
  const options = useComputed<readonly Suggestion[]>(() => {
    const coded = isCode.value ? searchPostcodes(codes.value ?? [], text.value, SUGGESTIONS) : [];
    if (coded.length > 0 || !isName.value || names.value === null) return coded;
    const found = search(names.value, text.value, SUGGESTIONS);
    const along = streets.value?.text === text.value ? streets.value.found : [];
    // A street with this name says more than a town with a name like it.
    return found[0]?.isAlike === true && along.length > 0 ? along : [...found, ...along].slice(0, SUGGESTIONS);
  });
  const isOpen = options.value.length > 0 && closedFor.value !== text.value;

  useEffect(() => {
    if (!isName.value || names.value !== null) return;
    let isGone = false;
    places().then(
      (all) => isGone || ((names.value = all), (hasFailed.value = false)),
      () => isGone || (hasFailed.value = true),
    );
    return () => void (isGone = true);
  }, [text.value]);

  useEffect(() => {
    if (!isCode.value || codes.value !== null) return;
    let isGone = false;
    postcodes().then((all) => isGone || (codes.value = all), () => undefined); // names and coordinates work without them
    return () => void (isGone = true);
  }, [text.value]);

  useEffect(() => {
    const written = text.value;
    if (!isName.value || names.value === null) return;
    let isGone = false;
    const tell = (found: readonly Suggestion[]): void => void (isGone || (streets.value = { text: written, found }));
    searchStreets(names.value, written, SUGGESTIONS, () => isGone).then(tell, () => tell([])); // towns are found without them
    return () => void (isGone = true);
  }, [text.value, names.value]);

  const choose = ({ label, lat, lng }: Suggestion): void => {
    place.value = { text: label, point: { lat, lng } };
    active.value = -1;
  };
  // Enter may come before the names are loaded: it then chooses as soon as they are.
  useEffect(() => {
    const best = options.value[0];
    if (best !== undefined && best.isAlike !== true && chosenByEnter.value === text.value) choose(best);
  }, [options.value]);

  const press = (event: KeyboardEvent): void => {
    const count = options.value.length;
    if (event.key === "Enter") {
      const picked = options.value[Math.max(0, active.value)];
      // What is only alike is offered, and chosen by a second Enter. A street that is found after the first one is meant.
      if (picked?.isAlike === true && active.value < 0) [active.value, chosenByEnter.value] = [0, text.value];
      else if (picked !== undefined) choose(picked);
      else if (isName.value || isCode.value) chosenByEnter.value = text.value;
    } else if (event.key === "Escape") {
      closedFor.value = text.value;
      active.value = -1;
    } else if (count > 0 && (event.key === "ArrowDown" || event.key === "ArrowUp")) {
      const step = event.key === "ArrowDown" ? 1 : -1;
      active.value = isOpen ? (active.value < 0 && step < 0 ? count - 1 : (active.value + step + count) % count) : 0;
      closedFor.value = null;
    } else return;
    event.preventDefault();
  };
  const type = (written: string): void => {
    place.value = typed(written);
    active.value = -1;
    closedFor.value = null;
    chosenByEnter.value = null;
  };

  const listId = `${id}-list`;
  const where = place.value.point;
  const said = where === null || !/\p{L}/u.test(text.value) ? null : point(where.lat, where.lng);
  const isWrong = text.value !== "" && where === null && options.value.length === 0 && (!isName.value || streets.value?.text === text.value || hasFailed.value);
  const words = (): Word =>
    isShortLink(text.value) ? "placeShortLink" : isOffEarth(text.value) ? "placeOffEarth" : codes.value?.length === 0 && /\d{3}/.test(text.value) && !/[.,]/.test(text.value) ? "placeNoPostcodes" : isName.value && hasFailed.value ? "placeNamesFailed" : "placeWrong";
  const problem = isWrong ? t(words()) : null;
  const isAlike = isOpen && options.value[0]?.isAlike === true;
  return (
    <div class={problem === null ? "field" : "field wrong"}>
      <label class="label" for={id}>{label}</label>
      <div class="with-button">
        <input
          id={id}
          role="combobox"
          aria-autocomplete="list"
          aria-expanded={isOpen}
          aria-controls={listId}
          aria-describedby={`${id}-hint`}
          aria-activedescendant={isOpen && active.value >= 0 ? `${listId}-${active.value}` : undefined}
          aria-invalid={problem !== null}
          inputMode="text"
          autoComplete="off"
          value={text.value}
          placeholder={t("placeExample")}
          onInput={(event) => type(event.currentTarget.value)}
          onKeyDown={press}
        />
        {children}
      </div>
      <ul id={listId} class="options" role="listbox" aria-label={t("suggestions")} hidden={!isOpen}>
        {isOpen && options.value.map((each, at) => (
          <li key={each.label} id={`${listId}-${at}`} role="option" aria-selected={at === active.value} onMouseDown={(event) => event.preventDefault()} onClick={() => choose(each)}>
            {each.label}
          </li>
        ))}
      </ul>
      <span id={`${id}-hint`} class={problem === null ? "hint" : "hint bad"} role="status">
        {problem ?? said ?? (isAlike ? t("placeAlike") : isName.value && options.value.length === 0 && streets.value?.text !== text.value && !hasFailed.value ? t("loading") : hint)}
      </span>
    </div>
  );
}
