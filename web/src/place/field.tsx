// A place by name, coordinates or link: a combobox of the ARIA Authoring Practices. The list follows from the text and the loaded
// names alone, never from the focus, so that it cannot be missing when Enter is pressed.
import type { ComponentChildren } from "preact";
import { useComputed, useSignal, type Signal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { coordinates } from "../format";
import { t } from "../strings";
import { isShortLink, parsePoint } from "./coordinates";
import { places, search, type City, type Suggestion } from "./search";

const SUGGESTIONS = 6;

interface PlaceFieldProps {
  id: string;
  label: string;
  hint: string;
  /** What the field shows. A chosen name is replaced by its coordinates. */
  text: Signal<string>;
  /** A button beside the field. */
  children?: ComponentChildren;
}
export function PlaceField({ id, label, hint, text, children }: PlaceFieldProps) {
  const names = useSignal<readonly City[] | null>(null);
  const hasFailed = useSignal(false);
  const active = useSignal(-1);
  const closedFor = useSignal<string | null>(null);
  const chosenByEnter = useSignal<string | null>(null);
  const chosen = useSignal<{ text: string; label: string } | null>(null);
  const isName = useComputed(() => /\p{L}/u.test(text.value) && !/^(?:https?|geo):/i.test(text.value.trim()) && parsePoint(text.value) === null);
  const options = useComputed<readonly Suggestion[]>(() => (isName.value && names.value !== null ? search(names.value, text.value, SUGGESTIONS) : []));
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

  const choose = ({ label, lat, lng }: Suggestion): void => {
    text.value = coordinates(lat, lng);
    chosen.value = { text: text.value, label };
    active.value = -1;
  };
  // Enter may come before the names are loaded: it then chooses as soon as they are.
  useEffect(() => {
    const best = options.value[0];
    if (best !== undefined && chosenByEnter.value === text.value) choose(best);
  }, [options.value]);

  const press = (event: KeyboardEvent): void => {
    const count = options.value.length;
    if (event.key === "Enter") {
      const picked = options.value[Math.max(0, active.value)];
      if (picked !== undefined) choose(picked);
      else if (isName.value) chosenByEnter.value = text.value;
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
  const type = (typed: string): void => {
    text.value = typed;
    active.value = -1;
    closedFor.value = null;
    chosenByEnter.value = null;
  };

  const listId = `${id}-list`;
  const said = chosen.value?.text === text.value ? chosen.value.label : null;
  const isWrong = text.value !== "" && parsePoint(text.value) === null && options.value.length === 0 && (!isName.value || names.value !== null || hasFailed.value);
  const problem = !isWrong ? null : isShortLink(text.value) ? t("placeShortLink") : t(isName.value && hasFailed.value ? "placeNamesFailed" : "placeWrong");
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
        {problem ?? said ?? (isName.value && names.value === null && !hasFailed.value ? t("loading") : hint)}
      </span>
    </div>
  );
}
