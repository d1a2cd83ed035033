// Test money of a test network, where the service offers it.
import { signal } from "@preact/signals";
import { ApiError, api, need, once } from "../api";
import { funds, refreshFunds } from "../store";

export const TEST_MONEY = 10_000_000n;
const READ_MS = 300;
const READS_MAX = 40;

/** False once the service has said that it offers none. */
export const hasFaucet = signal(true);

/** Read the wallet until its amounts hold what is expected of them, for about 12 s; returns whether they do. */
export async function untilFunds(holds: () => boolean): Promise<boolean> {
  for (let tries = 0; tries < READS_MAX; tries++) {
    await refreshFunds();
    if (holds()) return true;
    await new Promise((done) => setTimeout(done, READ_MS));
  }
  return false;
}

/** Send test money to the wallet; returns whether it arrived. Without a faucet it only looks. */
export async function takeTestMoney(): Promise<boolean> {
  const before = hasFaucet.value ? BigInt(funds.value?.trackedBalance ?? "0") : 0n;
  try {
    if (hasFaucet.value) await need(api.POST("/api/v1/wallet/faucet", { headers: once(), body: { amountMicroUsdc: String(TEST_MONEY) } }));
  } catch (error) {
    if (!(error instanceof ApiError && error.detail === "faucet:notOffered")) throw error;
    hasFaucet.value = false;
    return false;
  }
  return untilFunds(() => BigInt(funds.value?.trackedBalance ?? "0") > before);
}
