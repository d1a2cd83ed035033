"""The HTTP interface: a file per resource, schemas, error map, live streams, WHIP/WHEP signalling."""
