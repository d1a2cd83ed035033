// Validates files by a C2PA implementation that shares no code with the server's; prints a line of JSON for each.
import { readFile } from "node:fs/promises";
import { BMFF, JPEG } from "@trustnxt/c2pa-ts/asset";
import { SuperBox } from "@trustnxt/c2pa-ts/jumbf";
import { ManifestStore } from "@trustnxt/c2pa-ts/manifest";

BMFF.canReadBrands.add("iso5"); // MP4 has the boxes of HEIF, for which it was made
for (const path of process.argv.slice(2)) {
  const bytes = await readFile(path);
  const asset = JPEG.canRead(bytes) ? new JPEG(bytes) : new BMFF(bytes);
  const store = ManifestStore.read(SuperBox.fromBuffer(asset.getManifestJUMBF()));
  const { isValid, statusEntries } = await store.validate(asset);
  const codes = (success) => statusEntries.filter((each) => each.success === success).map((each) => each.code);
  console.log(JSON.stringify({ isValid, passed: codes(true), failed: codes(false) }));
}
