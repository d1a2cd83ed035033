"""Share links: others see one view, read-only and for a time."""
