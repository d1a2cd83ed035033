"""The sound of a phone's microphone reaches who watches, once both have switched it on."""

from playwright.sync_api import Browser, expect

from tests.console.people import (
    PATIENCE_MS,
    PHONE,
    ConsoleServer,
    Tab,
    a_tab,
    add_funds,
    camera_link,
    come_online,
    end_view,
    request_view,
    sign_up,
)

ULM = (48.401081, 9.987608)
LOUDEST = """(milliseconds) => new Promise((done) => {
  const context = new AudioContext();
  const analyser = context.createAnalyser();
  context.createMediaStreamSource(document.querySelector("video").srcObject).connect(analyser);
  const samples = new Float32Array(analyser.fftSize);
  let loudest = 0;
  const timer = setInterval(() => {
    analyser.getFloatTimeDomainData(samples);
    loudest = Math.max(loudest, ...samples.map(Math.abs));
  }, 20);
  setTimeout(() => (clearInterval(timer), context.close(), done(loudest)), milliseconds);
})"""
"""The highest level, 0 to 1, that the player of the page gets."""
BEEPS_MS = 3_000
"""The fake microphone beeps once or twice in a second."""


def loudest(tab: Tab) -> float:
    return float(tab.page.evaluate(LOUDEST, BEEPS_MS))


def test_who_watches_hears_the_microphone_once_both_have_switched_it_on(browser: Browser, server: ConsoleServer):
    with (
        a_tab(browser, server.url, place=ULM) as consumer,
        a_tab(browser, server.url, place=ULM) as operator,
        a_tab(browser, server.url, PHONE, place=ULM) as phone,
    ):
        sign_up(consumer, "Square Ears", "CONSUMER")
        add_funds(consumer)
        sign_up(operator, "Square Cams", "SUPPLIER")
        come_online(phone, camera_link(operator))
        request_view(consumer, "Is it loud?")
        phone.click("#start")
        consumer.picture("playing", within_ms=PATIENCE_MS)
        assert loudest(consumer) < 0.001, "the microphone is off at first"
        microphone = phone.page.get_by_role("button", name="Microphone", exact=True)
        expect(microphone).to_have_attribute("aria-pressed", "false")
        phone.shows("#microphone", "off")
        microphone.click()
        expect(microphone).to_have_attribute("aria-pressed", "true")
        phone.shows("#microphone", "on")
        consumer.until(f"() => ({LOUDEST})(500).then((level) => level > 0.05)")
        # A heartbeat that was under way is counted by the server and not by the page that comes after it.
        phone.allowed += (r"409 \([\w ]+\) \S*/location",)
        phone.page.reload()
        phone.shows("#sending[data-sending=sending]")
        expect(microphone, "a reload does not make the view silent").to_have_attribute("aria-pressed", "true")
        consumer.picture("playing", within_ms=PATIENCE_MS)
        consumer.until(f"() => ({LOUDEST})(500).then((level) => level > 0.05)")
        is_muted = "document.querySelector('video').muted"
        assert consumer.page.evaluate(is_muted), "browsers play no sound that nobody asked for"
        sound = consumer.page.get_by_role("button", name="Sound", exact=True)
        sound.click()
        expect(sound).to_have_attribute("aria-pressed", "true")
        assert not consumer.page.evaluate(is_muted)
        assert loudest(consumer) > 0.05
        consumer.picture("playing", within_ms=PATIENCE_MS)
        microphone.click()
        consumer.until(f"() => ({LOUDEST})(1500).then((level) => level < 0.001)")
        microphone.click()
        expect(microphone).to_have_attribute("aria-pressed", "true")
        end_view(consumer)
        consumer.shows("#to-receipt")
        phone.shows("#next-job")
        phone.page.reload()
        expect(microphone, "the next view begins as the first one did").to_have_attribute("aria-pressed", "false")
        assert consumer.problems == operator.problems == phone.problems == []
