"""The settings of a server: their values, meanings, and where each value came from."""

from sightline.config.loading import LoadedSettings, Source, load_settings
from sightline.config.problems import SettingsError
from sightline.config.settings import Settings

__all__ = ["LoadedSettings", "Settings", "SettingsError", "Source", "load_settings"]
