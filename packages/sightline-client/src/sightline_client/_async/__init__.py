"""The async client, written by hand. `sightline_client._sync` is generated from it: `make sdk`."""
