// Why a session ended, as this page says it: who ended it sees "you", and whether it was in this browser.
import { short } from "../format";
import { keep, remembered } from "../kept";
import type { Session } from "../store";
import { t, type Word } from "../strings";

const ENDINGS: Record<string, Word> = {
  CONSUMER_ENDED: "endConsumer", OPERATOR_ENDED: "endOperator", MAX_DURATION: "endDuration", LOCATION_STALE: "endLocation",
  GEOFENCE_EXIT: "endFence", MEDIA_LOST: "endMedia", FUNDS_LOST: "endFunds", CONSUMER_LOST: "endConsumerLost", PLATFORM_ENDED: "endPlatform",
  CONSUMER_CANCELLED: "endCancelled", OPERATOR_CANCELLED: "endOperatorCancelled", WAIT_TIMEOUT: "endWait", START_TIMEOUT: "endStart",
};
const NAME = "ended";
const KEPT_MAX = 50;

const endedHere = (): string[] => remembered(NAME)?.split(" ") ?? [];
/** Remember that this browser ended a session. */
export const noteEnd = (id: string): void => keep(NAME, [...endedHere(), id].slice(-KEPT_MAX).join(" "));

type Ended = Pick<Session, "id" | "endReason" | "consumerWorkspaceId" | "operatorWorkspaceId"> & Partial<Pick<Session, "endedBy">>;
/** `own`: the workspace of who reads it. */
export function endingOf({ id, endReason, endedBy, consumerWorkspaceId, operatorWorkspaceId }: Ended, own: string | undefined): string {
  const by = endReason === "CONSUMER_ENDED" ? consumerWorkspaceId : endReason === "OPERATOR_ENDED" ? operatorWorkspaceId : null;
  if (by !== null && by === own && endedHere().includes(id)) return t("endYou");
  if (by !== null && by === own) return endedBy == null ? t("endYours") : t(endedBy.kind === "WALLET" ? "endYourWallet" : "endYourKey", { name: short(endedBy.id) });
  const word = endReason === null ? undefined : ENDINGS[endReason];
  return word === undefined ? (endReason ?? "") : t(word);
}
