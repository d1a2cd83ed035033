// Verifies the receipt of a session: recomputes every number from the recorded events. The same rules as
// sightline/domain/receipt.py; docs/vectors/receipts.json has the results that both must give.
import { keccak_256 } from "@noble/hashes/sha3.js";
import { sha256 } from "@noble/hashes/sha2.js";
import { bytesToHex, utf8ToBytes } from "@noble/hashes/utils.js";

export const CHECKS = ["hashChain", "cleanSeconds", "charge", "fee", "settled"] as const;
export type Check = (typeof CHECKS)[number];

/** One value that is wrong. `line` is its path in the receipt, for example `events[3]`. */
export interface Failure {
  check: Check;
  line: string;
  message: string;
}
/**
 * Why a check was not made. `deploymentMissing`: the caller named no chain and contracts to trust; a receipt may name any
 * contract, also one made to forge it. `notSettled`: the receipt claims no payment. `transactionMissing`: the caller gave no
 * transaction from a node of the chain.
 */
export type SkipReason = "deploymentMissing" | "notSettled" | "transactionMissing";
/** `skipped` has the checks that were not made: what they would compare is not proved. */
export interface Verification {
  failures: readonly Failure[];
  skipped: ReadonlyMap<Check, SkipReason>;
}
/** The chain and the contracts that the caller trusts, known from another source than the receipt. */
export interface TrustedDeployment {
  chainId: number;
  settlementAddress: string;
  usdcAddress: string;
}

class Malformed extends Error {
  constructor(readonly line: string, message: string) {
    super(message);
  }
}

const keccak = (text: string): string => bytesToHex(keccak_256(utf8ToBytes(text)));
const ascii = (text: string): string => text.replace(/[^\x00-\x7f]/g, (char) => `\\u${char.charCodeAt(0).toString(16).padStart(4, "0")}`);

/** A value of decoded JSON and its path. */
class Node {
  constructor(readonly value: unknown, readonly line = "") {}

  at(name: string): Node {
    if (typeof this.value !== "object" || this.value === null || Array.isArray(this.value)) throw new Malformed(this.line || "receipt", "is not an object");
    const line = this.line === "" ? name : `${this.line}.${name}`;
    if (!Object.hasOwn(this.value, name)) throw new Malformed(line, "is missing");
    return new Node((this.value as Record<string, unknown>)[name], line);
  }
  /** The member of this name, or the fallback: receipts of earlier versions do not have it. */
  get(name: string, fallback: unknown): Node {
    const isMissing = typeof this.value === "object" && this.value !== null && !Object.hasOwn(this.value, name);
    return isMissing ? new Node(fallback, `${this.line}.${name}`) : this.at(name);
  }
  items(): Node[] {
    if (!Array.isArray(this.value)) throw new Malformed(this.line, "is not an array");
    return this.value.map((each, index) => new Node(each, `${this.line}[${index}]`));
  }
  text(): string {
    if (typeof this.value !== "string") throw new Malformed(this.line, "is not a string");
    return this.value;
  }
  boolean(): boolean {
    if (typeof this.value !== "boolean") throw new Malformed(this.line, "is not true or false");
    return this.value;
  }
  integer(): number {
    if (!Number.isInteger(this.value)) throw new Malformed(this.line, "is not an integer");
    return this.value as number;
  }
  number(): number {
    if (typeof this.value !== "number") throw new Malformed(this.line, "is not a number");
    return this.value;
  }
  money(): bigint {
    if (!/^(0|[1-9]\d{0,77})$/.test(this.text())) throw new Malformed(this.line, "is not an amount");
    return BigInt(this.text());
  }
  hex(): bigint {
    if (!/^0x[\da-f]+$/i.test(this.text())) throw new Malformed(this.line, "is not a hexadecimal number");
    return BigInt(this.text());
  }
  instantMs(): number {
    const ms = /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/.test(this.text()) ? Date.parse(this.text()) : NaN;
    if (Number.isNaN(ms)) throw new Malformed(this.line, "is not an instant in UTC with milliseconds");
    return ms;
  }
}

interface Event {
  line: string;
  kind: string;
  atMs: number;
  facts: Map<string, Node>;
  hash: string;
}
type Window = readonly [from: number, to: number, reason: string];

/** The hash of an event over the hash before it and the event as canonical JSON. */
export const chainHash = (previous: string, sessionId: string, sequence: number, kind: string, atMs: number, facts: unknown[][]): string =>
  bytesToHex(sha256(utf8ToBytes(ascii(JSON.stringify([previous, sessionId, sequence, kind, atMs, facts])))));

/**
 * Recompute a receipt and return every value that is wrong; never throws for a malformed one.
 * `deployment` is the chain and the contracts that must have paid; null skips `settled`, because the addresses in the receipt are
 * only what its author states. `chain` is what a node that you trust answers: `chainId` (a number), and `receipt` (the result of
 * eth_getTransactionReceipt for `settlement.txHash`); null skips `settled`.
 */
export function verifyReceipt(receipt: unknown, deployment: TrustedDeployment | null, chain: unknown): Verification {
  const checks = new Receipt(new Node(receipt));
  checks.run("hashChain", () => checks.hashChain());
  checks.run("cleanSeconds", () => checks.cleanSeconds());
  checks.run("charge", () => checks.charge());
  checks.run("fee", () => checks.fee());
  checks.run("settled", () => checks.settled(deployment, new Node(chain ?? null, "chain")));
  return checks;
}

class Receipt implements Verification {
  readonly failures: Failure[] = [];
  readonly skipped = new Map<Check, SkipReason>();
  private check: Check = "hashChain";
  /** The last event of each kind. */
  private last = new Map<string, Event>();

  constructor(private readonly root: Node) {}

  run(check: Check, work: () => void): void {
    this.check = check;
    try {
      work();
    } catch (error) {
      if (!(error instanceof Malformed)) throw error;
      this.fail(error.line, error.message);
    }
  }

  private fail(line: string, message: string): void {
    this.failures.push({ check: this.check, line, message });
  }
  private expect(node: Node, expected: string | number | boolean | null): void {
    if (node.value !== expected) this.fail(node.line, `is ${shown(node.value)}, expected ${shown(expected)}`);
  }
  private expectAddress(node: Node, expected: string): void {
    if (node.text().toLowerCase() !== expected.toLowerCase()) this.fail(node.line, `is ${node.text()}, expected ${expected}`);
  }
  private expectInstant(node: Node, event: Event | undefined): void {
    const atMs = node.value === null ? null : node.instantMs();
    if (atMs !== (event?.atMs ?? null)) this.fail(node.line, `is ${shown(node.value)}, not the instant ${event?.atMs ?? "null"} of the event`);
  }
  private of(kind: string): Event {
    const event = this.last.get(kind);
    if (event === undefined) throw new Malformed("events", `have no event ${kind}`);
    return event;
  }

  /** Recompute every hash on top of the one that the receipt gives before it, so that one forged event is one failure. */
  private chained(sessionId: Node, events: Node): string {
    let previous = "";
    const wrong: [string, string][] = [];
    const all = events.items();
    all.forEach((event, index) => {
      this.expect(event.at("sequence"), index + 1);
      const facts = event.at("facts").items().map((fact) => [fact.at("name").text(), fact.at("value").value]);
      const found = chainHash(previous, sessionId.text(), event.at("sequence").integer(), event.at("kind").text(), event.at("atMs").integer(), facts);
      previous = event.at("hash").text();
      if (found !== previous) wrong.push([event.line, `hash is ${previous}, but its content and the event before give ${found}`]);
    });
    if (all.length > 0 && wrong.length === all.length) this.fail(sessionId.line, "is not the session of these events");
    else wrong.forEach(([line, message]) => this.fail(line, message));
    return previous;
  }

  hashChain(): void {
    const [session, meter, events] = [this.root.at("session"), this.root.at("meter"), this.root.at("events")];
    const head = this.chained(session.at("id"), events);
    this.expect(meter.at("headHash"), head);
    const extended: Event[] = [];
    for (const event of events.items().map(eventOf)) {
      if (event.kind === "REOPENED") this.last.delete("ASSIGNED"); // the operator did not start and was released
      if (event.kind === "EXTENDED") extended.push(event);
      this.last.set(event.kind, event);
    }
    this.expect(meter.at("endedHeadHash"), this.last.get("ENDED")?.hash ?? null);
    const over = this.last.get("ENDED") ?? this.last.get("CANCELLED") ?? this.last.get("EXPIRED");
    if (over === undefined) throw new Malformed("events", "have no end of the session");
    this.expect(session.at("state"), over.kind);
    this.expect(session.at("endReason"), scalar(factOf(over, "reason")));
    this.expectInstant(session.at("endedAt"), over);
    this.expectInstant(session.at("createdAt"), this.of("CREATED"));
    this.expectInstant(session.at("startedAt"), this.last.get("STARTED"));
    const assigned = this.last.get("ASSIGNED");
    this.expect(session.at("operatorWorkspaceId"), assigned === undefined ? null : scalar(factOf(assigned, "operatorWorkspaceId")));
    this.expectInstant(session.at("assignedAt"), assigned);
    const terms = new Map(this.of("CREATED").facts); // sessions of earlier versions have no terms there
    for (const event of extended) { // each adds its seconds to the maximum duration, and states the hold from then on
      const before = terms.get("maxDurationSeconds");
      if (before !== undefined) this.expect(factOf(event, "maxDurationSeconds"), before.integer() + factOf(event, "seconds").integer());
      for (const name of ["maxDurationSeconds", "holdMicroUsdc"]) terms.set(name, factOf(event, name));
    }
    for (const name of ["consumerWorkspaceId", "ratePerSecondMicroUsdc", "holdMicroUsdc", "maxDurationSeconds", "platformFeeBps", "radiusMeters"]) {
      const fact = terms.get(name);
      if (fact !== undefined) this.expect(session.at(name), scalar(fact));
    }
    for (const name of ["requestedLat", "requestedLng"]) {
      const fact = terms.get(name);
      if (fact !== undefined && !isRounded(session.at(name).number(), fact.value)) this.fail(session.at(name).line, `is not ${shown(fact.value)}`);
    }
  }

  cleanSeconds(): void {
    const [session, meter] = [this.root.at("session"), this.root.at("meter")];
    const ended = this.last.get("ENDED");
    const given = meter.at("windows").items().map((window) => ({
      line: window.line,
      window: [window.at("from").instantMs(), window.at("to").instantMs(), window.at("reason").text()] as const,
    }));
    const windows = ended === undefined ? [] : windowsOf(factOf(ended, "windows"));
    given.forEach(({ line, window }, index) => {
      if (window.some((value, at) => value !== windows[index]?.[at])) this.fail(line, "is not a window of the event ENDED");
    });
    if (given.length < windows.length) this.fail("meter.windows", `has ${given.length} windows, the event ENDED has ${windows.length}`);
    let clean = 0;
    if (ended !== undefined) {
      const started = this.of("STARTED");
      this.expect(factOf(ended, "startedAtMs"), started.atMs);
      const cleanMs = ended.atMs - started.atMs - dirtyMs(windows, started.atMs, ended.atMs);
      const minimum = this.of("CREATED").facts.get("minimumSeconds")?.integer() ?? 0; // earlier versions have none
      const least = cleanMs > 0 ? Math.min(minimum, Math.ceil((ended.atMs - started.atMs) / 1000)) : 0;
      clean = Math.min(session.at("maxDurationSeconds").integer(), Math.max(Math.floor(cleanMs / 1000), least));
      this.expect(factOf(ended, "cleanSeconds"), clean);
    }
    this.expect(session.at("cleanSeconds"), clean);
    this.expect(meter.at("cleanSeconds"), clean);
    this.expectInstant(meter.at("startedAt"), this.last.get("STARTED"));
    this.expectInstant(meter.at("endedAt"), ended ?? this.last.get("CANCELLED") ?? this.last.get("EXPIRED"));
  }

  charge(): void {
    const [session, settlement] = [this.root.at("session"), this.root.at("settlement")];
    const [payload, mismatched] = [settlement.at("payload"), settlement.get("mismatched", false)];
    const rate = session.at("ratePerSecondMicroUsdc").money();
    const ended = this.last.get("ENDED");
    this.expect(session.at("holdMicroUsdc"), String(rate * BigInt(session.at("maxDurationSeconds").integer())));
    if (ended === undefined) {
      this.expect(session.at("chargedMicroUsdc"), "0");
      this.expect(payload, null);
      this.expect(mismatched, false);
      return;
    }
    const clean = factOf(ended, "cleanSeconds").integer();
    let charged = BigInt(clean) * rate;
    this.expect(factOf(ended, "chargedMicroUsdc"), String(charged));
    this.expect(session.at("chargedMicroUsdc"), String(charged));
    const total = payload.at("toAmount").money() + payload.at("feeAmount").money();
    this.expect(payload.at("consumerWorkspaceId"), scalar(session.at("consumerWorkspaceId")));
    this.expect(payload.at("operatorWorkspaceId"), scalar(session.at("operatorWorkspaceId")));
    if (mismatched.boolean()) {
      const seconds = payload.at("chargeableSeconds").integer();
      const paid = `${total} micro-USDC for ${seconds} s from ${payload.at("from").text()} to ${payload.at("to").text()}`;
      const due = `${charged} micro-USDC for ${clean} s`;
      this.fail(mismatched.line, `is true: the contract settled ${paid}, but the recorded events give ${due}`);
      charged = BigInt(seconds) * payload.at("ratePerSecond").money();
    } else {
      this.expect(payload.at("ratePerSecond"), String(rate));
      this.expect(payload.at("chargeableSeconds"), clean);
      const payer = this.of("CREATED").facts.get("payerAddress"); // events of earlier versions do not name them
      if (payer !== undefined) this.expectAddress(payload.at("from"), payer.text());
      const payee = this.of("ASSIGNED").facts.get("payeeAddress");
      if (payee !== undefined) this.expectAddress(payload.at("to"), payee.text());
    }
    if (total !== charged) this.fail(payload.line, `toAmount and feeAmount add up to ${total}, not to the charge ${charged}`);
    this.expect(payload.at("sessionIdHash"), `0x${keccak(session.at("id").text().toLowerCase())}`);
  }

  fee(): void {
    const [session, settlement] = [this.root.at("session"), this.root.at("settlement")];
    const payload = settlement.at("payload");
    let bps = session.at("platformFeeBps").integer();
    if (payload.value !== null) {
      let charged = session.at("chargedMicroUsdc").money();
      if (settlement.get("mismatched", false).value === true) {
        bps = payload.at("platformFeeBps").integer(); // the numbers of the contract, which differ
        charged = payload.at("toAmount").money() + payload.at("feeAmount").money();
      }
      this.expect(payload.at("platformFeeBps"), bps);
      const fee = (charged * BigInt(bps)) / 10_000n;
      this.expect(payload.at("feeAmount"), String(fee));
      this.expect(payload.at("toAmount"), String(charged - fee));
    }
    const settled = this.last.get("SETTLED");
    const hash = settled === undefined ? null : scalar(factOf(settled, "txHash"));
    this.expect(session.at("settlementTxHash"), hash);
    const state = settlement.at("state");
    if (settled !== undefined) {
      this.expect(settlement.at("txHash"), hash);
      this.expect(state, "CONFIRMED");
    } else if (payload.value === null) this.expect(state, "NOT_READY");
    else if (state.value !== "PENDING" && state.value !== "CONFIRMED") this.fail(state.line, "is neither PENDING nor CONFIRMED");
  }

  /** Compare with what the trusted contracts logged in the transaction. */
  settled(deployment: TrustedDeployment | null, chain: Node): void {
    const [settlement, contracts] = [this.root.at("settlement"), this.root.at("contracts")];
    if (deployment === null || deployment === undefined) {
      this.skipped.set("settled", "deploymentMissing");
      return;
    }
    const [contract, token] = [deployment.settlementAddress.toLowerCase(), deployment.usdcAddress.toLowerCase()];
    this.expect(contracts.at("chainId"), deployment.chainId);
    this.expectAddress(contracts.at("settlementAddress"), deployment.settlementAddress);
    this.expectAddress(contracts.at("usdcAddress"), deployment.usdcAddress);
    if (settlement.at("txHash").value === null || settlement.at("state").value !== "CONFIRMED") {
      this.skipped.set("settled", "notSettled");
      return;
    }
    if (chain.value === null) {
      this.skipped.set("settled", "transactionMissing");
      return;
    }
    this.expect(chain.at("chainId"), deployment.chainId);
    const [payload, mined, txLine] = [settlement.at("payload"), chain.at("receipt"), "settlement.txHash"];
    if (mined.value === null) throw new Malformed(txLine, "the chain does not know this transaction");
    this.expect(settlement.at("txHash"), mined.at("transactionHash").text().toLowerCase());
    this.expect(settlement.at("blockNumber"), String(mined.at("blockNumber").hex()));
    if (mined.at("status").hex() !== 1n) this.fail(txLine, "the transaction failed");
    const logs = mined.at("logs").items();
    const topic = `0x${keccak("Settled(bytes32,address,address,uint256,uint256,uint256,uint256,uint256)")}`;
    const sessionHash = payload.at("sessionIdHash").text().toLowerCase();
    const log = logs.find((each) => isBy(each, contract) && topicsOf(each)[0] === topic && topicsOf(each)[1] === sessionHash);
    if (log === undefined) throw new Malformed(txLine, `has no event Settled of this session by the contract ${contract}`);
    const [words, [payer, payee, ...more]] = [wordsOf(log.at("data")), topicsOf(log).slice(2)];
    if (words.length !== 5 || payer === undefined || payee === undefined || more.length > 0) throw new Malformed(log.line, "is not an event Settled");
    this.expect(settlement.at("logIndex"), Number(log.at("logIndex").hex()));
    this.expectAddress(payload.at("from"), `0x${payer.slice(-40)}`);
    this.expectAddress(payload.at("to"), `0x${payee.slice(-40)}`);
    ["toAmount", "feeAmount", "ratePerSecond"].forEach((name, index) => this.expect(payload.at(name), String(words[index])));
    this.expect(payload.at("chargeableSeconds"), Number(words[3]));
    this.expect(payload.at("platformFeeBps"), Number(words[4]));
    // The head hash that the escrow contract published is that of the receipt.
    const evidence = `0x${keccak("Evidence(bytes32,bytes32,uint256)")}`;
    for (const each of logs) {
      if (!isBy(each, contract) || topicsOf(each).join() !== [evidence, sessionHash].join()) continue;
      this.expect(this.root.at("meter").at("endedHeadHash"), (wordsOf(each.at("data"))[0] ?? 0n).toString(16).padStart(64, "0"));
    }
    const amount = words[0] ?? 0n;
    if (amount === 0n) return;
    // The trusted token moved the payee's part: from the payer or from escrow, or into a credit.
    const transfer = `0x${keccak("Transfer(address,address,uint256)")}`;
    const credited = `0x${keccak("Credited(address,bytes32,uint256)")}`;
    const held = `0x${contract.slice(2).padStart(64, "0")}`;
    const ofToken = [[transfer, payer, payee], [transfer, held, payee], [transfer, payer, held]].map((topics) => topics.join());
    const isMoved = logs.some((each) => {
      const [topics, value] = [topicsOf(each).join(), wordsOf(each.at("data"))];
      const isMove = isBy(each, token) ? ofToken.includes(topics) : isBy(each, contract) && topics === [credited, payee, sessionHash].join();
      return isMove && value.length === 1 && value[0] === amount;
    });
    if (!isMoved) this.fail(txLine, `has no transfer of ${amount} by the token ${token} from the payer to the payee`);
  }
}

const shown = (value: unknown): string => (JSON.stringify(value) ?? "nothing").slice(0, 200);
const scalar = (node: Node): string | number | null => node.value as string | number | null;

function eventOf(event: Node): Event {
  const facts = event.at("facts").items().map((fact) => [fact.at("name").text(), new Node(fact.at("value").value, event.line)] as const);
  return { line: event.line, kind: event.at("kind").text(), atMs: event.at("atMs").integer(), facts: new Map(facts), hash: event.at("hash").text() };
}

function factOf(event: Event, name: string): Node {
  const fact = event.facts.get(name);
  if (fact === undefined) throw new Malformed(event.line, `has no fact ${name}`);
  return fact;
}

/** Whether a recorded coordinate is this number with six decimals; either neighbour is right for a tie. */
const isRounded = (value: number, fact: unknown): boolean =>
  typeof fact === "string" && /^-?\d+\.\d{6}$/.test(fact) && Math.abs(Number(fact) - value) < 5.0001e-7;

/** The windows of an event ENDED: `from-to REASON`, separated by `; `, in epoch milliseconds. */
function windowsOf(fact: Node): Window[] {
  const text = fact.text();
  if (text === "") return [];
  return text.split("; ").map((part) => {
    const match = /^(\d+)-(\d+) ([A-Z_]+)$/.exec(part);
    if (match === null) throw new Malformed(fact.line, "its windows are not written as from-to REASON");
    return [Number(match[1]), Number(match[2]), match[3] ?? ""];
  });
}

/** The length of the union of the windows within a span. */
function dirtyMs(windows: readonly Window[], fromMs: number, untilMs: number): number {
  let dirty = 0;
  let reached = fromMs;
  for (const [start, end] of [...windows].sort((a, b) => a[0] - b[0] || a[1] - b[1])) {
    const begin = Math.max(start, reached);
    const finish = Math.min(end, untilMs);
    if (finish <= begin) continue;
    dirty += finish - begin;
    reached = finish;
  }
  return dirty;
}

const isBy = (log: Node, contract: string): boolean => log.at("address").text().toLowerCase() === contract;
const topicsOf = (log: Node): string[] => log.at("topics").items().map((topic) => topic.text().toLowerCase());
function wordsOf(data: Node): bigint[] {
  const digits = data.text().slice(2);
  if (digits.length % 64 !== 0 || !/^[\da-f]*$/i.test(digits)) return [];
  return (digits.match(/.{64}/g) ?? []).map((each) => BigInt(`0x${each}`));
}
