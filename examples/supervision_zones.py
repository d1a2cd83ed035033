"""Count people by zone of the picture with supervision: mark boxes and zones, stop at a budget, print the receipt.

    pip install 'sightline-client[frames]' -r examples/requirements.txt
    sightline dev                            # in another terminal; export the variables that it prints
    python examples/supervision_zones.py 52.520008 13.404954 --budget 0.05

A zone is a polygon in parts of the picture, so that it fits every width. A person is in the zone of their feet.
"""

import argparse
from pathlib import Path

import cv2
import numpy
import supervision

from sightline_client import Sightline, usdc

SCORE_MIN = 0.5
ZONES = {
    "road": [(0.0, 0.42), (1.0, 0.42), (1.0, 0.62), (0.0, 0.62)],
    "left pavement": [(0.0, 0.64), (0.5, 0.64), (0.5, 1.0), (0.0, 1.0)],
    "right pavement": [(0.5, 0.64), (1.0, 0.64), (1.0, 1.0), (0.5, 1.0)],
}

detector = cv2.HOGDescriptor()
detector.setSVMDetector(cv2.HOGDescriptor_getDefaultPeopleDetector())


def people(picture: numpy.ndarray) -> supervision.Detections:
    """Upright people; any detector that supervision reads can take this place."""
    boxes, scores = detector.detectMultiScale(picture, winStride=(8, 8), scale=1.05)
    if len(boxes) == 0:
        return supervision.Detections.empty()
    corners = numpy.hstack([boxes[:, :2], boxes[:, :2] + boxes[:, 2:]])
    found = supervision.Detections(xyxy=corners.astype(float), confidence=scores, class_id=numpy.zeros(len(boxes), int))
    return found[scores >= SCORE_MIN].with_nms(threshold=0.3)  # one box a person


def zones_of(picture: numpy.ndarray) -> dict[str, supervision.PolygonZone]:
    """The zones in pixels of this picture."""
    size = numpy.array([picture.shape[1] - 1, picture.shape[0] - 1])
    return {name: supervision.PolygonZone((numpy.array(part) * size).astype(int)) for name, part in ZONES.items()}


def main() -> None:
    """Run the example."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("lat", type=float)
    parser.add_argument("lng", type=float)
    parser.add_argument("--budget", default="0.05", help="USDC")
    parser.add_argument("--frames", type=int, default=10)
    parser.add_argument("--out", type=Path, default=Path("zones"))
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    boxes, palette = supervision.BoxAnnotator(), supervision.ColorPalette.DEFAULT
    with Sightline() as sl:
        budget, quote = usdc(options.budget), sl.quote(options.lat, options.lng, seconds=1)
        with sl.view(options.lat, options.lng, seconds=min(600, quote.affordable_s(budget)), max_charge=budget) as view:
            for number, frame in enumerate(view.frames(fps=1, width=640), start=1):
                picture = frame.numpy().copy()
                found = people(picture)
                picture = boxes.annotate(picture, found)
                counts = []
                for at, (name, zone) in enumerate(zones_of(picture).items(), start=1):
                    counts.append(f"{zone.trigger(found).sum()} {name}")
                    draw = supervision.PolygonZoneAnnotator(zone, color=palette.by_idx(at))
                    picture = draw.annotate(picture, label=counts[-1])
                cv2.imwrite(str(options.out / f"{number:04}.jpg"), picture)
                print(f"frame {frame.sequence}: {', '.join(counts)}")
                if number == options.frames:
                    break
        receipt, config = view.receipt(), sl.config()
        receipt.verify(deployment=config.deployment, rpc=config.rpc_url)
    print(f"{receipt.seconds} s, {receipt.charged.usdc} of {budget.usdc} USDC, paid in {receipt.tx_hash}")


if __name__ == "__main__":
    main()
