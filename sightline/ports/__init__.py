"""Ports: one Protocol for each dependency of the actors, with the types of its methods. Imports domain only."""
