"""Tables and figures: pure functions of records."""
