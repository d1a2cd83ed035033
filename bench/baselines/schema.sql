-- What the FastAPI baseline keeps: the same facts in the same Postgres, in plain tables with the indexes its queries want.
CREATE TABLE workspace (
    id uuid PRIMARY KEY,
    name text NOT NULL,
    state text NOT NULL,
    idle_since bigint NOT NULL,
    lat double precision,
    lng double precision,
    radius_m double precision,
    last_seen_at timestamptz
);
CREATE INDEX workspace_online ON workspace (idle_since, id) WHERE state = 'ONLINE';
CREATE INDEX workspace_place ON workspace (lat, lng, radius_m) WHERE state = 'ONLINE';

-- Great-circle distance in metres; inlined by the planner.
CREATE FUNCTION distance_m(lat_a float8, lng_a float8, lat_b float8, lng_b float8) RETURNS float8
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN 2 * 6371008.8 * asin(sqrt(least(1.0,
  sin((radians(lat_b) - radians(lat_a)) / 2) ^ 2
  + cos(radians(lat_a)) * cos(radians(lat_b)) * sin(radians(lng_b - lng_a) / 2) ^ 2)));

CREATE TABLE api_key (
    digest bytea PRIMARY KEY,
    key_id uuid NOT NULL,
    workspace_id uuid NOT NULL REFERENCES workspace
);

CREATE TABLE heartbeat (
    workspace_id uuid NOT NULL,
    sequence bigint NOT NULL,
    lat double precision NOT NULL,
    lng double precision NOT NULL,
    accuracy_meters double precision NOT NULL,
    received_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (workspace_id, sequence)
);

CREATE TABLE session (
    id uuid PRIMARY KEY,
    consumer_workspace_id uuid NOT NULL REFERENCES workspace,
    operator_workspace_id uuid REFERENCES workspace,
    state text NOT NULL,
    lat double precision NOT NULL,
    lng double precision NOT NULL,
    max_duration_seconds int NOT NULL,
    rate_micro bigint NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now(),
    assigned_at timestamptz
);
CREATE INDEX session_open ON session (created_at) WHERE state IN ('REQUESTED', 'ASSIGNED');

CREATE TABLE quote (
    id uuid PRIMARY KEY,
    workspace_id uuid NOT NULL,
    lat double precision NOT NULL,
    lng double precision NOT NULL,
    duration_seconds int NOT NULL,
    rate_micro bigint NOT NULL,
    expires_at timestamptz NOT NULL
);
