"""A local HTTP server that answers in the shape of two model APIs: it asks for one look at a place, then answers."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, TypeAlias

Json: TypeAlias = dict[str, Any]
ANSWER = "I see three people."


def messages_api(request: Json, place: Json) -> Json:
    """POST /v1/messages of Anthropic."""
    is_first = len(request["messages"]) == 1
    look = {"type": "tool_use", "id": "toolu_1", "name": request["tools"][0]["name"], "input": place}
    return {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": request["model"],
        "content": [look] if is_first else [{"type": "text", "text": ANSWER}],
        "stop_reason": "tool_use" if is_first else "end_turn",
        "stop_sequence": None,
        "usage": {"input_tokens": 1, "output_tokens": 1},
    }


def responses_api(request: Json, place: Json) -> Json:
    """POST /v1/responses of OpenAI."""
    call = {
        "type": "function_call",
        "id": "fc_1",
        "call_id": "call_1",
        "name": request["tools"][0]["name"],
        "arguments": json.dumps(place),
        "status": "completed",
    }
    text = {"type": "output_text", "text": ANSWER, "annotations": []}
    message = {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed", "content": [text]}
    return {
        "id": "resp_1",
        "object": "response",
        "created_at": 0,
        "status": "completed",
        "model": request["model"],
        "output": [call] if len(request["input"]) == 1 else [message],
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": request["tools"],
    }


APIS = {"/v1/messages": messages_api, "/v1/responses": responses_api}


@contextmanager
def model_server(place: Json) -> Iterator[tuple[str, list[Json]]]:
    """Serve both APIs on a free port. Yields the URL and the requests as they come in."""
    requests: list[Json] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            request = json.loads(self.rfile.read(int(self.headers["content-length"])))
            requests.append(request)
            body = json.dumps(APIS[self.path](request, place)).encode()
            self.send_response(200)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_arguments: object) -> None:
            """Print nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", requests
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
