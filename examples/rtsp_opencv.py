"""Feed OpenCV from RTSP out, and mark the people it finds: python examples/rtsp_opencv.py rtsp://127.0.0.1:8554/live"""

import sys

import cv2

detector = cv2.HOGDescriptor()
detector.setSVMDetector(cv2.HOGDescriptor_getDefaultPeopleDetector())
video = cv2.VideoCapture(sys.argv[1], cv2.CAP_FFMPEG)
frames = int(sys.argv[2]) if len(sys.argv) > 2 else 10
for number in range(1, frames + 1):
    is_read, picture = video.read()
    if not is_read:
        sys.exit("RTSP out has ended, or there is no video yet: start this program again")
    picture = cv2.resize(picture, (640, 640 * picture.shape[0] // picture.shape[1]))
    boxes, _ = detector.detectMultiScale(picture, winStride=(8, 8), scale=1.05)
    for x, y, width, height in boxes:
        cv2.rectangle(picture, (x, y), (x + width, y + height), (0, 0, 255), 2)
    cv2.imwrite(f"rtsp-{number:04}.jpg", picture)
    print(f"rtsp-{number:04}.jpg: {len(boxes)} people")
