import assert from "node:assert/strict";
import { createServer } from "node:http";
import test from "node:test";
import { connect, dataOf } from "../dist/index.js";

test("an id that names another path is refused, and nothing is sent", async () => {
  const asked = [];
  const server = createServer((request, response) => {
    asked.push(request.url);
    response.setHeader("content-type", "application/json");
    response.end(JSON.stringify({ data: {}, timestamp: "2026-11-23T00:00:00.000Z" }));
  });
  await new Promise((listening) => server.listen(0, "127.0.0.1", listening));
  try {
    const client = connect({ url: `http://127.0.0.1:${server.address().port}`, key: "svc_test_key" });
    for (const id of ["../wallet", "..", ".", "a/b", "a?b", "a#b", "%2e%2e", ""]) {
      const read = client.GET("/api/v1/sessions/{id}/meter", { params: { path: { id } } });
      await assert.rejects(dataOf(read), { code: "INVALID_INPUT" }, id);
    }
    assert.deepEqual(asked, []);
    await dataOf(client.GET("/api/v1/sessions/{id}", { params: { path: { id: "3f0c8c8e-6a1b-4b51-9e0e-0a7f1c9d2b44" } } }));
    assert.deepEqual(asked, ["/api/v1/sessions/3f0c8c8e-6a1b-4b51-9e0e-0a7f1c9d2b44"]);
  } finally {
    server.close();
  }
});
