// Publishes by WHIP and plays by WHEP with pion, as a test client. The result is one JSON object on stdout.
//
//	peer publish URL FILE.h264 SECONDS
//	peer play URL SECONDS
//	peer load WHIP WHEP FILE.h264 PID STEPS SECONDS [LOG]
//
// `load` is the load generator of bench/viewers.py and bench/frame_age.py; it prints one JSON object a step.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/pion/interceptor"
	"github.com/pion/rtp/codecs"
	"github.com/pion/webrtc/v4"
	"github.com/pion/webrtc/v4/pkg/media"
	"github.com/pion/webrtc/v4/pkg/media/h264reader"
)

const frameInterval = time.Second / 30

func main() {
	var report any
	var err error
	switch {
	case len(os.Args) == 5 && os.Args[1] == "publish":
		report, err = publish(os.Args[2], os.Args[3], seconds(os.Args[4]))
	case len(os.Args) == 4 && os.Args[1] == "play":
		report, err = play(os.Args[2], seconds(os.Args[3]))
	case (len(os.Args) == 8 || len(os.Args) == 9) && os.Args[1] == "load":
		if err = loadWithLog(os.Args[2:8], os.Args[8:]); err == nil {
			return
		}
	default:
		err = errors.New("usage: peer publish URL FILE SECONDS | peer play URL SECONDS | peer load WHIP WHEP FILE PID STEPS SECONDS [LOG]")
	}
	if err == nil {
		err = json.NewEncoder(os.Stdout).Encode(report)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func loadWithLog(given, logs []string) error {
	var log io.Writer
	if len(logs) == 1 {
		file, err := os.Create(logs[0])
		if err != nil {
			return err
		}
		defer file.Close()
		log = file
	}
	return load(given[0], given[1], given[2], given[3], given[4], seconds(given[5]), log)
}

func seconds(text string) time.Duration {
	value, err := strconv.ParseFloat(text, 64)
	if err != nil {
		value = 0
	}
	return time.Duration(value * float64(time.Second))
}

// connect exchanges the offer for an answer over HTTP and returns the URL of the session, for DELETE; it is empty if the
// server names none (go2rtc).
func connect(peer *webrtc.PeerConnection, url string) (string, error) {
	offer, err := peer.CreateOffer(nil)
	if err != nil {
		return "", err
	}
	gathered := webrtc.GatheringCompletePromise(peer)
	if err = peer.SetLocalDescription(offer); err != nil {
		return "", err
	}
	<-gathered
	response, err := http.Post(url, "application/sdp", strings.NewReader(peer.LocalDescription().SDP))
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	answer, err := io.ReadAll(response.Body)
	if err != nil {
		return "", err
	}
	if response.StatusCode != http.StatusCreated {
		return "", fmt.Errorf("%d: %s", response.StatusCode, answer)
	}
	resource := ""
	if location, err := response.Location(); err == nil {
		resource = location.String()
	}
	return resource, peer.SetRemoteDescription(webrtc.SessionDescription{Type: webrtc.SDPTypeAnswer, SDP: string(answer)})
}

func leave(peer *webrtc.PeerConnection, resource string) error {
	request, err := http.NewRequest(http.MethodDelete, resource, nil)
	if err != nil {
		return err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	response.Body.Close()
	if response.StatusCode != http.StatusOK && response.StatusCode != http.StatusNoContent {
		return fmt.Errorf("DELETE answered %d", response.StatusCode)
	}
	return peer.Close()
}

func whenConnected(peer *webrtc.PeerConnection) <-chan struct{} {
	connected := make(chan struct{})
	var told atomic.Bool
	peer.OnConnectionStateChange(func(state webrtc.PeerConnectionState) {
		if state == webrtc.PeerConnectionStateConnected && told.CompareAndSwap(false, true) {
			close(connected)
		}
	})
	return connected
}

// newPublisher adds what the default connection lacks: the header extension for transport-wide congestion feedback.
func newPublisher() (*webrtc.PeerConnection, error) {
	engine := &webrtc.MediaEngine{}
	if err := engine.RegisterDefaultCodecs(); err != nil {
		return nil, err
	}
	interceptors := &interceptor.Registry{}
	if err := webrtc.RegisterDefaultInterceptors(engine, interceptors); err != nil {
		return nil, err
	}
	if err := webrtc.ConfigureTWCCHeaderExtensionSender(engine, interceptors); err != nil {
		return nil, err
	}
	api := webrtc.NewAPI(webrtc.WithMediaEngine(engine), webrtc.WithInterceptorRegistry(interceptors))
	return api.NewPeerConnection(webrtc.Configuration{})
}

func publish(url, file string, length time.Duration) (any, error) {
	units, err := accessUnits(file)
	if err != nil {
		return nil, err
	}
	peer, err := newPublisher()
	if err != nil {
		return nil, err
	}
	track, err := webrtc.NewTrackLocalStaticSample(webrtc.RTPCodecCapability{MimeType: webrtc.MimeTypeH264}, "video", "pion")
	if err != nil {
		return nil, err
	}
	sender, err := peer.AddTrack(track)
	if err != nil {
		return nil, err
	}
	feedback := atomic.Int64{}
	go func() { // RTCP must be read, or the interceptors for NACK and congestion feedback do not run.
		buffer := make([]byte, 1500)
		for {
			if _, _, err := sender.Read(buffer); err != nil {
				return
			}
			feedback.Add(1)
		}
	}()
	connected := whenConnected(peer)
	resource, err := connect(peer, url)
	if err != nil {
		return nil, err
	}
	select {
	case <-connected:
	case <-time.After(10 * time.Second):
		return nil, errors.New("not connected after 10 s")
	}
	frames := 0
	ticker := time.NewTicker(frameInterval)
	defer ticker.Stop()
	for end := time.Now().Add(length); time.Now().Before(end); frames++ {
		<-ticker.C
		if err := track.WriteSample(media.Sample{Data: units[frames%len(units)], Duration: frameInterval}); err != nil {
			return nil, err
		}
	}
	state := peer.ConnectionState().String()
	return map[string]any{"frames": frames, "feedback": feedback.Load(), "state": state}, leave(peer, resource)
}

func isSlice(nal *h264reader.NAL) bool {
	return nal.UnitType == h264reader.NalUnitTypeCodedSliceIdr || nal.UnitType == h264reader.NalUnitTypeCodedSliceNonIdr
}

// startsPicture tells whether the unit is the first of an access unit: no slice, or a slice with first_mb_in_slice 0.
func startsPicture(nal *h264reader.NAL) bool {
	return !isSlice(nal) || (len(nal.Data) > 1 && nal.Data[1]&0x80 != 0)
}

func play(url string, length time.Duration) (any, error) {
	peer, err := webrtc.NewPeerConnection(webrtc.Configuration{})
	if err != nil {
		return nil, err
	}
	_, err = peer.AddTransceiverFromKind(webrtc.RTPCodecTypeVideo, webrtc.RTPTransceiverInit{Direction: webrtc.RTPTransceiverDirectionRecvonly})
	if err != nil {
		return nil, err
	}
	var frames, keyframes, gaps, damaged atomic.Int64
	peer.OnTrack(func(track *webrtc.TrackRemote, _ *webrtc.RTPReceiver) {
		var last uint16
		depacketizer := codecs.H264Packet{}
		for first := true; ; first = false {
			packet, _, err := track.ReadRTP()
			if err != nil {
				return
			}
			if !first && packet.SequenceNumber != last+1 {
				gaps.Add(1)
			}
			last = packet.SequenceNumber
			payload, err := depacketizer.Unmarshal(packet.Payload)
			if err != nil {
				damaged.Add(1)
			}
			if len(payload) > 4 && payload[4]&0x1f == 5 {
				keyframes.Add(1)
			}
			if packet.Marker {
				frames.Add(1)
			}
		}
	})
	connected := whenConnected(peer)
	resource, err := connect(peer, url)
	if err != nil {
		return nil, err
	}
	select {
	case <-connected:
	case <-time.After(10 * time.Second):
		return nil, errors.New("not connected after 10 s")
	}
	time.Sleep(length)
	report := map[string]any{
		"frames": frames.Load(), "keyframes": keyframes.Load(), "gaps": gaps.Load(), "damaged": damaged.Load(),
	}
	return report, leave(peer, resource)
}
