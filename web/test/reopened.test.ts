import assert from "node:assert/strict";
import { test } from "node:test";
import { reopenedBy } from "../src/live/reopened";

const reopened = (reason: string) => ({ kind: "REOPENED", facts: [{ name: "reason", value: reason }, { name: "operatorWorkspaceId", value: "w1" }] }) as const;
const assigned = { kind: "ASSIGNED", facts: [] } as const;

test("what the last operator did is said, and nothing before there was one", () => {
  assert.equal(reopenedBy([{ kind: "CREATED", facts: [] }]), null);
  assert.equal(reopenedBy([assigned, reopened("DECLINED")]), "operatorDeclined");
  assert.equal(reopenedBy([assigned, reopened("DECLINED"), assigned, reopened("NOT_ACKNOWLEDGED")]), "operatorSilent");
  assert.equal(reopenedBy([assigned, reopened("START_TIMEOUT")]), "operatorLate");
});
