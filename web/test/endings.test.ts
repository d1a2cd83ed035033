import assert from "node:assert/strict";
import { test } from "node:test";
import { endingOf, noteEnd } from "../src/live/endings";

const ended = { id: "s1", endReason: "CONSUMER_ENDED", consumerWorkspaceId: "viewer", operatorWorkspaceId: "films" } as const;

test("who ended a view is told so, and where", () => {
  assert.equal(endingOf(ended, "films"), "The viewer ended it.");
  assert.match(endingOf(ended, "viewer"), /^Ended by your workspace, in another browser/);
  noteEnd("s1");
  assert.equal(endingOf(ended, "viewer"), "You ended it, in this browser.");
  assert.equal(endingOf({ ...ended, endReason: "OPERATOR_ENDED" }, "viewer"), "The operator ended it.");
  assert.match(endingOf({ ...ended, id: "s2", endReason: "OPERATOR_ENDED" }, "films"), /^Ended by your workspace/);
  assert.equal(endingOf({ ...ended, endReason: "MAX_DURATION" }, "viewer"), "The agreed time was over.");
});

test("who ended a view for a workspace is named to it by its credential", () => {
  const wallet = { ...ended, id: "s3", endedBy: { kind: "WALLET", id: "0x1234567890abcdef1234567890abcdef12345678" } } as const;
  assert.match(endingOf(wallet, "viewer"), /wallet .*0x1234…5678/);
  assert.equal(endingOf(wallet, "films"), "The viewer ended it.");
  const key = { ...wallet, endedBy: { kind: "API_KEY", id: "3f2a1b00-0000-4000-8000-0000000000aa" } } as const;
  assert.match(endingOf(key, "viewer"), /API key .*3f2a1b…00aa/);
});

test("only the newest ends are remembered", () => {
  for (let at = 0; at < 60; at++) noteEnd(`n${at}`);
  assert.match(endingOf(ended, "viewer"), /^Ended by your workspace/);
});
