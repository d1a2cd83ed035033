"""The sync client, generated from `sightline_client._async`. Do not edit; run `make sdk`."""
