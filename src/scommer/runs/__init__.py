"""An experiment from its settings to its record."""
