// Ask for a view: where, how long, what it costs at most.
import { useSignal } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";
import { ApiError, api, need, once, type Model } from "../api";
import { clock, metres, parsePoint, point, usdc } from "../format";
import { Banner, Button, Card, Countdown, Facts, Field, Icon, Page } from "../parts";
import { go, link } from "../router";
import { explain, funds, keep, now, remembered, report } from "../store";
import { t } from "../strings";

const DURATIONS = [60, 300, 600, 1800, 3600] as const;
const RADII = [100, 250, 500, 1000, 5000] as const;

export default function Buy() {
  const where = useSignal(remembered("place") ?? "");
  const duration = useSignal(300);
  const radius = useSignal(500);
  const instructions = useSignal("");
  const quote = useSignal<Model["Quote"] | null>(null);
  const failure = useSignal<string | null>(null);
  const asked = useRef("");
  const chosen = parsePoint(where.value);
  const isExpired = quote.value !== null && Date.parse(quote.value.expiresAt) <= now.value;

  const ask = async (): Promise<void> => {
    if (chosen === null) return;
    try {
      const query = { lat: chosen.lat, lng: chosen.lng, durationSeconds: duration.value };
      quote.value = await need(api.GET("/api/v1/pricing/quote", { params: { query } }));
      failure.value = null;
    } catch (error) {
      quote.value = null;
      failure.value = error instanceof Error ? explain(error) : String(error);
      if (error instanceof ApiError && error.status === 401) report(error);
    }
  };
  // A new place, duration or an expired quote asks for a new price, half a second after the last change.
  useEffect(() => {
    const wanted = `${where.value} ${duration.value}`;
    if (chosen === null) {
      quote.value = null;
      return;
    }
    if (asked.current === wanted && !isExpired) return;
    const timer = setTimeout(() => {
      asked.current = wanted;
      void ask();
    }, 400);
    return () => clearTimeout(timer);
  }, [where.value, duration.value, isExpired]);

  const locate = (): Promise<void> =>
    new Promise((done) =>
      navigator.geolocation.getCurrentPosition(
        ({ coords }) => (done(), (where.value = point(coords.latitude, coords.longitude))),
        (error) => (done(), report(new Error(error.message))),
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
      ...(instructions.value.trim() !== "" && { instructions: instructions.value.trim() }),
    };
    const session = await need(api.POST("/api/v1/sessions", { params: { header: once() }, body }));
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
  const available = funds.value === null ? null : BigInt(funds.value.availableMicroUsdc);
  const isShort = price !== null && available !== null && available < hold;
  return (
    <Page title={t("buyTitle")} lead={t("buyLead")}>
      <div class="columns">
        <Card>
          <div class="form">
            <Field label={t("place")} hint={t("placeHint")} {...(where.value !== "" && chosen === null && { error: t("placeWrong") })}>
              <div class="with-button">
                <input id="place" inputMode="text" autoComplete="off" value={where.value} placeholder="52.52001, 13.40495" onInput={(event) => (where.value = event.currentTarget.value)} />
                <Button run={locate}><Icon name="pin" />{t("myPosition")}</Button>
              </div>
            </Field>
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
              {isShort && <Banner kind="warn" icon="warn">{t("notEnough", { amount: usdc(available ?? 0n) })} <a href={link("start")}>{t("checklist")}</a></Banner>}
            </>
          )}
          <Button id="request" kind="main" disabled={price === null || isExpired} run={request}>
            {t("requestFor", { amount: usdc(hold) })}
          </Button>
          <p class="hint">{t("onlyProved")}</p>
        </Card>
      </div>
    </Page>
  );
}
