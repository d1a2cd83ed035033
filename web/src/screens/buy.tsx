// Ask for a view: where, how long, what it costs at most.
import { useSignal } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";
import { ApiError, api, need, once, type Model } from "../api";
import { requestSession } from "../chain/payment";
import { clock, metres, parsePoint, point, usdc } from "../format";
import { positionProblem } from "../live/problems";
import { cities, labelOf, search, type City } from "../map/cities";
import { operatorsAt, useCoverage } from "../map/coverage";
import { PlaceMap } from "../map/map";
import { Banner, Button, Card, Countdown, Facts, Field, Icon, Page } from "../parts";
import { go } from "../router";
import { config, explain, funds, keep, notify, now, remembered, refreshFunds, report } from "../store";
import { t } from "../strings";

const DURATIONS = [60, 300, 600, 1800, 3600] as const;
const SUGGESTIONS = 6;
/** Without an open page of the console the server ends the view after this time. Pages that show the view renew it. */
const LEASE_S = 60;
const RADII = [100, 250, 500, 1000, 5000] as const;

export default function Buy() {
  const where = useSignal(remembered("place") ?? "");
  const named = useSignal<readonly City[]>([]);
  const duration = useSignal(300);
  const radius = useSignal(500);
  const instructions = useSignal("");
  const quote = useSignal<Model["Quote"] | null>(null);
  const failure = useSignal<string | null>(null);
  const asked = useRef("");
  const newest = useRef("");
  const isOutdated = useRef(false);
  newest.current = `${where.value} ${duration.value}`;
  const { coverage, onView } = useCoverage();
  const chosen = parsePoint(where.value);
  // Operators who came or went make the price of before wrong.
  const here = chosen === null || coverage === null ? null : operatorsAt(coverage, chosen);
  const isExpired = quote.value !== null && Date.parse(quote.value.expiresAt) <= now.value;

  const ask = async (): Promise<void> => {
    if (chosen === null) return;
    const wanted = newest.current;
    const isOld = (): boolean => newest.current !== wanted;
    try {
      const query = { lat: chosen.lat, lng: chosen.lng, durationSeconds: duration.value };
      const answer = await need(api.GET("/api/v1/pricing/quote", { params: { query } }));
      if (isOld()) return;
      quote.value = answer;
      failure.value = null;
      await refreshFunds();
    } catch (error) {
      if (isOld()) return;
      quote.value = null;
      failure.value = error instanceof Error ? explain(error) : String(error);
      if (error instanceof ApiError && error.status === 401) report(error);
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
  }, [where.value, duration.value, isExpired, here]);

  const choose = (lat: number, lng: number): void => {
    where.value = point(lat, lng);
    named.value = [];
  };
  // A name is looked up in the browser. Enter or a click on a suggestion replaces it by its coordinates.
  const type = async (text: string): Promise<void> => {
    where.value = text;
    if (!/\p{L}/u.test(text)) return void (named.value = []);
    const found = search(await cities().catch(() => []), text, SUGGESTIONS);
    if (where.value !== text) return;
    named.value = found;
  };
  const best = named.value[0];

  const locate = (): Promise<void> =>
    new Promise((done) =>
      navigator.geolocation.getCurrentPosition(
        ({ coords }) => (done(), (where.value = point(coords.latitude, coords.longitude))),
        (error) => (done(), notify(positionProblem(error), "", true)),
        { enableHighAccuracy: true, timeout: 10_000 },
      ),
    );
  const request = async (): Promise<void> => {
    const price = quote.value;
    if (price === null || chosen === null) return;
    keep("place", where.value);
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
    if (price.availableOperators > 0) {
      // If every operator has just become busy, the request stays open for any of them to accept.
      const path = { id: session.id };
      await need(api.POST("/api/v1/sessions/{id}/dispatch", { params: { path, header: once() } })).catch((error: unknown) => {
        if (!(error instanceof ApiError && error.status === 503)) throw error;
      });
    }
    go("watch", session.id);
  };

  const price = quote.value;
  const hold = price === null ? 0n : BigInt(price.ratePerSecondMicroUsdc) * BigInt(duration.value);
  // In escrow the payment is an authorization of its own, which needs no allowance.
  const wallet = funds.value;
  const available = wallet === null ? null : config.value?.isEscrow ? BigInt(wallet.trackedBalance) - BigInt(wallet.heldMicroUsdc) : BigInt(wallet.availableMicroUsdc);
  const isShort = price !== null && available !== null && available < hold;
  return (
    <Page title={t("buyTitle")} lead={t("buyLead")}>
      <div class="columns">
        <Card>
          <div class="form">
            <Field label={t("place")} hint={t("placeHint")} {...(where.value !== "" && chosen === null && best === undefined && { error: t("placeWrong") })}>
              <div class="with-button">
                <input
                  id="place"
                  inputMode="text"
                  autoComplete="off"
                  value={where.value}
                  placeholder={t("placeExample")}
                  onInput={(event) => void type(event.currentTarget.value)}
                  onKeyDown={(event) => event.key === "Enter" && best !== undefined && choose(best.lat, best.lng)}
                />
                <Button run={locate}><Icon name="pin" />{t("myPosition")}</Button>
              </div>
            </Field>
            {named.value.length > 0 && (
              <ul class="chips" aria-label={t("suggestions")}>
                {named.value.map((city) => (
                  <li key={labelOf(city) + city.lat}>
                    <Button run={() => choose(city.lat, city.lng)}>{labelOf(city)}</Button>
                  </li>
                ))}
              </ul>
            )}
            <PlaceMap
              scene={{
                fence: chosen === null ? null : { ...chosen, radiusM: radius.value },
                operator: null,
                cells: coverage?.items ?? [],
                cellDegrees: coverage?.cellDegrees ?? 0,
                isClose: false,
              }}
              onPick={choose}
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
              <p class="price" role="status"><span class="number">{usdc(BigInt(price.ratePerSecondMicroUsdc) * 60n)}</span> <small>{t("perMinute")}</small></p>
              <Facts
                rows={[
                  [t("ratePerSecond"), usdc(price.ratePerSecondMicroUsdc)],
                  [t("basePrice"), usdc(price.baseRatePerSecondMicroUsdc)],
                  [t("factors"), `${price.supplyFactor} × ${price.demandFactor} × ${price.corridorMultiplier}`],
                  [t("operatorsHere"), String(price.availableOperators)],
                ]}
              />
              <p class="at-most">{t("holdsAtMost", { amount: usdc(hold), time: clock(duration.value) })}</p>
              {price.availableOperators === 0 && <Banner kind="info" icon="clock">{t("noOperatorYet")}</Banner>}
              {isShort && <Banner kind="warn" icon="warn">{t("notEnough", { amount: usdc(available ?? 0n) })}</Banner>}
            </>
          )}
          {isShort && <Button id="to-funds" kind="main" run={() => (keep("place", where.value), go("start"))}>{t("addFunds")}</Button>}
          <Button id="request" kind={isShort ? "plain" : "main"} disabled={price === null || isExpired || isShort} run={request}>
            {price === null ? t("request") : t("requestFor", { amount: usdc(hold) })}
          </Button>
          <p class="hint">{t("onlyProved")} {t("leaseHint")}</p>
        </Card>
      </div>
    </Page>
  );
}
