"""`python -m scommer` is `scommer`."""

from scommer.cli import main

main()
