// Pays for a POST with the official client of x402 for TypeScript, and prints the answer. Arguments: URL, JSON of the body, optionally an
// API key. EVM_KEY: the wallet's. USDC: the token, which the client does not know on a test chain.
import { createRequire } from "node:module";

const require = createRequire(`${process.env.X402_MODULES}/`);
const { wrapFetchWithPayment, x402Client, decodePaymentResponseHeader } = require("@x402/fetch");
const { ExactEvmScheme } = require("@x402/evm/exact/client");
const { privateKeyToAccount } = require("viem/accounts");

const [url, body, key] = process.argv.slice(2);
const client = new x402Client().register("eip155:*", new ExactEvmScheme(privateKeyToAccount(process.env.EVM_KEY)));
const limit = process.env.X402_LIMIT && { maxAmountPerPayment: process.env.X402_LIMIT };
client.setSpendControls({ allowedAssets: [{ network: "eip155:*", asset: process.env.USDC, ...limit }] });
const answer = await wrapFetchWithPayment(fetch, client)(url, {
  method: "POST",
  headers: { "content-type": "application/json", ...(key && { authorization: `Bearer ${key}` }) },
  body,
});
const paid = answer.headers.get("PAYMENT-RESPONSE");
console.log(JSON.stringify({ status: answer.status, body: await answer.json(), paid: paid && decodePaymentResponseHeader(paid) }));
