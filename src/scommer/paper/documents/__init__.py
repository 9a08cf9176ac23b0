"""The documents of this repository, rendered from templates and records."""
