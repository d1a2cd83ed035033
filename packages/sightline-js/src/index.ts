export { follow, type Listener } from "./events.js";
export { ApiError, connect, dataOf, failureOf, once, randomId, reach, type Client, type Connection, type Model } from "./http.js";
export { Player, type Picture, type PlayerOptions, type PlayerStatus } from "./player.js";
export { Publisher, type PublisherOptions, type Sending } from "./publisher.js";
export type { Grade, Quality } from "./quality.js";
export {
  CHECKS, chainHash, verifyReceipt, type Check, type TrustedDeployment, type Failure, type SkipReason, type Verification,
} from "./receipt.js";
export type { components, operations, paths } from "./schema.gen.js";
export { Stills, clip, frame, type Clip, type FrameQuery, type Still } from "./stills.js";
export { WebhookError, verifyWebhook, type WebhookEvent, type WebhookHeaders, type WebhookOptions } from "./webhook.js";
