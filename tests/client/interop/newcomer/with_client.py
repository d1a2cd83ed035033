import cv2
from sightline_client import Sightline, usdc

with Sightline() as sl, sl.view(52.520008, 13.404954, seconds=60, max_charge=usdc("0.10")) as view:
    picture = view.frame(width=768).numpy().copy()
detector = cv2.HOGDescriptor()
detector.setSVMDetector(cv2.HOGDescriptor_getDefaultPeopleDetector())
for x, y, width, height in detector.detectMultiScale(picture)[0]:
    cv2.rectangle(picture, (x, y), (x + width, y + height), (0, 0, 255), 2)
cv2.imwrite("annotated.jpg", picture)
