// What a wallet does for the console, whichever it is.
export interface Signer {
  kind: "test" | "extension";
  name: string;
  address: string;
  sign: (text: string) => Promise<string>;
  /** Send a call to a contract; resolves when it is mined. */
  send: (to: string, data: string) => Promise<void>;
}
