// Payments that a wallet signs, where the service holds the amounts of sessions in escrow. A signature costs no gas.
import { bytesToHex, randomBytes } from "@noble/hashes/utils.js";
import { api, ApiError, need, once, type Model } from "../api";
import { config, funds } from "../store";
import { encodeCall } from "./rpc";
import { lastSigner } from "./signer";
import type { Signer } from "./wallet";

type Wanted = Model["CreateSessionBody"] & { quoteId: string; maxDurationSeconds: number };

/** Request a session. The workspace's own wallet signs its payment; another member's request is paid under the mandate. */
export async function requestSession(wanted: Wanted): Promise<Model["Session"]> {
  const signer = config.value?.isEscrow ? await lastSigner() : null;
  if (signer === null || signer.address.toLowerCase() !== funds.value?.walletAddress.toLowerCase()) return create(wanted);
  const query = { quoteId: wanted.quoteId, maxDurationSeconds: wanted.maxDurationSeconds };
  const terms = await need(api.GET("/api/v1/sessions/terms", { params: { query } }));
  const signature = await signer.signTyped(terms.authorization);
  return create({ ...wanted, payment: { kind: "authorization", openBy: terms.openBy, signature } });
}

/** Give a LIVE session more time, paid as `requestSession` pays. */
export async function extendSession(id: string, seconds: number): Promise<Model["Session"]> {
  const params = { path: { id }, header: once() };
  const signer = config.value?.isEscrow ? await lastSigner() : null;
  if (signer === null || signer.address.toLowerCase() !== funds.value?.walletAddress.toLowerCase())
    return need(api.POST("/api/v1/sessions/{id}/extend", { params, body: { seconds } }));
  const terms = await need(api.GET("/api/v1/sessions/{id}/extend/terms", { params: { path: { id }, query: { seconds } } }));
  const signature = await signer.signTyped(terms.authorization);
  return need(api.POST("/api/v1/sessions/{id}/extend", { params, body: { seconds, payment: { kind: "authorization", openBy: terms.openBy, signature } } }));
}

const create = (body: Model["CreateSessionBody"]): Promise<Model["Session"]> =>
  need(api.POST("/api/v1/sessions", { params: { header: once() }, body }));

/** Let the contract take up to an amount. In escrow the wallet signs a permit, which the service sends and pays for. */
export async function setAllowance(chain: Model["ChainConfig"], signer: Signer, amount: bigint): Promise<void> {
  const offer = chain.isEscrow ? await permitOf(amount) : null;
  if (offer === null) {
    await signer.send(chain.usdcAddress, encodeCall("approve(address,uint256)", chain.settlementAddress, amount));
    return;
  }
  const { typedData, ...permit } = offer;
  const signature = await signer.signTyped(typedData);
  await need(api.POST("/api/v1/wallet/permit", { params: { header: once() }, body: { permit, signature } }));
}

/** What the wallet signs; null if the token has no permit. */
async function permitOf(amount: bigint): Promise<Model["PermitOffer"] | null> {
  try {
    return await need(api.GET("/api/v1/wallet/permit", { params: { query: { value: String(amount) } } }));
  } catch (error) {
    if (error instanceof ApiError && error.status === 404) return null;
    throw error;
  }
}

const MANDATE_DAYS = 30;
const FEE_BPS_MAX = 1_500;
const DOMAIN = [["name", "string"], ["version", "string"], ["chainId", "uint256"], ["verifyingContract", "address"]];
const MANDATE = [
  ["payer", "address"], ["delegate", "address"], ["maxPerSession", "uint256"], ["maxPerDay", "uint256"], ["maxRatePerSecond", "uint256"],
  ["maxFeeBps", "uint256"], ["validUntil", "uint256"], ["salt", "bytes32"],
];

/** Sign limits within which API keys pay for sessions, for 30 days. The rate is limited by the session's amount alone. */
export async function signMandate(chain: Model["ChainConfig"], signer: Signer, perSession: bigint, perDay: bigint): Promise<Model["SignedMandateBody"]> {
  const mandate = {
    payer: signer.address,
    maxPerSession: String(perSession),
    maxPerDay: String(perDay),
    maxRatePerSecond: String(perSession),
    maxFeeBps: FEE_BPS_MAX,
    validUntil: Math.floor(Date.now() / 1_000) + MANDATE_DAYS * 86_400,
    salt: `0x${bytesToHex(randomBytes(32))}`,
  };
  const signature = await signer.signTyped({
    types: { EIP712Domain: named(DOMAIN), Mandate: named(MANDATE) },
    primaryType: "Mandate",
    domain: { name: "SessionEscrow", version: "1", chainId: chain.chainId, verifyingContract: chain.settlementAddress },
    message: { ...mandate, delegate: `0x${"0".repeat(40)}`, maxFeeBps: String(mandate.maxFeeBps), validUntil: String(mandate.validUntil) },
  });
  return { mandate, signature };
}

const named = (fields: string[][]): { name: string; type: string }[] => fields.map(([name = "", type = ""]) => ({ name, type }));
