"""Turn the settings into the options of each package."""
