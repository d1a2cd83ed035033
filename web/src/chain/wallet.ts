// What a wallet does for the console, whichever it is.
export interface Signer {
  kind: "test" | "extension";
  name: string;
  address: string;
  sign: (text: string) => Promise<string>;
  /** Sign typed data (EIP-712), as the server made it. */
  signTyped: (data: Record<string, unknown>) => Promise<string>;
  /** Send a call to a contract; resolves when it is mined. */
  send: (to: string, data: string) => Promise<void>;
}
