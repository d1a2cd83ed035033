// Tells a person who looks elsewhere that something waits for an answer.

const TONES_HZ = [660, 880] as const;
const TONE_S = 0.16;

let shared: AudioContext | null = null;

/** Play two short tones, and vibrate where a device can. Browsers allow sound after the first click on a page. */
export function chime(): void {
  navigator.vibrate?.([120, 80, 120]);
  if (!(navigator.userActivation?.hasBeenActive ?? true)) return; // no sound is allowed yet
  const context = (shared ??= new AudioContext());
  void context.resume().catch(() => undefined); // browsers suspend one that was silent for long
  const volume = new GainNode(context, { gain: 0.12 });
  volume.connect(context.destination);
  TONES_HZ.forEach((frequency, index) => {
    const tone = new OscillatorNode(context, { frequency });
    tone.connect(volume);
    tone.start(context.currentTime + index * TONE_S);
    tone.stop(context.currentTime + (index + 1) * TONE_S);
  });
}
