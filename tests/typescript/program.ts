// A consumer and an operator in a browser, as a customer would write them. Only compiled.
import { ApiError, Player, Publisher, connect, dataOf, follow, once, verifyReceipt, verifyWebhook, type Model } from "sightline-js";

const sl = connect({ url: "https://sightline.example", key: "ska_live_1" });

export async function watch(video: HTMLVideoElement): Promise<void> {
  const quote = await dataOf(sl.GET("/api/v1/pricing/quote", { params: { query: { lat: 52.52, lng: 13.405, durationSeconds: 60 } } }));
  const body = { lat: 52.52, lng: 13.405, maxDurationSeconds: 60, quoteId: quote.quoteId };
  const session: Model["Session"] = await dataOf(sl.POST("/api/v1/sessions", { params: { header: once() }, body }));
  if (session.whepUrl !== null) new Player(video, session.whepUrl, { onChange: ({ picture }) => console.log(picture) });
  follow(`https://sightline.example/api/v1/sessions/${session.id}/events`, { onEvent: console.log }, "ska_live_1");
  try {
    await dataOf(sl.POST("/api/v1/sessions/{id}/end", { params: { path: { id: session.id }, header: once() } }));
  } catch (error) {
    if (!(error instanceof ApiError) || error.status !== 409) throw error;
  }
  const receipt = await dataOf(sl.GET("/api/v1/sessions/{id}/receipt", { params: { path: { id: session.id } } }));
  const deployment = await dataOf(sl.GET("/api/v1/config"));
  const { failures, skipped } = verifyReceipt(receipt, deployment, null);
  console.log(failures, skipped.get("settled"));
}

export const film = (whipUrl: string, media: MediaStream): Publisher => new Publisher(whipUrl, media);

/** The type of an event decides the type of its data. */
export function handle(body: string, headers: Headers): number {
  const event = verifyWebhook(body, headers, "whsec_AAAA");
  if (event.type === "webhook.ping") return event.data.webhookId.length;
  return "cleanSeconds" in event.data ? event.data.cleanSeconds : event.data.sequence;
}

// @ts-expect-error: the path does not exist
void sl.GET("/api/v1/nothing");
