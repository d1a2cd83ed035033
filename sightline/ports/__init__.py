"""A Protocol per need of the actors, with the types that cross it. Imports domain only."""
