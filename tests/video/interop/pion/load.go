package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/pion/interceptor"
	"github.com/pion/webrtc/v4"
	"github.com/pion/webrtc/v4/pkg/media"
	"github.com/pion/webrtc/v4/pkg/media/h264reader"
)

const (
	settleTime  = 2 * time.Second
	joinMaxTime = 20 * time.Second
	// The first viewers join at any phase of the group of pictures (one second) and their times to the first picture are
	// reported; the others join at once.
	timedViewers = 10
	groupTime    = time.Second
	// Bytes of a slice that tell its picture from the others of the file. Engines may packetize again, so that whole
	// payloads differ.
	keyBytes = 48
)

// step is what was measured with one number of viewers.
type step struct {
	Viewers       int       `json:"viewers"`
	CPUPercent    float64   `json:"cpu_percent"`
	OwnCPUPercent float64   `json:"own_cpu_percent"`
	ResidentMB    float64   `json:"resident_mb"`
	DelayP50      float64   `json:"delay_p50_ms"`
	DelayP95      float64   `json:"delay_p95_ms"`
	Pictures      int       `json:"pictures"`
	Expected      int       `json:"expected"`
	FirstPicture  []float64 `json:"first_picture_ms"`
}

// pictures remembers when each picture of the file was sent last, and the delays of those that arrived.
type pictures struct {
	mutex  sync.Mutex
	sent   map[string]time.Time
	delays []float64
	count  int
}

func (p *pictures) send(key string) {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	p.sent[key] = time.Now()
	p.count++
}

func (p *pictures) receive(key string) {
	now := time.Now()
	p.mutex.Lock()
	defer p.mutex.Unlock()
	if at, known := p.sent[key]; known {
		p.delays = append(p.delays, float64(now.Sub(at).Microseconds())/1000)
	}
}

// take returns the sorted delays and the number of sent pictures since the last call.
func (p *pictures) take() ([]float64, int) {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	delays, count := p.delays, p.count
	p.delays, p.count = nil, 0
	slices.Sort(delays)
	return delays, count
}

func quantile(sorted []float64, part float64) float64 {
	if len(sorted) == 0 {
		return -1
	}
	return sorted[min(len(sorted)-1, int(part*float64(len(sorted))))]
}

// accessUnits splits an Annex B file into pictures, each with the parameter sets before it.
func accessUnits(name string) ([][]byte, error) {
	file, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	reader, err := h264reader.NewReader(file)
	if err != nil {
		return nil, err
	}
	var units [][]byte
	var unit []byte
	hasSlice := false
	for {
		nal, err := reader.NextNAL()
		if err != nil || (hasSlice && startsPicture(nal)) {
			units = append(units, unit)
			unit, hasSlice = nil, false
		}
		if err != nil {
			break // the end of the file
		}
		unit = append(append(unit, 0, 0, 0, 1), nal.Data...)
		hasSlice = hasSlice || isSlice(nal)
	}
	return units, nil
}

// sliceKey returns the first bytes of the first slice that begins in an RTP payload (RFC 6184), after the unit's header
// byte, and whether it is a keyframe's.
func sliceKey(payload []byte) (string, bool) {
	if len(payload) < 3 {
		return "", false
	}
	kind, body := payload[0]&0x1f, payload[1:]
	switch {
	case kind == 28 && payload[1]&0x80 != 0: // FU-A, first part
		kind, body = payload[1]&0x1f, payload[2:]
	case kind == 24: // STAP-A
		for len(body) > 3 {
			size := int(body[0])<<8 | int(body[1])
			if size < 1 || len(body) < size+2 {
				break
			}
			if key, isKey := sliceKey(body[2 : 2+size]); key != "" {
				return key, isKey
			}
			body = body[2+size:]
		}
		return "", false
	}
	if kind != 1 && kind != 5 {
		return "", false
	}
	return string(body[:min(keyBytes, len(body))]), kind == 5
}

// unitKey is sliceKey for an access unit in Annex B.
func unitKey(unit []byte) string {
	for _, nal := range strings.Split(string(unit), "\x00\x00\x00\x01") {
		if len(nal) > 2 && (nal[0]&0x1f == 1 || nal[0]&0x1f == 5) {
			return nal[1:min(1+keyBytes, len(nal))]
		}
	}
	return ""
}

// processTimes returns the CPU seconds and the resident megabytes of a process.
func processTimes(pid string) (float64, float64, error) {
	stat, err := os.ReadFile("/proc/" + pid + "/stat")
	if err != nil {
		return 0, 0, err
	}
	fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
	user, _ := strconv.ParseFloat(fields[11], 64)
	system, _ := strconv.ParseFloat(fields[12], 64)
	pages, _ := strconv.ParseFloat(fields[21], 64)
	return (user + system) / 100, pages * float64(os.Getpagesize()) / 1e6, nil
}

// viewer opens a WHEP viewer that counts pictures; returns the milliseconds from POST to the first whole keyframe.
func viewer(api *webrtc.API, url string, seen *pictures) (*webrtc.PeerConnection, float64, error) {
	peer, err := api.NewPeerConnection(webrtc.Configuration{})
	if err != nil {
		return nil, 0, err
	}
	direction := webrtc.RTPTransceiverInit{Direction: webrtc.RTPTransceiverDirectionRecvonly}
	for _, kind := range []webrtc.RTPCodecType{webrtc.RTPCodecTypeVideo, webrtc.RTPCodecTypeAudio} {
		if _, err = peer.AddTransceiverFromKind(kind, direction); err != nil {
			return nil, 0, err
		}
	}
	first := make(chan struct{})
	peer.OnTrack(func(track *webrtc.TrackRemote, _ *webrtc.RTPReceiver) {
		if track.Kind() != webrtc.RTPCodecTypeVideo {
			return
		}
		key, waiting := "", true
		for {
			packet, _, err := track.ReadRTP()
			if err != nil {
				return
			}
			found, isKey := sliceKey(packet.Payload)
			if key == "" {
				key = found
			}
			if waiting && isKey {
				waiting = false
				close(first)
			}
			if packet.Marker {
				if key != "" && !waiting {
					seen.receive(key)
				}
				key = ""
			}
		}
	})
	began := time.Now()
	if _, err = connect(peer, url); err != nil {
		return nil, 0, err
	}
	select {
	case <-first:
		return peer, float64(time.Since(began).Microseconds()) / 1000, nil
	case <-time.After(joinMaxTime):
		return nil, 0, errors.New("a viewer got no keyframe")
	}
}

// sendPictures sends the units in a loop, each at its time; it does not catch up after a delay of its own. With a log, it
// writes a line with the index of each picture in the file and the Unix time in ms when its last packet was sent.
func sendPictures(track *webrtc.TrackLocalStaticSample, units [][]byte, seen *pictures, log io.Writer) {
	keys := make([]string, len(units))
	for index, unit := range units {
		keys[index] = unitKey(unit)
	}
	ticker := time.NewTicker(frameInterval)
	for index := 0; ; index = (index + 1) % len(units) {
		<-ticker.C
		seen.send(keys[index])
		if err := track.WriteSample(media.Sample{Data: units[index], Duration: frameInterval}); err != nil {
			return
		}
		if log != nil {
			fmt.Fprintf(log, "%d %.1f\n", index, float64(time.Now().UnixMicro())/1000)
		}
	}
}

// startPublisher publishes the file in a loop until the process ends.
func startPublisher(url, file string, seen *pictures, log io.Writer) error {
	units, err := accessUnits(file)
	if err != nil {
		return err
	}
	peer, err := newPublisher()
	if err != nil {
		return err
	}
	track, err := webrtc.NewTrackLocalStaticSample(webrtc.RTPCodecCapability{MimeType: webrtc.MimeTypeH264}, "video", "pion")
	if err != nil {
		return err
	}
	sender, err := peer.AddTrack(track)
	if err != nil {
		return err
	}
	go func() {
		buffer := make([]byte, 1500)
		for {
			if _, _, err := sender.Read(buffer); err != nil {
				return
			}
		}
	}()
	connected := whenConnected(peer)
	if _, err = connect(peer, url); err != nil {
		return err
	}
	select {
	case <-connected:
	case <-time.After(joinMaxTime):
		return errors.New("the publisher is not connected")
	}
	go sendPictures(track, units, seen, log)
	return nil
}

// load publishes a file, opens more viewers in steps ("0,1,10"), measures an engine's process in each step, and prints
// one JSON object a step.
func load(whip, whep, file, pid, steps string, length time.Duration, log io.Writer) error {
	seen := &pictures{sent: map[string]time.Time{}}
	if err := startPublisher(whip, file, seen, log); err != nil {
		return err
	}
	time.Sleep(settleTime)
	engine := &webrtc.MediaEngine{}
	if err := engine.RegisterDefaultCodecs(); err != nil {
		return err
	}
	// Without interceptors a viewer sends neither NACK nor reports: the load of the generator itself stays small.
	api := webrtc.NewAPI(webrtc.WithMediaEngine(engine), webrtc.WithInterceptorRegistry(&interceptor.Registry{}))
	opened := 0
	for _, text := range strings.Split(steps, ",") {
		wanted, err := strconv.Atoi(text)
		if err != nil {
			return err
		}
		result := step{Viewers: wanted, FirstPicture: []float64{}}
		for ; opened < wanted; opened++ {
			if opened < timedViewers {
				time.Sleep(time.Duration(rand.Int63n(int64(groupTime))))
			}
			peer, firstMs, err := viewer(api, whep, seen)
			if err != nil {
				return fmt.Errorf("viewer %d: %w", opened+1, err)
			}
			defer peer.Close()
			if opened < timedViewers {
				result.FirstPicture = append(result.FirstPicture, firstMs)
			}
		}
		time.Sleep(settleTime)
		if err := measure(&result, seen, pid, length); err != nil {
			return err
		}
		if err := json.NewEncoder(os.Stdout).Encode(result); err != nil {
			return err
		}
	}
	return nil
}

func measure(result *step, seen *pictures, pid string, length time.Duration) error {
	before, _, err := processTimes(pid)
	if err != nil {
		return err
	}
	ownBefore, _, _ := processTimes("self")
	seen.take()
	began := time.Now()
	time.Sleep(length)
	seconds := time.Since(began).Seconds()
	after, resident, err := processTimes(pid)
	if err != nil {
		return err
	}
	own, _, _ := processTimes("self")
	delays, sent := seen.take()
	result.CPUPercent = (after - before) / seconds * 100
	result.OwnCPUPercent = (own - ownBefore) / seconds * 100
	result.ResidentMB = resident
	result.DelayP50, result.DelayP95 = quantile(delays, 0.5), quantile(delays, 0.95)
	result.Pictures, result.Expected = len(delays), sent*result.Viewers
	return nil
}
