// How far away the operators were that this tab has sent to its requests, in metres.
const distances = new Map<string, number>();
export const noteSent = (sessionId: string, distanceM: number | null): void => void (distanceM !== null && distances.set(sessionId, distanceM));
export const sentFrom = (sessionId: string): number | null => distances.get(sessionId) ?? null;
