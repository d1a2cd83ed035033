// Why a camera or a position is missing, in words of our own: those of browsers name no remedy, and are in one language.
import type { Word } from "../strings";

const CAMERA: Record<string, Word> = {
  NotAllowedError: "cameraRefused",
  SecurityError: "cameraRefused",
  NotFoundError: "cameraMissing",
  OverconstrainedError: "cameraMissing",
  NotReadableError: "cameraInUse",
  AbortError: "cameraInUse",
};

/** Of an error of `getUserMedia`. */
export const cameraProblem = (error: unknown): Word => (error instanceof Error ? CAMERA[error.name] : undefined) ?? "cameraFailed";

/** Of an error of the Geolocation API. */
export const positionProblem = ({ code }: GeolocationPositionError): Word =>
  code === GeolocationPositionError.PERMISSION_DENIED ? "positionRefused" : code === GeolocationPositionError.TIMEOUT ? "positionTimeout" : "positionUnavailable";
