"""`python -m scommer` is the same as `scommer`."""

from scommer.cli import main

main()
