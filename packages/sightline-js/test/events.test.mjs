// Event streams: a request that is never answered is made again.
import assert from "node:assert/strict";
import { createServer } from "node:http";
import { once } from "node:events";
import { test } from "node:test";
import { follow } from "../dist/events.js";

globalThis.document = { hidden: false, addEventListener() {}, removeEventListener() {} };

test("a request for a stream that is never answered is given up, and made again", async (t) => {
  let requests = 0;
  const server = createServer((_, response) => {
    requests += 1;
    if (requests === 1) return server.emit("unanswered");
    response.writeHead(200, { "content-type": "text/event-stream" });
    response.write('id: 1\nevent: session\ndata: {"state":"ASSIGNED"}\n\n');
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  const unanswered = once(server, "unanswered");
  t.mock.timers.enable({ apis: ["setTimeout"] });
  const { port } = server.address();
  const event = new Promise((done) => {
    const onState = (isOpen) => {
      // The pause before the next request begins after this call.
      if (!isOpen) queueMicrotask(() => t.mock.timers.tick(1_000));
    };
    const end = follow(`http://127.0.0.1:${port}/`, { onState, onEvent: (name, data) => done([end, name, data]) }, "key");
  });
  await unanswered;
  t.mock.timers.tick(10_000);
  const [end, name, data] = await event;
  end();
  server.closeAllConnections();
  server.close();
  assert.deepEqual([requests, name, data], [2, "session", { state: "ASSIGNED" }]);
});
