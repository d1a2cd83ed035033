import os
import time
import uuid

import cv2
import httpx
import numpy

API = os.environ["SIGHTLINE_URL"] + "/api/v1"
http = httpx.Client(headers={"Authorization": "Bearer " + os.environ["SIGHTLINE_API_KEY"]}, timeout=35)


def call(method, path, body=None, patience_s=60):
    headers = {"Idempotency-Key": str(uuid.uuid4())} if method != "GET" else {}
    until = time.monotonic() + patience_s
    while True:
        try:
            answer = http.request(method, API + path, json=body, headers=headers)
        except httpx.TransportError:
            answer = None
        if answer is not None and answer.status_code not in (429, 503, 504):
            answer.raise_for_status()
            return answer.json()["data"]
        if time.monotonic() > until:
            raise TimeoutError(f"{method} {path}")
        time.sleep(float(answer.headers.get("retry-after", 1)) if answer is not None else 1)


place = {"lat": 52.520008, "lng": 13.404954}
quote = call("GET", f"/pricing/quote?lat={place['lat']}&lng={place['lng']}&durationSeconds=60")
if int(quote["estimatedTotalMicroUsdc"]) > 100_000:
    raise SystemExit("too expensive")
terms = {"maxDurationSeconds": 60, "quoteId": quote["quoteId"], "consumerLeaseSeconds": 120}
session = "/sessions/" + call("POST", "/sessions", place | terms)["id"]
try:
    call("POST", session + "/dispatch")
    while (state := call("GET", session)["state"]) != "LIVE":
        if state not in ("REQUESTED", "ASSIGNED"):
            raise SystemExit(f"the session is {state}")
        time.sleep(0.5)
    while (answer := http.get(API + session + "/frame", params={"width": 768})).status_code == 404:
        time.sleep(float(answer.headers.get("retry-after", 1)))
    answer.raise_for_status()
    picture = cv2.imdecode(numpy.frombuffer(answer.content, numpy.uint8), cv2.IMREAD_COLOR)
finally:
    call("POST", session + "/end")
detector = cv2.HOGDescriptor()
detector.setSVMDetector(cv2.HOGDescriptor_getDefaultPeopleDetector())
for x, y, width, height in detector.detectMultiScale(picture)[0]:
    cv2.rectangle(picture, (x, y), (x + width, y + height), (0, 0, 255), 2)
cv2.imwrite("annotated.jpg", picture)
