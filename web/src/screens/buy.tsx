// Ask for a view: where, how long, what it costs at most.
import { useSignal, type Signal } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";
import { ApiError, api, need, once, type Model } from "../api";
import { requestSession } from "../chain/payment";
import { explain } from "../errors";
import { clock, distanceM, effect, inCents, metres, roughly, usdc } from "../format";
import { positionProblem } from "../live/problems";
import { nearestCell, operatorsAt, useCoverage, type Cell } from "../map/coverage";
import { noteSent } from "../live/sent";
import { PlaceMap } from "../map/map";
import { Banner, Button, Card, Countdown, Facts, Field, Icon, Page } from "../parts";
import { PlaceField } from "../place/field";
import { keepName } from "../place/names";
import { DURATIONS, RADII, draftOf } from "../place/draft";
import { chosenName, keepPlace, keptPlace, placeAt } from "../place/place";
import { go, link } from "../router";
import { awaited, fieldOf, funds, mayChange, notify, now, refreshFunds, report, unpaidText, unpayable, workspace } from "../store";
import { t } from "../strings";

/** Without an open page of the console the server ends the view after this time. Pages that show the view renew it. */
const LEASE_S = 60;
/** How long after a price could not be read it is asked for again. */
const PRICE_AGAIN_MS = 3000;
/** Whether the steps of the start are done, so that only more of the same helps. */
const isSetUp = (): boolean => BigInt(funds.value?.trackedBalance ?? "0") > 0n && BigInt(funds.value?.trackedAllowance ?? "0") > 0n;

export default function Buy() {
  const where = useSignal(keptPlace());
  const { duration, radius, instructions } = draftOf(workspace.value?.id ?? "");
  const quote = useSignal<Model["Quote"] | null>(null);
  const failure = useSignal<string | null>(null);
  const asked = useRef("");
  const newest = useRef("");
  const isOutdated = useRef(false);
  const tries = useSignal(0);
  const retry = useRef(0);
  useEffect(() => () => clearTimeout(retry.current), []);
  newest.current = `${where.value.point?.lat} ${where.value.point?.lng} ${duration.value}`;
  const { coverage, isWide, onView } = useCoverage();
  const nearest = useSignal<Cell | null>(null);
  const chosen = where.value.point;
  // Operators who came or went make the price of before wrong.
  const here = chosen === null || coverage === null ? null : operatorsAt(coverage, chosen);
  const isExpired = quote.value !== null && Date.parse(quote.value.expiresAt) <= now.value;

  const ask = async (): Promise<void> => {
    if (chosen === null) return;
    const wanted = newest.current;
    const isOld = (): boolean => newest.current !== wanted;
    clearTimeout(retry.current);
    const again = (): void => {
      if (isOld()) return;
      asked.current = "";
      tries.value += 1;
    };
    try {
      const query = { lat: chosen.lat, lng: chosen.lng, durationSeconds: duration.value };
      const answer = await need(api.GET("/api/v1/pricing/quote", { params: { query } }));
      if (isOld()) return;
      quote.value = answer;
      failure.value = null;
      void refreshFunds().catch(() => undefined); // the wallet as it was last read is shown meanwhile
    } catch (error) {
      if (isOld()) return;
      quote.value = null;
      failure.value = explain(error);
      if (!(error instanceof ApiError)) return;
      if (error.status === 401) report(error);
      const passes = error.status === 0 || error.status === 429 || error.status >= 500;
      if (passes) retry.current = window.setTimeout(again, (error.retryAfterS ?? 0) * 1000 + PRICE_AGAIN_MS);
    }
  };
  // A new place, duration or an expired quote asks for a new price, half a second after the last change.
  useEffect(() => void (isOutdated.current = true), [here]);
  useEffect(() => {
    const wanted = newest.current;
    // The price of the former place is no offer for this one.
    if (asked.current !== wanted) {
      quote.value = null;
      asked.current = "";
    }
    if (chosen === null) {
      quote.value = null;
      return;
    }
    if (asked.current === wanted && !isExpired && !isOutdated.current) return;
    const timer = setTimeout(() => {
      asked.current = wanted;
      isOutdated.current = false;
      void ask();
    }, 400);
    return () => clearTimeout(timer);
  }, [where.value, duration.value, isExpired, here, tries.value]);

  const locate = (): Promise<void> =>
    new Promise((done) =>
      navigator.geolocation.getCurrentPosition(
        ({ coords }) => (done(), (where.value = placeAt(coords.latitude, coords.longitude))),
        (error) => (done(), notify(positionProblem(error), "", true)),
        { enableHighAccuracy: true, timeout: 10_000 },
      ),
    );
  const request = async (): Promise<void> => {
    const price = quote.value;
    if (price === null || chosen === null) return;
    keepPlace(where.value);
    const name = chosenName(where.value);
    if (name !== null) keepName(name, chosen);
    const body = {
      lat: chosen.lat,
      lng: chosen.lng,
      maxDurationSeconds: duration.value,
      waitTimeoutSeconds: 300,
      radiusMeters: radius.value,
      quoteId: price.quoteId,
      maxHoldMicroUsdc: String(hold),
      requireCoverage: true,
      consumerLeaseSeconds: LEASE_S,
      ...(instructions.value.trim() !== "" && { instructions: instructions.value.trim() }),
    };
    const session = await requestSession(body);
    // Somebody may have come since the price was asked for. If every operator has just become busy, the request stays open for any of them to accept.
    if (price.availableOperators > 0 || (await areThere(chosen, duration.value).catch(() => false))) {
      const path = { id: session.id };
      try {
        noteSent(session.id, (await need(api.POST("/api/v1/sessions/{id}/dispatch", { params: { path, header: once() } }))).distanceMeters);
      } catch (error) {
        // Nobody is free, or an operator has accepted it. Whatever it is, the request exists: its page is shown.
        if (!(error instanceof ApiError && [409, 503].includes(error.status))) report(error);
      }
    }
    instructions.value = "";
    go("watch", session.id);
  };
  const findMoney = (): void => {
    keepPlace(where.value);
    if (!isSetUp()) return go("start");
    awaited.value = { extra: hold, total: hold, view: null };
    go("wallet", unpaid === null ? "" : fieldOf(unpaid));
  };

  const price = quote.value;
  const perMinute = BigInt(price?.ratePerSecondMicroUsdc ?? 0) * 60n;
  const hold = price === null ? 0n : BigInt(price.ratePerSecondMicroUsdc) * BigInt(duration.value);
  const unpaid = price === null ? null : unpayable(hold, hold);
  const isShort = unpaid?.why === "short";
  return (
    <Page title={t("buyTitle")} lead={t("buyLead")}>
      <div class="columns">
        <Card>
          <div class="form">
            <PlaceField id="place" label={t("place")} hint={t("placeHint")} place={where}>
              <Button run={locate}><Icon name="pin" />{t("myPosition")}</Button>
            </PlaceField>
            <PlaceMap
              scene={{
                fence: chosen === null ? null : { ...chosen, radiusM: radius.value },
                operator: null,
                cells: coverage?.items ?? [],
                cellDegrees: coverage?.cellDegrees ?? 0,
                isClose: false,
                also: nearest.value,
              }}
              everywhere={coverage?.everywhere ?? 0}
              isWide={isWide}
              onPick={(lat, lng) => (where.value = placeAt(lat, lng))}
              onView={onView}
            />
            <div class="pair">
              <Field label={t("duration")}>
                <select id="duration" value={duration.value} onChange={(event) => (duration.value = Number(event.currentTarget.value))}>
                  {DURATIONS.map((each) => <option key={each} value={each}>{t("minutes", { count: each / 60 })}</option>)}
                </select>
              </Field>
              <Field label={t("radius")}>
                <select id="radius" value={radius.value} onChange={(event) => (radius.value = Number(event.currentTarget.value))}>
                  {RADII.map((each) => <option key={each} value={each}>{metres(each)}</option>)}
                </select>
              </Field>
            </div>
            <Field label={t("instructions")} hint={t("instructionsHint")}>
              <textarea id="instructions" rows={3} maxLength={500} value={instructions.value} onInput={(event) => (instructions.value = event.currentTarget.value)} />
            </Field>
          </div>
        </Card>
        <Card kind="offer" title={t("price")} aside={price !== null && !isExpired && <span class="dim"><Icon name="clock" /> <Countdown until={price.expiresAt} /></span>}>
          {price === null ? (
            <p class={failure.value === null ? "dim" : "bad"} role="status">{failure.value ?? t(chosen === null ? "priceNeedsPlace" : "priceAsking")}</p>
          ) : (
            <>
              <p class="price" role="status"><span class="number">{roughly(perMinute)}</span> <small>{t("perMinute")}{inCents(perMinute)}</small></p>
              <Facts rows={[[t("operatorsHere"), String(price.availableOperators)]]} />
              <Why price={price} />
              <p class="at-most">{t("holdsAtMost", { amount: usdc(hold), time: clock(duration.value) })}</p>
              {price.ownSessionId !== null && (
                <Banner kind="info" icon="eye">{t("operatorIsYours")} <a id="own-view" href={link("watch", price.ownSessionId)}>{t("returnToView")}</a></Banner>
              )}
              {price.availableOperators === 0 && price.ownSessionId === null && chosen !== null && <Nobody key={newest.current} at={chosen} nearest={nearest} />}
              {unpaid !== null && <Banner kind="warn" icon="warn">{unpaidText(unpaid)}</Banner>}
            </>
          )}
          {isShort && <Button id="to-funds" kind="main" run={findMoney}>{t("addFunds")}</Button>}
          {unpaid !== null && !isShort && <Button id="to-limits" kind="main" run={findMoney}>{t("raiseLimits")}</Button>}
          <Button id="request" kind={unpaid === null ? "main" : "plain"} disabled={price === null || isExpired || unpaid !== null || !mayChange.value} run={request}>
            {price === null ? t("request") : t("requestFor", { amount: usdc(hold) })}
          </Button>
          {!mayChange.value && <p class="hint" id="reads-only">{t("readsOnly")}</p>}
          <p class="hint">{t("onlyProved")} {t("leaseHint")}</p>
        </Card>
      </div>
    </Page>
  );
}

const areThere = async ({ lat, lng }: { lat: number; lng: number }, durationSeconds: number): Promise<boolean> =>
  (await need(api.GET("/api/v1/pricing/quote", { params: { query: { lat, lng, durationSeconds } } }))).availableOperators > 0;

/** Nobody is there: what that means, and a wider circle on the map that shows who is nearest. */
function Nobody({ at, nearest }: { at: { lat: number; lng: number }; nearest: Signal<Cell | null> }) {
  const isAsked = useSignal(false);
  useEffect(() => () => void (nearest.value = null), []);
  const widen = async (): Promise<void> => {
    nearest.value = await nearestCell(at);
    isAsked.value = true;
  };
  const cell = nearest.value;
  const kilometres = cell === null ? 0 : Math.max(1, Math.round(distanceM(at.lat, at.lng, cell.south + cell.degrees / 2, cell.west + cell.degrees / 2) / 1000));
  const found = cell === null ? t("nobodyWider") : t("nearestOperators", { distance: metres(kilometres * 1000) });
  return (
    <Banner kind="info" icon="clock">
      {t("noOperatorYet")} {isAsked.value ? <strong id="nearest">{found}</strong> : <Button id="widen" run={widen}>{t("widen")}</Button>}
    </Banner>
  );
}

/** The factors of a price, with what made each of them. */
function Why({ price }: { price: Model["Quote"] }) {
  const { supplyFactor, demandFactor, corridorMultiplier } = price;
  const isUsual = [supplyFactor, demandFactor, corridorMultiplier].every((each) => each === 1);
  const effects: [string, number][] = [
    [t(supplyFactor > 1 ? (price.availableOperators === 0 ? "whyNone" : "whyFew") : supplyFactor < 1 ? "whyMany" : "whySome"), supplyFactor],
    [t(demandFactor > 1 ? "whyOthers" : "whyNobodyElse"), demandFactor],
    ...(corridorMultiplier === 1 ? [] : [[t("whyArea"), corridorMultiplier] as [string, number]]),
  ];
  return (
    <details class="why">
      <summary>{t("whyPrice")}</summary>
      <Facts
        rows={[
          [t("basePrice"), usdc(price.baseRatePerSecondMicroUsdc)],
          ...effects.map(([why, factor]) => [why, effect(factor)] as const),
          [t("ratePerSecond"), usdc(price.ratePerSecondMicroUsdc)],
        ]}
      />
      <p class="hint">{t(isUsual ? "whyUsual" : "whyOwn")}</p>
    </details>
  );
}
