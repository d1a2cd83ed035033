// Writes src/schema.gen.ts, the types of docs/openapi.json.
import { writeFileSync } from "node:fs";
import openapi, { astToString } from "openapi-typescript";

const types = await openapi(new URL("../../docs/openapi.json", import.meta.url), { alphabetize: true });
writeFileSync(new URL("src/schema.gen.ts", import.meta.url), astToString(types));
