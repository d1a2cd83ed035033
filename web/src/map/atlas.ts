// Draws the map with Leaflet: Natural Earth's land and borders as SVG, so that the style sheet colours them, city names,
// coverage cells, the fence and the operator. Loaded when a screen shows a map.
import * as L from "leaflet";
import { feature, mesh } from "topojson-client";
import type { Feature, FeatureCollection, MultiPolygon, Position } from "geojson";
import type { GeometryCollection, Topology } from "topojson-specification";
import worldFile from "./world.gen.json";
import { metres } from "../format";
import { locale, t } from "../strings";
import { cities, type City } from "./cities";
import { mapFiles, type MapFiles } from "./files";
import type { StreetFile } from "./streets";

export interface Point {
  lat: number;
  lng: number;
}
export interface Scene {
  /** The place of the session or of the coverage, with its radius in metres. */
  fence: (Point & { radiusM: number }) | null;
  operator: (Point & { accuracyM: number }) | null;
  /** Whether the reader is the operator. */
  isOwn?: boolean;
  /** South-west corner of each cell with operators online. */
  cells: readonly { south: number; west: number; operators: number }[];
  cellDegrees: number;
  /** Frame the fence itself rather than its surroundings. */
  isClose: boolean;
  /** A cell that is framed too. */
  also?: { south: number; west: number; degrees: number } | null;
}
export interface Hooks {
  /** Makes the map choose places: by a click, or by Enter for its centre. */
  onPick?: ((lat: number, lng: number) => void) | undefined;
  /** Tells the part of the Earth that is shown: west, south, east, north. */
  onView?: ((box: readonly [number, number, number, number]) => void) | undefined;
}
export interface Atlas {
  show: (scene: Scene) => void;
  close: () => void;
}

const WHOLE_WORLD: L.LatLngBoundsLiteral = [[-58, -170], [74, 180]];
const EARTH: L.LatLngBoundsLiteral = [[-85, -180], [85, 180]];
/** A chosen place is shown with this many times its radius, if its circle was too small to be seen. */
const SURROUNDINGS = 20;
const CIRCLE_PX_MIN = 12;
const DATA_CREDIT = "Natural Earth · GeoNames (CC BY 4.0)";
/** Labels keep at least this distance in pixels from each other. */
const LABEL_BOX = { width: 110, height: 30 };
/** No labels under the zoom buttons. */
const BUTTONS_BOX = { width: 56, height: 96 };

/** Leaflet's own writes "m" and "km" in every language. */
class Scale extends L.Control.Scale {
  private declare readonly _mScale: HTMLElement;
  private declare readonly _getRoundNum: (value: number) => number;
  private declare readonly _updateScale: (node: HTMLElement, text: string, ratio: number) => void;

  protected _updateMetric(maxMetres: number): void {
    const length = this._getRoundNum(maxMetres);
    this._updateScale(this._mScale, metres(length), length / maxMetres);
  }
}

let data: Promise<{ topology: Topology; streets: MapFiles }> | null = null;
const load = (): NonNullable<typeof data> =>
  (data ??= Promise.all([fetch(worldFile), mapFiles()])
    .then(async ([world, streets]) => ({ topology: (await world.json()) as Topology, streets }))
    .catch((error: unknown) => {
      data = null;
      throw error;
    }));

export async function open(node: HTMLElement, { onPick, onView }: Hooks): Promise<Atlas> {
  const { topology, streets } = await load();
  const isStill = matchMedia("(prefers-reduced-motion: reduce)").matches;
  const map = L.map(node, {
    attributionControl: false,
    fadeAnimation: !isStill,
    markerZoomAnimation: !isStill,
    maxBounds: EARTH,
    maxBoundsViscosity: 1,
    maxZoom: 19,
    minZoom: 1,
    scrollWheelZoom: onPick !== undefined,
    zoomAnimation: !isStill,
    zoomControl: false,
    zoomSnap: 0.5,
  }).fitBounds(WHOLE_WORLD);
  L.control.zoom({ zoomInTitle: t("zoomIn"), zoomOutTitle: t("zoomOut"), zoomInText: "+", zoomOutText: "−" }).addTo(map);
  new Scale({ imperial: false, position: "topright" }).addTo(map);
  const credit = [DATA_CREDIT, streets.attribution].filter((each) => each !== "").join(" · ");
  L.control.attribution({ prefix: false }).addAttribution(escaped(credit)).addTo(map);
  if (streets.tilesUrl === null) drawWorld(map, topology);
  else L.tileLayer(streets.tilesUrl, { maxZoom: 19 }).addTo(map);
  let isOpen = true;
  const { streets: file } = streets;
  // The map is there without them: what fails is told by the streets that are missing.
  if (file !== null) void import("./streets").then(({ streetLayer }) => isOpen && streetLayer(file).addTo(map)).catch(() => undefined);
  const names = L.layerGroup().addTo(map);
  const scenery = L.layerGroup().addTo(map);

  let known: readonly City[] = [];
  let isClose = false;
  const label = (): void => {
    names.clearLayers();
    if (!isClose && !hasStreets(map, file)) for (const city of visible(map, known)) names.addLayer(nameOf(city));
  };
  if (streets.tilesUrl === null) {
    map.on("moveend", label);
    // The screen may be left before the names are there.
    const show = (all: readonly City[]): void => {
      known = all;
      if (isOpen) label();
    };
    cities().then(show, () => undefined); // the map works without names
  }
  if (onPick !== undefined) {
    const choose = (at: L.LatLng): void => onPick(at.lat, at.wrap().lng);
    map.on("click", (event) => choose(event.latlng));
    map.on("keydown", ({ originalEvent }) => {
      if (originalEvent.key === "Enter" && originalEvent.target === node) choose(map.getCenter());
    });
    node.classList.add("picks");
  }
  const told = (): void => {
    const box = map.getBounds();
    onView?.([box.getWest(), box.getSouth(), box.getEast(), box.getNorth()]);
  };
  map.on("moveend", told);
  told();
  const resized = new ResizeObserver(() => {
    const centre = map.getCenter();
    map.invalidateSize({ pan: false, animate: false });
    map.setView(centre, map.getZoom(), { animate: false });
  });
  resized.observe(node);

  let framed = "";
  return {
    show(scene) {
      isClose = scene.isClose;
      scenery.clearLayers();
      draw(scenery, scene);
      const { fence, operator, also } = scene;
      const isAway = fence !== null && operator !== null && map.distance(fence, operator) > fence.radiusM;
      const away = isAway ? `${operator.lat.toFixed(2)} ${operator.lng.toFixed(2)}` : "";
      const frame = fence === null ? "" : `${fence.lat} ${fence.lng} ${fence.radiusM} ${isClose ? away : ""} ${also?.south} ${also?.west}`;
      if (fence === null || frame === framed) return;
      const area = L.latLng(fence).toBounds(fence.radiusM * (isClose ? 2.5 : SURROUNDINGS));
      const isIn = framed !== "" && map.getBounds().contains(L.latLng(fence).toBounds(fence.radiusM * 2)) && radiusPx(map, fence) >= CIRCLE_PX_MIN;
      framed = frame;
      if (isAway) area.extend(L.latLng(operator).toBounds(fence.radiusM * 2.5));
      if (also != null) area.extend([also.south, also.west]).extend([also.south + also.degrees, also.west + also.degrees]);
      if (isClose || !isIn || also != null) map.fitBounds(area, { animate: false });
    },
    close() {
      isOpen = false;
      resized.disconnect();
      map.remove();
    },
  };
}

/** Whether streets with their own names are shown in the middle of the map. */
function hasStreets(map: L.Map, file: StreetFile | null): boolean {
  if (file === null || map.getZoom() < file.minZoom) return false;
  const [west, south, east, north] = file.bounds;
  return L.latLngBounds([south, west], [north, east]).contains(map.getCenter().wrap());
}

function radiusPx(map: L.Map, fence: Point & { radiusM: number }): number {
  const east = L.latLng(fence).toBounds(fence.radiusM * 2).getEast();
  return map.latLngToContainerPoint([fence.lat, east]).distanceTo(map.latLngToContainerPoint(fence));
}

function drawWorld(map: L.Map, topology: Topology): void {
  const { land, countries } = topology.objects;
  if (land === undefined || countries === undefined) return;
  map.createPane("world").classList.add("map-world"); // below the streets
  const still = { interactive: false, smoothFactor: 0.8, pane: "world" };
  L.geoJSON(flat(feature(topology, land)), { style: { ...still, className: "map-land", weight: 0, fillOpacity: 1 }, interactive: false, pane: "world" }).addTo(map);
  const borders = mesh(topology, countries as GeometryCollection, (one, other) => one !== other);
  L.geoJSON(borders, { style: { ...still, className: "map-border", weight: 1, fill: false }, interactive: false, pane: "world" }).addTo(map);
}

/** Rings that cross the antimeridian (Russia, Fiji) are continued beyond it, and drawn on its other side too. */
function flat(land: Feature | FeatureCollection): MultiPolygon {
  const polygons = (land.type === "Feature" ? [land] : land.features).flatMap(({ geometry }) =>
    geometry.type === "MultiPolygon" ? geometry.coordinates : geometry.type === "Polygon" ? [geometry.coordinates] : [],
  );
  const coordinates = polygons.flatMap((polygon) => {
    const rings = polygon.map(unwrap);
    const west = Math.min(...(rings[0] ?? []).map(([lng = 0]) => lng));
    const east = Math.max(...(rings[0] ?? []).map(([lng = 0]) => lng));
    if (east - west >= 360) return []; // Antarctica, which surrounds the pole and is outside of the map
    const shifts = east > 180 ? [0, -360] : west < -180 ? [0, 360] : [0];
    return shifts.map((shift) => rings.map((ring) => ring.map(([lng = 0, lat = 0]) => [lng + shift, lat])));
  });
  return { type: "MultiPolygon", coordinates };
}

function unwrap(ring: Position[]): Position[] {
  let last = ring[0]?.[0] ?? 0;
  return ring.map(([lng = 0, lat = 0]) => {
    last = lng + 360 * Math.round((last - lng) / 360);
    return [last, lat];
  });
}

function draw(scenery: L.LayerGroup, { fence, operator, cells, cellDegrees }: Scene): void {
  for (const { south, west, operators } of cells) {
    const corners: L.LatLngBoundsLiteral = [[south, west], [south + cellDegrees, west + cellDegrees]];
    scenery.addLayer(L.rectangle(corners, { className: "map-cell", weight: 1, interactive: false }));
    const centre: L.LatLngTuple = [south + cellDegrees / 2, west + cellDegrees / 2];
    scenery.addLayer(mark(centre, "map-count", new Intl.NumberFormat(locale()).format(operators)));
  }
  if (fence !== null) {
    const circle = L.circle(fence, { radius: fence.radiusM, className: "map-fence", weight: 2, interactive: false });
    scenery.addLayer(circle);
    circle.getElement()?.setAttribute("data-radius-m", String(fence.radiusM));
    scenery.addLayer(mark(fence, "map-pin"));
  }
  if (operator !== null) {
    scenery.addLayer(L.circle(operator, { radius: operator.accuracyM, className: "map-accuracy", weight: 1, interactive: false }));
    scenery.addLayer(mark(operator, "map-operator"));
  }
}

function mark(at: L.LatLngExpression, className: string, text = ""): L.Marker {
  const html = document.createElement("span");
  html.textContent = text;
  return L.marker(at, { icon: L.divIcon({ className, html, iconSize: [0, 0] }), interactive: false, keyboard: false });
}

const nameOf = (city: City): L.Marker => mark([city.lat, city.lng], "map-name", city.name);

/** The first cities in view whose names do not overlap. */
function visible(map: L.Map, all: readonly City[]): City[] {
  const size = map.getSize();
  const taken: L.Point[] = [];
  const most = Math.max(6, Math.round((size.x * size.y) / 14_000));
  const found: City[] = [];
  const bounds = map.getBounds();
  for (const city of all) {
    if (found.length === most) break;
    if (!bounds.contains([city.lat, city.lng])) continue;
    const at = map.latLngToContainerPoint([city.lat, city.lng]);
    if (at.x < 8 || at.y < 16 || at.x > size.x - 60 || at.y > size.y - 16) continue;
    if (at.x < BUTTONS_BOX.width && at.y < BUTTONS_BOX.height) continue;
    if (taken.some((other) => Math.abs(other.x - at.x) < LABEL_BOX.width && Math.abs(other.y - at.y) < LABEL_BOX.height)) continue;
    taken.push(at);
    found.push(city);
  }
  return found;
}

const escaped = (text: string): string => {
  const node = document.createElement("span");
  node.textContent = text;
  return node.innerHTML;
};
