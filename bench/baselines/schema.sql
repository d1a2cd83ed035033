-- What the FastAPI baseline keeps: the same facts in the same Postgres, in plain tables with the indexes its queries want.
CREATE TABLE workspace (
    id uuid PRIMARY KEY,
    name text NOT NULL,
    state text NOT NULL,
    idle_since bigint NOT NULL,
    last_seen_at timestamptz
);
CREATE INDEX workspace_online ON workspace (idle_since, id) WHERE state = 'ONLINE';

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
