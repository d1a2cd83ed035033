"""Builds the OpenAPI 3.1 document from the route table and the validating models."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, TypeAlias

from pydantic import BaseModel
from pydantic.json_schema import JsonSchemaMode, models_json_schema

from sightline.domain.access import RULES
from sightline.domain.refusal import Code
from sightline.http.budgets import RateClass
from sightline.http.pipeline.errors import ERRORS
from sightline.http.pipeline.router import path_names
from sightline.http.pipeline.routes import AnyRoute, Param, Route, SocketRoute

Document: TypeAlias = dict[str, Any]

_REF: Final = "#/components/schemas/"
_PARAM_SCHEMAS: Final[Mapping[Param, Document]] = {
    Param.UUID: {"type": "string", "format": "uuid"},
    Param.ADDRESS: {"type": "string", "pattern": "^0x[0-9a-fA-F]{40}$"},
    Param.TEXT: {"type": "string", "minLength": 1},
}
_TIMESTAMP: Final = {"type": "string", "format": "date-time", "examples": ["2026-11-20T12:00:00.000Z"]}
_ERROR: Final[Document] = {
    "type": "object",
    "title": "Error",
    "required": ["statusCode", "code", "message", "timestamp"],
    "additionalProperties": False,
    "properties": {
        "statusCode": {"type": "integer", "minimum": 400, "maximum": 599},
        "code": {"type": "string", "enum": [code.value for code in Code]},
        "message": {"type": "string", "description": "The text of the code, where the interface states one"},
        "hint": {"type": "string", "description": "What is wrong in this call, and what to do. It may change"},
        "detail": {"type": "string", "description": "Where it failed, as area:label", "examples": ["session:duration"]},
        "state": {"type": "string", "description": "The present state, with INVALID_STATE", "examples": ["ENDED"]},
        "requiredScope": {"type": "string", "description": "The scope that the API key lacks"},
        "lastSequence": {"type": "integer", "description": "The last accepted heartbeat sequence"},
        "remainingMicroUsdc": {"type": "string", "description": "What is left of the limit that the call would pass"},
        "timestamp": _TIMESTAMP,
    },
}
_REQUEST_ID_HEADER: Final = {"x-request-id": {"$ref": "#/components/headers/RequestId"}}
_SECURITY_SCHEMES: Final[Document] = {
    "apiKey": {
        "type": "http",
        "scheme": "bearer",
        "bearerFormat": "JWT or API key",
        "description": "An API key, svc_..., bound to one workspace and a set of scopes.",
    },
    "walletSession": {
        "type": "apiKey",
        "in": "cookie",
        "name": "svc_session",
        "description": "The cookie of a wallet sign-in; lx_session is accepted too.",
    },
    "streamTicket": {
        "type": "apiKey",
        "in": "query",
        "name": "ticket",
        "description": "A ticket of POST /api/v1/stream-tickets, for streams that browsers open without headers.",
    },
}


def build_document(routes: Sequence[AnyRoute], version: str) -> Document:
    """Describe every documented route."""
    documented = [route for route in routes if isinstance(route, Route) and route.is_documented]
    schemas = _Schemas(documented)
    paths: dict[str, Document] = defaultdict(dict)
    responses: dict[str, Document] = {}
    for route in documented:
        paths[route.path][route.method.lower()] = _operation(route, schemas, responses)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Sightline",
            "version": version,
            "description": "Live video from a place on demand: dispatched, proved, metered per second and settled.",
        },
        "servers": [{"url": "/"}],
        "tags": [{"name": tag} for tag in dict.fromkeys(route.tag for route in documented)],
        "paths": dict(paths),
        "components": {
            "schemas": {"Error": _ERROR, **schemas.components},
            "responses": responses,
            "securitySchemes": _SECURITY_SCHEMES,
            "headers": {
                "RequestId": {"schema": {"type": "string"}, "description": "The caller's own, or a new one."},
                "RetryAfter": {"schema": {"type": "integer"}, "description": "Seconds; the call had no effect."},
            },
        },
        "x-websockets": [_socket(route) for route in routes if isinstance(route, SocketRoute)],
    }


class _Schemas:
    """Collects body models as components and query models as parameters."""

    def __init__(self, routes: Iterable[Route]) -> None:
        wanted: dict[tuple[type[BaseModel], JsonSchemaMode], None] = {}
        for route in routes:
            for model, mode in (
                (route.body, "validation"),
                (route.query, "validation"),
                (route.output, "serialization"),
                *((model, "serialization") for model in route.events.values()),
            ):
                if model is not None:
                    assert issubclass(model, BaseModel)
                    wanted[model, "validation" if mode == "validation" else "serialization"] = None
        self._refs, definitions = models_json_schema(list(wanted), ref_template=_REF + "{model}")
        self.components: dict[str, Document] = definitions.get("$defs", {})
        for route in routes:
            if route.body is not None and getattr(route.body, "REFUSES_NULL", False):
                properties = self.components[self._name(route.body, "validation")]["properties"]
                properties.update({name: _not_null(schema) for name, schema in properties.items()})
        self._queries: dict[type, Document] = {}
        for route in routes:
            if route.query is not None and route.query not in self._queries:
                name = self._name(route.query, "validation")
                self._queries[route.query] = self.components.pop(name)
        for component in self.components.values():
            _describe_defaults(component)

    def _name(self, model: type, mode: JsonSchemaMode) -> str:
        assert issubclass(model, BaseModel)
        return str(self._refs[model, mode]["$ref"]).removeprefix(_REF)

    def ref(self, model: type, mode: JsonSchemaMode) -> Document:
        """Return a reference to the component of a model."""
        return {"$ref": _REF + self._name(model, mode)}

    def query(self, model: type) -> Document:
        """Return the schema of a query model."""
        return self._queries[model]


def _describe_defaults(component: Document) -> None:
    """Move defaults into descriptions: code generators treat a property with a default as required."""
    for schema in component.get("properties", {}).values():
        default = schema.pop("default", None)
        if default is not None:
            said = f"{schema['description']}. " if "description" in schema else ""
            schema["description"] = f"{said}Default: {default}"


def _operation(route: Route, schemas: _Schemas, shared: dict[str, Document]) -> Document:
    operation: Document = {
        "operationId": route.operation_id,
        "tags": [route.tag],
        "summary": route.summary,
        "parameters": _parameters(route, schemas),
        "responses": _responses(route, schemas, shared),
        "security": _security(route),
    }
    description = "\n\n".join(filter(None, [route.description, _scope_note(route)]))
    if description:
        operation["description"] = description
    if route.body is not None:
        content = {"application/json": {"schema": schemas.ref(route.body, "validation")}}
        operation["requestBody"] = {"required": route.body_required, "content": content}
    elif route.raw_body:
        content = {media: {"schema": {"type": "string"}} for media in route.raw_body}
        operation["requestBody"] = {"required": True, "content": content}
    return operation


def _scope_note(route: AnyRoute) -> str:
    if route.operation is None:
        return ""
    scopes = sorted(scope.value for scope in RULES[route.operation].scopes)
    return f"Scope of an API key: {' or '.join(scopes)}." if scopes else ""


def _security(route: AnyRoute) -> list[Document]:
    if route.operation is None:
        return []
    rule = RULES[route.operation]
    return [
        *([] if rule.keys_refused is not None else [{"apiKey": []}]),
        *([] if rule.wallets_refused is not None else [{"walletSession": []}]),
        *([{"streamTicket": []}] if route.takes_ticket else []),
    ]


def _parameters(route: Route, schemas: _Schemas) -> list[Document]:
    parameters = [
        {"name": name, "in": "path", "required": True, "schema": _PARAM_SCHEMAS[route.params.get(name, Param.UUID)]}
        for name in path_names(route.path)
    ]
    if route.query is not None:
        schema = schemas.query(route.query)
        required = schema.get("required", [])
        for name, described in schema.get("properties", {}).items():
            parameters.append(
                {"name": name, "in": "query", "required": name in required, "schema": _not_null(described)}
            )
    if route.is_unsafe and route.operation is not None:
        key = {"type": "string", "minLength": 1, "maxLength": 255, "pattern": "^[!-~]([ -~]{0,253}[!-~])?$"}
        parameters.append({"name": "Idempotency-Key", "in": "header", "required": False, "schema": key})
    return parameters


def _not_null(schema: Document) -> Document:
    """Remove null from the types of a parameter: an omitted parameter is never null."""
    options = [each for each in schema.get("anyOf", []) if each != {"type": "null"}]
    rest = {name: value for name, value in schema.items() if name not in ("anyOf", "default", "title")}
    if schema.get("default") is not None:
        rest["default"] = schema["default"]
    if "anyOf" not in schema:
        return rest
    return {**options[0], **rest} if len(options) == 1 else {**rest, "anyOf": options}


def _responses(route: Route, schemas: _Schemas, shared: dict[str, Document]) -> Document:
    """Describe the responses of a route. Errors refer to `shared`, because most routes have the same ones."""
    responses: Document = {"200": _success(route, schemas)}
    by_status: dict[int, list[Code]] = defaultdict(list)
    for code in codes_of(route):
        by_status[ERRORS[code].status].append(code)
    if route.body is not None or route.raw_body:
        by_status[413].append(Code.INVALID_INPUT)
        by_status[415].append(Code.INVALID_INPUT)
    for status in sorted(by_status):
        codes = list(dict.fromkeys(by_status[status]))
        name = f"Error{status}_{'_'.join(codes)}"
        shared.setdefault(name, _failure(status, codes))
        responses[str(status)] = {"$ref": f"#/components/responses/{name}"}
    if route.method == "GET" and route.media_type == "image/jpeg":
        responses["304"] = {"description": "Nothing newer", "headers": _REQUEST_ID_HEADER}
    shared.setdefault("Error", _failure(None, list(Code)))
    responses["default"] = {"$ref": "#/components/responses/Error"}
    return responses


def codes_of(route: Route) -> list[Code]:
    """List every error code of a route, in the order of the table."""
    codes = {*route.errors, Code.INTERNAL_ERROR, Code.UNAVAILABLE, Code.INVALID_INPUT}
    if route.operation is not None:
        codes |= {Code.NOT_AUTHENTICATED, Code.REVOKED_API_KEY, Code.NOT_AUTHORIZED, Code.RATE_LIMITED}
    if route.is_unsafe and route.checks_origin:
        codes.add(Code.NOT_AUTHORIZED)
    if route.rate is not RateClass.NONE:
        codes.add(Code.RATE_LIMITED)
    if route.is_unsafe:
        codes.add(Code.OUTCOME_UNKNOWN)
        if route.operation is not None:
            codes.add(Code.CONFLICT)
    return [code for code in Code if code in codes]


def _success(route: Route, schemas: _Schemas) -> Document:
    response: Document = {"description": "Request successful", "headers": _REQUEST_ID_HEADER}
    if route.media_type != "application/json":
        response["headers"] = _REQUEST_ID_HEADER | {
            name: {"schema": dict(schema), "description": description}
            for name, (schema, description) in route.response_headers.items()
        }
        schema = _schema_of_events(route, schemas) if route.events else _schema_of_media(route.media_type)
        response["content"] = {route.media_type: {"schema": schema}}
    else:
        data: Document = {"type": "object"} if route.output is None else schemas.ref(route.output, "serialization")
        envelope = {
            "type": "object",
            "required": ["statusCode", "message", "data", "timestamp"],
            "properties": {
                "statusCode": {"const": 200},
                "message": {"type": "string", "examples": ["Request successful"]},
                "data": data,
                "timestamp": _TIMESTAMP,
            },
        }
        response["content"] = {"application/json": {"schema": envelope}}
        for media_type in route.other_media_types:
            response["content"][media_type] = {"schema": _schema_of_media(media_type)}
    if route.links:
        response["links"] = {
            link.operation_id: {"operationId": link.operation_id, "parameters": dict(link.parameters)}
            for link in route.links
        }
    return response


def _schema_of_events(route: Route, schemas: _Schemas) -> Document:
    """Describe one event of a stream; OpenAPI 3.1 cannot describe a sequence of events. `data` is the decoded JSON."""
    return {
        "oneOf": [
            {
                "type": "object",
                "required": ["id", "event", "data"],
                "properties": {
                    "id": {"type": "string", "description": "Counts the events of one stream"},
                    "event": {"type": "string", "const": name},
                    "data": schemas.ref(model, "serialization"),
                },
            }
            for name, model in route.events.items()
        ]
    }


def _schema_of_media(media_type: str) -> Document:
    if media_type == "application/json":
        return {}
    return {"type": "string"} if media_type.startswith("text/") else {"type": "string", "format": "binary"}


def _failure(status: int | None, codes: list[Code]) -> Document:
    headers: Document = dict(_REQUEST_ID_HEADER)
    if status in (429, 503):
        headers["retry-after"] = {"$ref": "#/components/headers/RetryAfter"}
    content: Document = {"schema": {"$ref": _REF + "Error"}}
    if status is None:
        return {"description": "Any other error", "headers": headers, "content": {"application/json": content}}
    content["example"] = {
        "statusCode": status,
        "code": codes[0].value,
        "message": ERRORS[codes[0]].message,
        "timestamp": _TIMESTAMP["examples"][0],
    }
    return {
        "description": "; ".join(f"{code}: {ERRORS[code].message}" for code in codes),
        # One schema for all errors: generators of clients refuse or ignore one that is narrowed for each status.
        "x-codes": [code.value for code in codes],
        "headers": headers,
        "content": {"application/json": content},
    }


def _socket(route: SocketRoute) -> Document:
    return {
        "path": route.path,
        "operationId": route.operation_id,
        "tag": route.tag,
        "summary": route.summary,
        "description": "\n\n".join(filter(None, [route.description, _scope_note(route)])),
        "security": _security(route),
    }
