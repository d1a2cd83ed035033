"""Evidence in frames: EXIF and XMP metadata, C2PA content credentials."""
