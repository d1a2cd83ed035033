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

test("only the newest ends are remembered", () => {
  for (let at = 0; at < 60; at++) noteEnd(`n${at}`);
  assert.match(endingOf(ended, "viewer"), /^Ended by your workspace/);
});
