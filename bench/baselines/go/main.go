// A conventional service in Go (net/http, pgx) with the tables of ../schema.sql: the stronger baseline of bench.ladder.
//
// It answers POST location, GET session and POST dispatch as Sightline does, writes one access line per call, and looks a key up once.
// A heartbeat is one INSERT, or with -group one row of the INSERT of a goroutine that writes what waits while the one before commits.
// A dispatch is one transaction that takes the operator that is idle for the longest time with FOR UPDATE SKIP LOCKED.
package main

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"log"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/jackc/pgx/v5/pgxpool"
)

const (
	bodyMax         = 64 << 10
	rowsMax         = 512
	connections     = 12 // as the FastAPI baseline has
	uniqueViolation = "23505"

	columns = `id, consumer_workspace_id, operator_workspace_id, state, lat, lng, max_duration_seconds, rate_micro, created_at, assigned_at`
	insert  = `INSERT INTO heartbeat (workspace_id, sequence, lat, lng, accuracy_meters, received_at) `
	one     = insert + `VALUES ($1, $2, $3, $4, $5, $6)`
	many    = insert + `SELECT * FROM unnest($1::uuid[], $2::bigint[], $3::float8[], $4::float8[], $5::float8[], $6::timestamptz[])`
	take    = `UPDATE workspace SET state = 'BUSY' WHERE id = (
	SELECT id FROM workspace WHERE state = 'ONLINE' AND distance_m(lat, lng, $1, $2) <= radius_m
	ORDER BY idle_since, id LIMIT 1 FOR UPDATE SKIP LOCKED) RETURNING id`
)

// status is an error that the caller is told as this HTTP status.
type status int

func (s status) Error() string { return http.StatusText(int(s)) }

type heartbeat struct {
	Sequence  int64   `json:"sequence"`
	Lat       float64 `json:"lat"`
	Lng       float64 `json:"lng"`
	Accuracy  float64 `json:"accuracyMeters"`
	workspace pgtype.UUID
	at        time.Time
	written   chan error
}

type seen struct {
	ID         pgtype.UUID `json:"id"`
	LastSeenAt time.Time   `json:"lastSeenAt"`
}

type envelope struct {
	StatusCode int       `json:"statusCode"`
	Message    string    `json:"message"`
	Data       any       `json:"data"`
	Timestamp  time.Time `json:"timestamp"`
}

func (h *heartbeat) isValid() bool {
	return h.Sequence >= 0 && h.Lat >= -90 && h.Lat <= 90 && h.Lng >= -180 && h.Lng <= 180 && h.Accuracy >= 0 && h.Accuracy <= 100_000
}

type session struct {
	ID         pgtype.UUID  `json:"id"`
	Consumer   pgtype.UUID  `json:"consumerWorkspaceId"`
	Operator   *pgtype.UUID `json:"operatorWorkspaceId"`
	State      string       `json:"state"`
	Lat        float64      `json:"requestedLat"`
	Lng        float64      `json:"requestedLng"`
	Seconds    int64        `json:"maxDurationSeconds"`
	Rate       string       `json:"ratePerSecondMicroUsdc"`
	Hold       string       `json:"holdMicroUsdc"`
	CreatedAt  time.Time    `json:"createdAt"`
	AssignedAt *time.Time   `json:"assignedAt"`
}

func scan(row pgx.Row) (*session, error) {
	found, rate := &session{}, int64(0)
	err := row.Scan(&found.ID, &found.Consumer, &found.Operator, &found.State, &found.Lat, &found.Lng, &found.Seconds, &rate,
		&found.CreatedAt, &found.AssignedAt)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, status(http.StatusNotFound)
	}
	found.Rate, found.Hold = strconv.FormatInt(rate, 10), strconv.FormatInt(rate*found.Seconds, 10)
	return found, err
}

type service struct {
	pool    *pgxpool.Pool
	waiting chan *heartbeat // nil: each heartbeat is written by its own call
	keys    sync.Map        // digest of a key -> workspace
}

func (s *service) workspace(r *http.Request) (pgtype.UUID, error) {
	key, found := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	if !found {
		return pgtype.UUID{}, status(http.StatusUnauthorized)
	}
	digest := sha256.Sum256([]byte(key))
	if known, found := s.keys.Load(digest); found {
		return known.(pgtype.UUID), nil
	}
	var id pgtype.UUID
	err := s.pool.QueryRow(r.Context(), `SELECT workspace_id FROM api_key WHERE digest = $1`, digest[:]).Scan(&id)
	if errors.Is(err, pgx.ErrNoRows) {
		return id, status(http.StatusUnauthorized)
	}
	if err == nil {
		s.keys.Store(digest, id)
	}
	return id, err
}

// asked is the caller's workspace and the id in the path.
func (s *service) asked(r *http.Request) (mine, id pgtype.UUID, err error) {
	if mine, err = s.workspace(r); err == nil && id.Scan(r.PathValue("id")) != nil {
		err = status(http.StatusUnprocessableEntity)
	}
	return mine, id, err
}

func (s *service) location(r *http.Request) (any, error) {
	mine, id, err := s.asked(r)
	if err != nil {
		return nil, err
	}
	if id != mine {
		return nil, status(http.StatusForbidden)
	}
	beat := &heartbeat{workspace: id, Accuracy: 50, Sequence: -1, at: time.Now().UTC()}
	if json.NewDecoder(http.MaxBytesReader(nil, r.Body, bodyMax)).Decode(beat) != nil || !beat.isValid() {
		return nil, status(http.StatusUnprocessableEntity)
	}
	if s.waiting == nil {
		err = s.write(r.Context(), beat)
	} else {
		beat.written = make(chan error, 1)
		s.waiting <- beat
		err = <-beat.written
	}
	return seen{id, beat.at}, err
}

func (s *service) write(ctx context.Context, beat *heartbeat) error {
	_, err := s.pool.Exec(ctx, one, beat.workspace, beat.Sequence, beat.Lat, beat.Lng, beat.Accuracy, beat.at)
	var refused *pgconn.PgError
	if errors.As(err, &refused) && refused.Code == uniqueViolation {
		return status(http.StatusConflict)
	}
	return err
}

// writeTogether writes the heartbeats that wait, again and again; a refused row is found by writing each alone.
func (s *service) writeTogether(ctx context.Context) {
	for first := range s.waiting {
		beats := []*heartbeat{first}
		for len(beats) < rowsMax && len(s.waiting) > 0 {
			beats = append(beats, <-s.waiting)
		}
		var ids []pgtype.UUID
		var sequences []int64
		var lats, lngs, accuracies []float64
		var times []time.Time
		for _, beat := range beats {
			ids, sequences, times = append(ids, beat.workspace), append(sequences, beat.Sequence), append(times, beat.at)
			lats, lngs, accuracies = append(lats, beat.Lat), append(lngs, beat.Lng), append(accuracies, beat.Accuracy)
		}
		_, err := s.pool.Exec(ctx, many, ids, sequences, lats, lngs, accuracies, times)
		for _, beat := range beats {
			if err != nil {
				beat.written <- s.write(ctx, beat)
			} else {
				beat.written <- nil
			}
		}
	}
}

func (s *service) read(r *http.Request) (any, error) {
	mine, id, err := s.asked(r)
	if err != nil {
		return nil, err
	}
	found, err := scan(s.pool.QueryRow(r.Context(), `SELECT `+columns+` FROM session WHERE id = $1`, id))
	if err == nil && found.Consumer != mine && (found.Operator == nil || *found.Operator != mine) {
		err = status(http.StatusForbidden)
	}
	return found, err
}

func (s *service) dispatch(r *http.Request) (any, error) {
	mine, id, err := s.asked(r)
	if err != nil {
		return nil, err
	}
	var assigned *session
	ctx := r.Context()
	err = pgx.BeginFunc(ctx, s.pool, func(tx pgx.Tx) error {
		found, err := scan(tx.QueryRow(ctx, `SELECT `+columns+` FROM session WHERE id = $1 FOR UPDATE`, id))
		if err != nil {
			return err
		}
		if found.Consumer != mine {
			return status(http.StatusForbidden)
		}
		if found.State != "REQUESTED" {
			return status(http.StatusConflict)
		}
		var operator pgtype.UUID
		err = tx.QueryRow(ctx, take, found.Lat, found.Lng).Scan(&operator)
		if errors.Is(err, pgx.ErrNoRows) {
			return status(http.StatusServiceUnavailable)
		}
		if err != nil {
			return err
		}
		assigned, err = scan(tx.QueryRow(ctx, `UPDATE session SET state = 'ASSIGNED', operator_workspace_id = $2,
	assigned_at = now() WHERE id = $1 RETURNING `+columns, id, operator))
		return err
	})
	return assigned, err
}

// answered wraps a call: the envelope, the status, and one access line.
func answered(call func(*http.Request) (any, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		began, code, message := time.Now(), http.StatusOK, "Request successful"
		data, err := call(r)
		if err != nil {
			var told status
			if !errors.As(err, &told) {
				log.Print(err)
				told = http.StatusInternalServerError
			}
			data, code, message = nil, int(told), told.Error()
		}
		body, err := json.Marshal(envelope{code, message, data, began.UTC()})
		if err != nil {
			log.Panic(err)
		}
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Content-Length", strconv.Itoa(len(body)))
		w.WriteHeader(code)
		if _, err := w.Write(body); err != nil {
			log.Print(err)
		}
		log.Print(r.Method, " ", r.URL.Path, " ", code, " ", time.Since(began))
	}
}

func main() {
	isGrouped := flag.Bool("group", false, "write the heartbeats that wait with one INSERT")
	flag.Parse()
	ctx := context.Background()
	options, err := pgxpool.ParseConfig(os.Getenv("BENCH_DSN"))
	if err != nil {
		log.Fatal(err)
	}
	options.MinConns, options.MaxConns = connections, connections
	pool, err := pgxpool.NewWithConfig(ctx, options)
	if err != nil {
		log.Fatal(err)
	}
	s := &service{pool: pool}
	if *isGrouped {
		s.waiting = make(chan *heartbeat, rowsMax)
		go s.writeTogether(ctx)
	}
	routes := http.NewServeMux()
	routes.HandleFunc("POST /api/v1/workspaces/{id}/location", answered(s.location))
	routes.HandleFunc("GET /api/v1/sessions/{id}", answered(s.read))
	routes.HandleFunc("POST /api/v1/sessions/{id}/dispatch", answered(s.dispatch))
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("ready", listener.Addr())
	server := &http.Server{Handler: routes, ReadHeaderTimeout: 10 * time.Second}
	log.Fatal(server.Serve(listener))
}
