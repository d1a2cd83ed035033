// Requests a session. Where the service holds its amount in escrow, the wallet signs it first; that costs no gas.
import { api, ApiError, need, once, type Model } from "../api";
import { t } from "../strings";
import { lastSigner } from "./signer";

type Wanted = Model["CreateSessionBody"] & { quoteId: string; maxDurationSeconds: number };

export async function requestSession(wanted: Wanted): Promise<Model["Session"]> {
  try {
    return await create(wanted);
  } catch (error) {
    if (!(error instanceof ApiError && error.detail === "session:consent")) throw error;
  }
  const signer = await lastSigner();
  if (signer === null) throw new Error(t("walletGone"));
  const query = { quoteId: wanted.quoteId, maxDurationSeconds: wanted.maxDurationSeconds };
  const terms = await need(api.GET("/api/v1/sessions/terms", { params: { query } }));
  const signature = await signer.signTyped(terms.authorization);
  return create({ ...wanted, payment: { kind: "authorization", openBy: terms.openBy, signature } });
}

const create = (body: Model["CreateSessionBody"]): Promise<Model["Session"]> =>
  need(api.POST("/api/v1/sessions", { params: { header: once() }, body }));
