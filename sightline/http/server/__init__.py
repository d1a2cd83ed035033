"""The one place that knows HTTP on the wire: sockets, parsers, Hypercorn."""
