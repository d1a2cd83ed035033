// Reads of the chain by JSON-RPC, and the few call encodings that the console needs.
import { keccak_256 } from "@noble/hashes/sha3.js";
import { bytesToHex, utf8ToBytes } from "@noble/hashes/utils.js";
import { reach } from "../api";
import { config } from "../store";

export interface Log {
  address: string;
  topics: string[];
  data: string;
  logIndex: string;
}
export interface TransactionReceipt {
  status: string;
  blockNumber: string;
  logs: Log[];
}

const ANSWER_MS = 10_000;
const MINED_MS = 60_000;

export const rpc = <T>(method: string, ...params: unknown[]): Promise<T> => ask<T>(method, params);

async function ask<T>(method: string, params: unknown[], within?: AbortSignal): Promise<T> {
  const url = config.value?.rpcUrl ?? "/rpc";
  const answer = await reach(url, {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify({ jsonrpc: "2.0", id: 1, method, params }),
    ...(within !== undefined && { signal: within }),
  });
  const body = (await answer.json()) as { result?: T; error?: { message: string } };
  if (body.error !== undefined) throw new Error(`${method}: ${body.error.message}`);
  return body.result as T;
}

export const keccak = (text: string): string => bytesToHex(keccak_256(utf8ToBytes(text)));

const word = (value: string | bigint): string =>
  (typeof value === "bigint" ? value.toString(16) : value.toLowerCase().replace(/^0x/, "")).padStart(64, "0");

/** The data of a contract call, for arguments of one word each. */
export const encodeCall = (signature: string, ...values: (string | bigint)[]): string =>
  `0x${keccak(signature).slice(0, 8)}${values.map(word).join("")}`;

/** The words of returned or logged data. */
export const wordsOf = (data: string): bigint[] => (data.slice(2).match(/.{64}/g) ?? []).map((each) => BigInt(`0x${each}`));

export async function read(to: string, signature: string, ...values: (string | bigint)[]): Promise<bigint[]> {
  return wordsOf(await rpc<string>("eth_call", { to, data: encodeCall(signature, ...values) }, "latest"));
}

/** Wait until a transaction is in a block. Throws if it failed, or after 60 s. A question that failed says nothing of the transaction. */
export async function mined(hash: string): Promise<TransactionReceipt> {
  const end = performance.now() + MINED_MS;
  let unanswered: unknown = null;
  while (performance.now() < end) {
    let receipt: TransactionReceipt | null = null;
    try {
      receipt = await ask<TransactionReceipt | null>("eth_getTransactionReceipt", [hash], AbortSignal.timeout(ANSWER_MS));
      unanswered = null;
    } catch (error) {
      unanswered = error;
    }
    if (receipt?.status === "0x1") return receipt;
    if (receipt !== null) throw new Error(`transaction ${hash} failed`);
    await new Promise((done) => setTimeout(done, 400));
  }
  throw unanswered ?? new Error(`transaction ${hash} is not mined after 60 s`);
}
