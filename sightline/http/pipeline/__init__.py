"""Checks, calls and answers each request; knows neither sockets nor frameworks."""
