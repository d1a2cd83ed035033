"""A local model that watches a place over MCP: it answers in the shape of three model APIs and calls tools in turn.

It reads ids from what the tools have answered, as a model does, so a framework that loses an answer is noticed.
"""

import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final, TypeAlias

Json: TypeAlias = dict[str, Any]
ANSWER: Final = "I see three people."
TOOLS: Final = ("check_place", "request_view", "get_frame", "end_session")


def _id(name: str, request: str) -> str:
    """The last id of this name in a request, however often its JSON was quoted."""
    found: list[str] = re.findall(rf"{name}\W+([0-9a-f]{{8}}-[0-9a-f-]{{27}})", request)
    return found[-1] if found else f"no {name} came back"


def _arguments(tool: str, request: str, place: Json) -> Json:
    if tool == "check_place":
        return {**place, "seconds": 60}
    if tool == "request_view":
        return {**place, "seconds": 60, "quote_id": _id("quoteId", request), "max_charge_usdc": "0.10"}
    return {"session_id": _id("sessionId", request)}


def _next(step: int, request: Json, names: list[str], place: Json) -> tuple[str, Json] | None:
    """The tool that is called in this step, by the name that the framework gave it; None: answer."""
    if step == len(TOOLS):
        return None
    name = next((each for each in names if each.endswith(TOOLS[step])), f"no {TOOLS[step]}")
    return name, _arguments(TOOLS[step], json.dumps(request), place)


def messages_api(request: Json, place: Json) -> Json:
    """POST /v1/messages of Anthropic."""
    step = len(request["messages"]) // 2
    call = _next(step, request, [tool["name"] for tool in request["tools"]], place)
    text = {"type": "text", "text": ANSWER}
    block = text if call is None else {"type": "tool_use", "id": f"toolu_{step}", "name": call[0], "input": call[1]}
    return {
        "id": f"msg_{step}",
        "type": "message",
        "role": "assistant",
        "model": request["model"],
        "content": [block],
        "stop_reason": "end_turn" if call is None else "tool_use",
        "stop_sequence": None,
        "usage": {"input_tokens": 1, "output_tokens": 1},
    }


def responses_api(request: Json, place: Json) -> Json:
    """POST /v1/responses of OpenAI."""
    step = sum(item.get("type") == "function_call_output" for item in request["input"])
    call = _next(step, request, [tool["name"] for tool in request["tools"]], place)
    said = {"type": "output_text", "text": ANSWER, "annotations": []}
    message = {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed", "content": [said]}
    called = {"type": "function_call", "id": f"fc_{step}", "call_id": f"call_{step}", "status": "completed"}
    return {
        "id": f"resp_{step}",
        "object": "response",
        "created_at": 0,
        "status": "completed",
        "model": request["model"],
        "output": [message if call is None else called | {"name": call[0], "arguments": json.dumps(call[1])}],
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
    }


def chat_api(request: Json, place: Json) -> Json:
    """POST /v1/chat/completions of OpenAI."""
    step = sum(message["role"] == "tool" for message in request["messages"])
    call = _next(step, request, [tool["function"]["name"] for tool in request["tools"]], place)
    message: Json = {"role": "assistant", "content": ANSWER if call is None else None}
    if call is not None:
        function = {"name": call[0], "arguments": json.dumps(call[1])}
        message["tool_calls"] = [{"id": f"call_{step}", "type": "function", "function": function}]
    return {
        "id": f"chat_{step}",
        "object": "chat.completion",
        "created": 0,
        "model": request["model"],
        "choices": [{"index": 0, "message": message, "finish_reason": "stop" if call is None else "tool_calls"}],
        "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2},
    }


APIS: Final = {
    "/v1/messages": messages_api,
    "/v1/responses": responses_api,
    "/v1/chat/completions": chat_api,
}


@contextmanager
def scripted_model(place: Json) -> Iterator[tuple[str, list[Json]]]:
    """Serve the three APIs on a free port. Yields the URL and the requests as they come in."""
    requests: list[Json] = []

    class Model(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            request = json.loads(self.rfile.read(int(self.headers["content-length"])))
            requests.append(request)
            body = json.dumps(APIS[self.path.partition("?")[0]](request, place)).encode()
            self.send_response(200)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002  the name of the base class
            """Print nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Model)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", requests
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
