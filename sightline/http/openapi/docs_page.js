"use strict";
const make = (tag, text, ...children) => {
  const node = document.createElement(tag);
  if (text) node.textContent = text;
  node.append(...children);
  return node;
};
const dim = (text) => { const node = make("span", text); node.className = "dim"; return node; };
const lookUp = (spec, ref) => ref.split("/").slice(1).reduce((at, key) => at[key], spec);

// Schemas with their references filled in, down to a depth that a reader can follow.
const expand = (spec, schema, depth = 0) => {
  if (schema === null || typeof schema !== "object") return schema;
  if (Array.isArray(schema)) return schema.map((each) => expand(spec, each, depth));
  if (schema.$ref) {
    const name = schema.$ref.split("/").pop();
    return depth > 5 ? name : expand(spec, lookUp(spec, schema.$ref), depth + 1);
  }
  return Object.fromEntries(Object.entries(schema).map(([key, value]) => [key, expand(spec, value, depth)]));
};
const block = (value) => make("pre", JSON.stringify(value, null, 2));

const parameters = (operation) => {
  const rows = operation.parameters.map((each) => {
    const { type, ...rest } = each.schema;
    return make("tr", "", make("td", "", make("code", each.name)), make("td", each.in),
      make("td", each.required ? "required" : "optional"), make("td", "", make("code", JSON.stringify({ type, ...rest }))));
  });
  return rows.length ? [make("h4", "Parameters"), make("table", "", ...rows)] : [];
};
const body = (spec, operation) => {
  const content = operation.requestBody && operation.requestBody.content;
  if (!content) return [];
  return Object.entries(content).flatMap(([media, each]) => [make("h4", "Body: " + media), block(expand(spec, each.schema))]);
};
const responses = (spec, operation) => Object.entries(operation.responses).map(([status, response]) => {
  const each = response.$ref ? lookUp(spec, response.$ref) : response;
  const inner = make("details", "", make("summary", status + "  " + each.description));
  for (const [media, content] of Object.entries(each.content || {})) inner.append(dim(media), block(expand(spec, content.schema)));
  return inner;
});
const entry = (spec, path, method, operation) => {
  const verb = make("span", method.toUpperCase());
  verb.className = "method";
  const node = make("details", "", make("summary", "", verb, make("code", path), " ", dim(operation.summary)));
  node.id = operation.operationId;
  node.dataset.text = [method, path, operation.summary, operation.operationId].join(" ").toLowerCase();
  const credentials = operation.security.flatMap((each) => Object.keys(each)).join(" or ") || "none (public)";
  node.append(make("p", operation.description || ""), make("p", "", dim("Credential: " + credentials)),
    ...parameters(operation), ...body(spec, operation), make("h4", "Responses"), ...responses(spec, operation));
  return node;
};
const show = (spec) => {
  const main = document.getElementById("main");
  const search = make("input");
  search.placeholder = "Filter";
  search.addEventListener("input", () => {
    for (const node of main.querySelectorAll("details[data-text]")) node.hidden = !node.dataset.text.includes(search.value.toLowerCase());
  });
  const link = make("a", "openapi.json");
  link.href = "openapi.json";
  main.replaceChildren(make("h1", spec.info.title + " " + spec.info.version), make("p", spec.info.description), link, search);
  for (const { name } of spec.tags) {
    main.append(make("h2", name));
    for (const [path, methods] of Object.entries(spec.paths)) {
      for (const [method, operation] of Object.entries(methods)) {
        if (operation.tags.includes(name)) main.append(entry(spec, path, method, operation));
      }
    }
  }
};
fetch("openapi.json").then((answer) => answer.json()).then(show);
