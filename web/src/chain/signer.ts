// Who signs: a wallet extension (EIP-6963), or a throw-away test wallet that this browser keeps.
import { signal } from "@preact/signals";
import { bytesToHex, utf8ToBytes } from "@noble/hashes/utils.js";
import { forget, keep, remembered } from "../kept";
import { config } from "../store";
import { mined } from "./rpc";
import type { Signer } from "./wallet";

interface Provider {
  request: (call: { method: string; params?: unknown[] }) => Promise<unknown>;
}
export interface Extension {
  info: { uuid: string; name: string; icon: string; rdns: string };
  provider: Provider;
}

/** Wallet extensions that announced themselves (EIP-6963). */
export const extensions = signal<readonly Extension[]>([]);
addEventListener("eip6963:announceProvider", (event) => {
  const found = (event as CustomEvent<Extension>).detail;
  if (!extensions.value.some((each) => each.info.uuid === found.info.uuid)) extensions.value = [...extensions.value, found];
});
dispatchEvent(new Event("eip6963:requestProvider"));

export const hasTestWallet = (): boolean => remembered("testWallet") !== null;

/** The test wallet of this browser; a new one if there is none. Its code is loaded when it is first used. */
export const testWallet = async (): Promise<Signer> => (await import("./test_wallet")).openTestWallet();

export function forgetTestWallet(): void {
  forget("testWallet");
  forget("wallet");
}

export async function extensionWallet({ info, provider }: Extension): Promise<Signer> {
  const accounts = (await provider.request({ method: "eth_requestAccounts" })) as string[];
  const address = accounts[0];
  if (address === undefined) throw new Error(`${info.name}: no account`);
  keep("wallet", info.rdns);
  return {
    kind: "extension",
    name: info.name,
    address,
    sign: async (text) =>
      (await provider.request({ method: "personal_sign", params: [`0x${bytesToHex(utf8ToBytes(text))}`, address] })) as string,
    signTyped: async (data) => {
      await useChain(provider);
      return (await provider.request({ method: "eth_signTypedData_v4", params: [address, JSON.stringify(data)] })) as string;
    },
    send: async (to, data) => {
      await useChain(provider);
      const hash = await provider.request({ method: "eth_sendTransaction", params: [{ from: address, to, data }] });
      await mined(hash as string);
    },
  };
}

async function useChain(provider: Provider): Promise<void> {
  const chain = config.value;
  if (chain === null) return;
  const chainId = `0x${chain.chainId.toString(16)}`;
  if ((await provider.request({ method: "eth_chainId" })) === chainId) return;
  try {
    await provider.request({ method: "wallet_switchEthereumChain", params: [{ chainId }] });
  } catch {
    const nativeCurrency = { name: "Test coin", symbol: "TEST", decimals: 18 };
    const added = { chainId, chainName: chain.chainName, rpcUrls: [chain.rpcUrl], nativeCurrency };
    await provider.request({ method: "wallet_addEthereumChain", params: [added] });
  }
}

/** The wallet that was used last in this browser; null if there is none. */
export async function lastSigner(): Promise<Signer | null> {
  const name = remembered("wallet");
  if (name === "test") return testWallet();
  const extension = extensions.value.find((each) => each.info.rdns === name);
  return extension === undefined ? null : extensionWallet(extension);
}
