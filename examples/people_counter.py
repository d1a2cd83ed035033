"""Count people at a place: request live video, mark what is found, stop at a budget, print the receipt.

    pip install 'sightline-client[frames]' 'opencv-python-headless<5'
    sightline dev                            # in another terminal; export the variables that it prints
    python examples/people_counter.py 52.520008 13.404954 --budget 0.05

People are found by the detector that OpenCV contains (HOG); without people, moving objects are marked.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path

import cv2
import numpy

from sightline_client import Sightline, usdc

Box = tuple[int, int, int, int]
SCORE_MIN, MOVED_MIN = 0.5, 400  # of the detector; in pixels

detector = cv2.HOGDescriptor()
detector.setSVMDetector(cv2.HOGDescriptor_getDefaultPeopleDetector())
background = cv2.createBackgroundSubtractorMOG2(history=20, detectShadows=False)


def people(picture: numpy.ndarray) -> list[Box]:
    """Boxes of upright people."""
    boxes, scores = detector.detectMultiScale(picture, winStride=(8, 8), scale=1.05)
    return [tuple(map(int, box)) for box, score in zip(boxes, scores, strict=True) if score >= SCORE_MIN]


def moving(picture: numpy.ndarray) -> list[Box]:
    """Boxes of what differs from the background of the last frames."""
    mask = cv2.morphologyEx(background.apply(picture), cv2.MORPH_CLOSE, numpy.ones((9, 9), numpy.uint8))
    contours, _ = cv2.findContours(mask, cv2.RETR_EXTERNAL, cv2.CHAIN_APPROX_SIMPLE)
    return [cv2.boundingRect(contour) for contour in contours if cv2.contourArea(contour) >= MOVED_MIN]


def annotated(picture: numpy.ndarray, boxes: Sequence[Box], text: str) -> numpy.ndarray:
    """Draw the boxes and a line of text into the picture."""
    for x, y, width, height in boxes:
        cv2.rectangle(picture, (x, y), (x + width, y + height), (0, 0, 255), 2)
    cv2.putText(picture, text, (8, 24), cv2.FONT_HERSHEY_SIMPLEX, 0.7, (255, 255, 255), 2)
    return picture


def main() -> None:
    """Run the example."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("lat", type=float)
    parser.add_argument("lng", type=float)
    parser.add_argument("--budget", default="0.05", help="USDC")
    parser.add_argument("--frames", type=int, default=10)
    parser.add_argument("--out", type=Path, default=Path("counted"))
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    with Sightline() as sl:
        budget, price = usdc(options.budget), sl.quote(options.lat, options.lng, seconds=1)
        too_small = f"--budget is too small: a second costs {price.rate_per_second_micro_usdc.usdc} USDC"
        seconds = min(600, price.affordable_s(budget)) or parser.error(too_small)
        with sl.view(options.lat, options.lng, seconds=seconds, max_charge=budget) as view:
            present = (frame for frame in view.frames(fps=1, width=640) if frame.state != "lost")  # the camera answers
            for number, frame in enumerate(present, start=1):
                picture = frame.numpy().copy()
                moved, found = moving(picture), people(picture)
                what, boxes = ("people", found) if found else ("moving objects", moved)
                text = f"{len(boxes)} {what}"
                cv2.imwrite(str(options.out / f"{number:04}.jpg"), annotated(picture, boxes, text))
                print(f"frame {frame.sequence}: {text}, in the geofence: {frame.in_geofence}")
                if number == options.frames:
                    break
        receipt, config = view.receipt(), sl.config()
        receipt.verify(deployment=config.deployment, rpc=config.rpc_url)
    print(f"{receipt.seconds} s, {receipt.charged.usdc} of {budget.usdc} USDC, paid in {receipt.tx_hash}")


if __name__ == "__main__":
    main()
