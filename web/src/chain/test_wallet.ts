// A key pair in this browser, for test chains: phones have no wallet extensions, and strangers no wallet.
import { addr, eip191Signer, signTyped, Transaction } from "micro-eth-signer";
import { mined, rpc } from "./rpc";
import type { Signer } from "./wallet";
import { keep, remembered } from "../kept";

type TypedJson = Parameters<typeof signTyped>[0];

export const addressOf = (key: string): string => addr.fromPrivateKey(key);

export function openTestWallet(): Signer {
  const key = remembered("testWallet") ?? addr.random().privateKey;
  keep("testWallet", key);
  keep("wallet", "test");
  const address = addr.fromPrivateKey(key);
  return { kind: "test", name: "test", address, sign: async (text) => eip191Signer.sign(text, key), signTyped: async (data) => signTyped(data as TypedJson, key), send };

  async function send(to: string, data: string): Promise<void> {
    const call = { from: address, to, data };
    const [nonce, price, gas, chainId] = await Promise.all([
      rpc<string>("eth_getTransactionCount", address, "latest"),
      rpc<string>("eth_gasPrice"),
      rpc<string>("eth_estimateGas", call),
      rpc<string>("eth_chainId"),
    ]);
    const transaction = Transaction.prepare({
      to: addr.addChecksum(to),
      value: 0n,
      data,
      nonce: BigInt(nonce),
      chainId: BigInt(chainId),
      gasLimit: (BigInt(gas) * 5n) / 4n,
      maxFeePerGas: BigInt(price) * 2n,
      maxPriorityFeePerGas: BigInt(price) / 2n,
    });
    await mined(await rpc<string>("eth_sendRawTransaction", transaction.signBy(key).toHex()));
  }
}
