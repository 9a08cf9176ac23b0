"""The paper's numbers, tables and streams, and the runs that reproduce them."""
