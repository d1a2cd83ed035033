"""Sightline brokers on-demand live video from a place on the map."""
