// What keys and grants may do, and what they may spend.
import { useSignal, type Signal } from "@preact/signals";
import type { Model } from "../api";
import { microOf } from "../format";
import { Field } from "../parts";
import { t, type Word } from "../strings";

export type Scope = Model["MintKeyBody"]["scopes"][number];
export const SCOPES: readonly (readonly [Scope, Word])[] = [
  ["sessions:read", "scopeRead"],
  ["sessions:create", "scopeCreate"],
  ["pricing:read", "scopePricing"],
  ["wallet:read", "scopeWallet"],
  ["sessions:operate", "scopeOperate"],
];

/** Limits in USDC that a new key begins with, because a program may repeat itself. */
const SESSION_LIMIT = "2.00";
const DAY_LIMIT = "10.00";

export interface Chosen {
  perSession: Signal<string>;
  perDay: Signal<string>;
  isWrong: () => boolean;
  reset: () => void;
}

export function useLimits(): Chosen {
  const perSession = useSignal(SESSION_LIMIT);
  const perDay = useSignal(DAY_LIMIT);
  const isWrong = (): boolean => [perSession, perDay].some((each) => each.value !== "" && microOf(each.value) === null);
  const reset = (): void => void ([perSession.value, perDay.value] = [SESSION_LIMIT, DAY_LIMIT]);
  return { perSession, perDay, isWrong, reset };
}

/** The limits for the API; undefined if both fields are empty. */
export function limitsOf({ perSession, perDay }: Chosen): Model["KeyLimitsBody"] | undefined {
  const [session, day] = [microOf(perSession.value), microOf(perDay.value)];
  if (session === null && day === null) return undefined;
  return {
    ...(session !== null && { perSessionMicroUsdc: String(session) }),
    ...(day !== null && { perDayMicroUsdc: String(day) }),
  };
}

export const Limits = ({ limits, hint }: { limits: Chosen; hint: string }) => (
  <>
    <div class="pair">
      {([["perSession", limits.perSession], ["perDay", limits.perDay]] as const).map(([word, value]) => (
        <Field key={word} label={`${t(word)} (USDC)`} {...(value.value !== "" && microOf(value.value) === null && { error: t("amountWrong") })}>
          <input inputMode="decimal" value={value.value} placeholder={t("noLimit")} onInput={(event) => (value.value = event.currentTarget.value)} />
        </Field>
      ))}
    </div>
    <p class="hint">{hint}</p>
  </>
);
